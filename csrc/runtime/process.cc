#include "process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "error.h"

extern char** environ;

namespace jax_elementwise::runtime {
namespace {

namespace fs = std::filesystem;

// The environment, but for the language of messages.
std::vector<char*> environment() {
  static char language[] = "LC_ALL=C";
  std::vector<char*> result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "LC_ALL=", 7) != 0) result.push_back(*entry);
  }
  result.push_back(language);
  result.push_back(nullptr);
  return result;
}

// Frees the lists on every path.
struct SpawnSettings {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;

  explicit SpawnSettings(int output) {
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, output, 1);
    posix_spawn_file_actions_adddup2(&files, output, 2);
    // The thread may block signals that the program needs, and Python ignores SIGPIPE.
    sigset_t none, reset;
    sigemptyset(&none);
    sigemptyset(&reset);
    sigaddset(&reset, SIGPIPE);
    sigaddset(&reset, SIGCHLD);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &reset);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
};

std::string read_all(int file) {
  std::string result;
  char buffer[4096];
  for (;;) {
    const ssize_t count = ::read(file, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return result;
    result.append(buffer, static_cast<size_t>(count));
  }
}

std::string failure_of(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno == EINTR) continue;
    return {};  // the process ignores its children: what was to be made is there, or is not
  }
  if (WIFSIGNALED(status)) return "killed by signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : "exit status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& words) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {std::strerror(errno), {}, false};
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  int error = 0;
  {
    const SpawnSettings settings(ends[1]);
    error = ::posix_spawn(&child, argv[0], &settings.files, &settings.attributes, argv.data(),
                          environment().data());
  }
  ::close(ends[1]);
  ProcessResult result;
  result.started = error == 0;
  if (result.started) {
    result.output = read_all(ends[0]);
    result.failure = failure_of(child);
  } else {
    result.failure = std::strerror(error);
  }
  ::close(ends[0]);
  return result;
}

TemporaryDirectory::TemporaryDirectory() {
  std::error_code error;
  fs::path parent = fs::temp_directory_path(error);
  if (error) parent = "/tmp";
  path_ = (parent / "jax_elementwise.XXXXXX").string();
  if (::mkdtemp(path_.data()) == nullptr) {
    throw Unavailable("cannot make a directory for the compiler's files in " + parent.string() +
                      ": " + std::strerror(errno));
  }
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string TemporaryDirectory::write(const std::string& name, const std::string& content) const {
  const fs::path path = fs::path(path_) / name;
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  std::ofstream file(path, std::ios::binary);
  file << content;
  if (!file.flush()) throw Unavailable("cannot write " + path.string());
  return path.string();
}

}  // namespace jax_elementwise::runtime
