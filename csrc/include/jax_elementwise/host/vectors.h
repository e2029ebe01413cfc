// CUDA's vector types for host compilers, with CUDA's sizes and alignments.
#pragma once

// A pointer to elements of an array may be cast to one to vectors.
#define EW_VECTOR(element, T, pair, four)                                        \
  struct __attribute__((may_alias)) T##1 { element x; };                         \
  struct __attribute__((may_alias, aligned(pair))) T##2 { element x, y; };       \
  struct __attribute__((may_alias)) T##3 { element x, y, z; };                   \
  struct __attribute__((may_alias, aligned(four))) T##4 { element x, y, z, w; }; \
  inline T##1 make_##T##1(element x) { return {x}; }                             \
  inline T##2 make_##T##2(element x, element y) { return {x, y}; }               \
  inline T##3 make_##T##3(element x, element y, element z) { return {x, y, z}; } \
  inline T##4 make_##T##4(element x, element y, element z, element w) { return {x, y, z, w}; }

EW_VECTOR(signed char, char, 2, 4)
EW_VECTOR(unsigned char, uchar, 2, 4)
EW_VECTOR(short, short, 4, 8)
EW_VECTOR(unsigned short, ushort, 4, 8)
EW_VECTOR(int, int, 8, 16)
EW_VECTOR(unsigned int, uint, 8, 16)
EW_VECTOR(long, long, 16, 16)
EW_VECTOR(unsigned long, ulong, 16, 16)
EW_VECTOR(long long, longlong, 16, 16)
EW_VECTOR(unsigned long long, ulonglong, 16, 16)
EW_VECTOR(float, float, 8, 16)
EW_VECTOR(double, double, 16, 16)

#undef EW_VECTOR
