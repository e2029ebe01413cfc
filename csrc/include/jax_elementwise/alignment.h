// Where packs begin, and how many blocks go through them: host code, shared by the launcher of
// traced kernels (csrc/runtime/plan.cc) and elementwise.cuh.
#pragma once

#include <jax_elementwise/platform.h>

namespace jax_elementwise {

// An array as the choice of packs sees it. Only those with the shape of the results are packed.
struct Placement {
  const void* data;
  int64 itemsize;
  bool is_packed;

  // Whether packs that begin `head` elements into the array are aligned to their size.
  bool is_aligned(int64 head, int64 pack) const {
    const uint64 address = reinterpret_cast<uint64>(data) + static_cast<uint64>(head * itemsize);
    return is_packed && address % static_cast<uint64>(pack * itemsize) == 0;
  }
};

struct Alignment {
  int64 head;         // elements before the first whole pack
  uint64 vectorized;  // bit k: array k is aligned from there on
  int64 score;

  // Elements by which the first pack begins before element 0 (Geometry::shift).
  int64 shift(int64 pack) const { return (pack - head) % pack; }
};

constexpr int kMaxVectorized = 64;  // arrays, results first: as many as the mask has bits

// A misaligned store costs far more than a misaligned load (H200, 2^28 bf16 elements: 1734 against
// 3948 GB/s), so results count first.
inline Alignment alignment_at(const Placement* arrays, int count, int results, int64 pack,
                              int64 head) {
  Alignment alignment{head, 0, 0};
  for (int k = 0; k < count && k < kMaxVectorized; ++k) {
    if (!arrays[k].is_aligned(head, pack)) continue;
    alignment.vectorized |= uint64{1} << k;
    alignment.score += arrays[k].itemsize * (k < results ? 1024 : 1);
  }
  return alignment;
}

inline Alignment best_alignment(const Placement* arrays, int count, int results, int64 pack) {
  Alignment best = alignment_at(arrays, count, results, pack, 0);
  for (int64 head = 1; head < pack; ++head) {
    const Alignment candidate = alignment_at(arrays, count, results, pack, head);
    if (candidate.score > best.score) best = candidate;
  }
  return best;
}

// How many packs cover the elements.
inline int64 pack_count(int64 size, int64 shift, int64 pack) {
  return (size + shift + pack - 1) / pack;
}

// The most blocks worth starting on a GPU. One pack per thread measures best (H200, 2^28 elements:
// capping at 32 waves costs 2-3%, at one wave 8%), so the cap only bounds the grid of huge arrays.
inline int64 max_blocks(int multiprocessors, int threads_per_multiprocessor) {
  constexpr int64 kMaxWaves = 1024, kMaxGrid = (int64{1} << 31) - 1;
  const int64 blocks = int64{multiprocessors} * (threads_per_multiprocessor / kBlockSize);
  return blocks * kMaxWaves < kMaxGrid ? blocks * kMaxWaves : kMaxGrid;
}

// The blocks to start: a thread per pack, as far as the cap goes.
inline int64 block_count(int64 packs, int64 cap) {
  const int64 blocks = (packs + kBlockSize - 1) / kBlockSize;
  return blocks < 1 ? 1 : blocks < cap ? blocks : cap;
}

}  // namespace jax_elementwise
