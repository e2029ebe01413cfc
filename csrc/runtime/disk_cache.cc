#include "disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "hash.h"

namespace jax_elementwise::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "jax_elementwise kernel, format 2\n";
constexpr size_t kMaxEntry = size_t{1} << 30;  // nothing that was compiled is near it

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

constexpr size_t kChecksum = 17;  // digits and the line's end

// Everything of an entry before its key and its payload: the magic, both lengths, the checksum of
// the payload; all of the same length, whatever the numbers are.
std::string header(size_t key_size, size_t payload_size, std::uint64_t checksum) {
  char numbers[80];
  std::snprintf(numbers, sizeof(numbers), "%016zx %016zx %016llx\n", key_size, payload_size,
                static_cast<unsigned long long>(checksum));
  return std::string(kMagic) + numbers;
}

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// The size of a file that may be an entry, else 0. Machine code is run, so what somebody else
// wrote, or could have changed, is none.
size_t trusted_size(int file) {
  struct stat status;
  if (file < 0 || ::fstat(file, &status) != 0) return 0;
  const bool is_trusted = S_ISREG(status.st_mode) &&
                          (status.st_uid == ::geteuid() || status.st_uid == 0) &&
                          (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  return is_trusted ? static_cast<size_t>(status.st_size) : 0;
}

// Closes the file on every path.
struct File {
  explicit File(const fs::path& path)
      : descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~File() {
    if (descriptor >= 0) ::close(descriptor);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const int descriptor;
};

// The next bytes of the file, or fewer where it ends.
std::string read_next(int file, size_t size) {
  std::string content(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t count = ::read(file, content.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  content.resize(done);
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
  const File file(entry_path(key));
  const size_t size = trusted_size(file.descriptor);
  const size_t before_payload = header(0, 0, 0).size() + key.size();
  if (size < before_payload || size > kMaxEntry) return std::nullopt;
  const size_t payload_size = size - before_payload;
  // All but the checksum is known before the payload is read, which may be long.
  const std::string found = read_next(file.descriptor, before_payload);
  const std::string expected = header(key.size(), payload_size, 0).append(key);
  const size_t checksum = expected.size() - key.size() - kChecksum;
  if (found.size() != before_payload || found.compare(0, checksum, expected, 0, checksum) != 0 ||
      found.compare(checksum + kChecksum, key.size(), key) != 0) {
    return std::nullopt;
  }
  std::string payload = read_next(file.descriptor, payload_size);
  const std::string complete = header(key.size(), payload.size(), fnv1a(payload)).append(key);
  return found == complete ? std::optional<std::string>(std::move(payload)) : std::nullopt;
}

bool write_cache(std::string_view key, std::string_view payload) {
  const std::string first = header(key.size(), payload.size(), fnv1a(payload));
  if (first.size() + key.size() + payload.size() > kMaxEntry) return false;
  if (cache_directory().empty() || !create_directory(cache_directory())) return false;
  const fs::path target = entry_path(key);
  std::string temporary = target.string() + ".tmp.XXXXXX";
  const int file = ::mkstemp(temporary.data());  // readable by its owner alone
  if (file < 0) return false;
  const bool written = write_all(file, first) && write_all(file, key) && write_all(file, payload);
  const bool closed = ::close(file) == 0;
  if (written && closed && std::rename(temporary.c_str(), target.c_str()) == 0) return true;
  ::unlink(temporary.c_str());
  return false;
}

void remove_cache_entry(std::string_view key) {
  if (!cache_directory().empty()) ::unlink(entry_path(key).c_str());
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
