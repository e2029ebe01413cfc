// Programs that the runtime starts, and a place for their files.
#pragma once

#include <string>
#include <vector>

namespace jax_elementwise::runtime {

struct ProcessResult {
  std::string failure;  // why it could not be started, or did not end with status 0; else empty
  std::string output;   // what it wrote to stdout and stderr
  bool started = false;
};

// Runs a program, words[0] its path, and waits for it. No shell is involved: a word reaches the
// program as it is.
ProcessResult run_process(const std::vector<std::string>& words);

// A directory that only this user can read, removed with what is in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

  // Writes a file and any directories before it; throws Unavailable where that fails. Returns its
  // path.
  std::string write(const std::string& name, const std::string& content) const;

 private:
  std::string path_;
};

}  // namespace jax_elementwise::runtime
