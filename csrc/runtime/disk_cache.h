// Compiled kernels on disk, shared by processes.
//
// An entry is written to a temporary file and renamed, so readers see all of it or none of it. It
// holds its whole key and a checksum of its payload, so a damaged or foreign file is no entry.
// Every failure, from a missing home to a full disk, means "not cached" and nothing more.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace jax_elementwise::runtime {

// $JAX_ELEMENTWISE_CACHE_DIR, else $XDG_CACHE_HOME/jax_elementwise, else ~/.cache/jax_elementwise;
// empty where there is none of these, or where the first is set to nothing: then nothing is cached.
std::string cache_directory();

// Reads the payload only where the entry is the key's and its size is as it says.
std::optional<std::string> read_cache(std::string_view key);

// Whether the entry was written.
bool write_cache(std::string_view key, std::string_view payload);

// Removes the entry of a key, if there is one.
void remove_cache_entry(std::string_view key);

// Removes entries, and temporary files that a killed process left behind; what has another name, or
// is no file, stays. Whatever cannot be removed stays, too.
void remove_cache_entries();

}  // namespace jax_elementwise::runtime
