#include "disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "hash.h"

namespace jax_elementwise::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "jax_elementwise kernel, format 1\n";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

fs::path entry_path(std::string_view key) {
  char name[40];
  std::snprintf(name, sizeof(name), "%016llx%016llx.kernel",
                static_cast<unsigned long long>(fnv1a(key)),
                static_cast<unsigned long long>(fnv1a(key, 0x9e3779b97f4a7c15u)));
  return fs::path(cache_directory()) / name;
}

// Whether a file's name is that of an entry, or of one that is being written.
bool is_entry_name(const std::string& name) {
  const size_t stem = name.find_first_not_of("0123456789abcdef");
  if (stem != 32 || name.compare(stem, 7, ".kernel") != 0) return false;
  const std::string suffix = name.substr(stem + 7);
  return suffix.empty() || (suffix.size() == 11 && suffix.compare(0, 5, ".tmp.") == 0);
}

// Everything of an entry but its payload: the magic, both lengths, the checksum, the key.
std::string preamble(std::string_view key, std::string_view payload) {
  char numbers[80];
  std::snprintf(numbers, sizeof(numbers), "%zu %zu %016llx\n", key.size(), payload.size(),
                static_cast<unsigned long long>(fnv1a(payload)));
  return std::string(kMagic) + numbers + std::string(key);
}

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// Machine code is run, so what somebody else wrote, or could have changed, is no entry.
bool is_trusted(int file) {
  struct stat status;
  if (::fstat(file, &status) != 0) return false;
  return S_ISREG(status.st_mode) && (status.st_uid == ::geteuid() || status.st_uid == 0) &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// Empty where it cannot be read.
std::string read_all(int file) {
  std::string content;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(file, buffer, sizeof(buffer));
    if (count < 0) return {};
    if (count == 0) return content;
    content.append(buffer, static_cast<size_t>(count));
  }
}

// Empty where the file cannot be read, or must not be.
std::string read_trusted(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return {};
  std::string content = is_trusted(file) ? read_all(file) : std::string();
  ::close(file);
  return content;
}

// Creates the directory and its parents, the last one for its owner alone.
bool create_directory(const fs::path& directory) {
  std::error_code error;
  if (fs::is_directory(directory, error)) return true;
  fs::create_directories(directory.parent_path(), error);
  return ::mkdir(directory.c_str(), 0700) == 0 || fs::is_directory(directory, error);
}

}  // namespace

std::string cache_directory() {
  if (std::getenv("JAX_ELEMENTWISE_CACHE_DIR") != nullptr)
    return environment("JAX_ELEMENTWISE_CACHE_DIR");
  if (const std::string xdg = environment("XDG_CACHE_HOME"); !xdg.empty())
    return xdg + "/jax_elementwise";
  if (const std::string home = environment("HOME"); !home.empty())
    return home + "/.cache/jax_elementwise";
  return {};
}

std::optional<std::string> read_cache(std::string_view key) {
  if (cache_directory().empty()) return std::nullopt;
  const std::string entry = read_trusted(entry_path(key));
  // The payload's length and checksum are in the preamble, so a candidate payload is checked by
  // writing the preamble it would have.
  if (entry.size() < kMagic.size()) return std::nullopt;
  const size_t header_end = entry.find('\n', kMagic.size());
  if (header_end == std::string::npos) return std::nullopt;
  const size_t payload_begin = header_end + 1 + key.size();
  if (payload_begin > entry.size()) return std::nullopt;
  std::string payload = entry.substr(payload_begin);
  if (entry.compare(0, payload_begin, preamble(key, payload)) != 0) return std::nullopt;
  return payload;
}

bool write_cache(std::string_view key, std::string_view payload) {
  if (cache_directory().empty() || !create_directory(cache_directory())) return false;
  const fs::path target = entry_path(key);
  std::string temporary = target.string() + ".tmp.XXXXXX";
  const int file = ::mkstemp(temporary.data());  // readable by its owner alone
  if (file < 0) return false;
  const bool written = write_all(file, preamble(key, payload)) && write_all(file, payload);
  const bool closed = ::close(file) == 0;
  if (written && closed && std::rename(temporary.c_str(), target.c_str()) == 0) return true;
  ::unlink(temporary.c_str());
  return false;
}

void remove_cache_entries() {
  if (cache_directory().empty()) return;
  std::error_code error;
  std::vector<fs::path> found;  // listed first: removing files may upset the listing
  for (fs::directory_iterator file(cache_directory(), error), end; file != end && !error;
       file.increment(error)) {
    if (is_entry_name(file->path().filename().string())) found.push_back(file->path());
  }
  for (const fs::path& path : found) {
    // Not through links, which are none of ours.
    if (fs::is_regular_file(fs::symlink_status(path, error))) ::unlink(path.c_str());
  }
}

}  // namespace jax_elementwise::runtime
