# Writes a C++ file that holds the given headers as string literals.
#   cmake -DOUTPUT=headers.cc -DROOT=include "-DHEADERS=include/x/a.h;include/x/b.h"
#         -P embed_headers.cmake
set(text "#include \"headers.h\"\n\n#include \"hash.h\"\n\nnamespace jax_elementwise::runtime {\n\n")
string(APPEND text "const std::vector<Header>& headers() {\n  static const std::vector<Header> all = {\n")
foreach(header IN LISTS HEADERS)
  file(READ ${header} content)
  file(RELATIVE_PATH name ${ROOT} ${header})

  string(APPEND text "      {\"${name}\", R\"ew(${content})ew\"},\n")
endforeach()
string(APPEND text "  };\n  return all;\n}\n\n")
string(APPEND text "std::uint64_t headers_hash() {\n  static const std::uint64_t hash = [] {\n")
string(APPEND text "    std::uint64_t h = fnv1a(\"\");\n")
string(APPEND text "    for (const Header& header : headers()) h = fnv1a(header.text, fnv1a(header.name, h));\n")
string(APPEND text "    return h;\n  }();\n  return hash;\n}\n\n}  // namespace jax_elementwise::runtime\n")
file(WRITE ${OUTPUT} "${text}")
