#include "host_compiler.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <sstream>

#include "error.h"
#include "hash.h"
#include "headers.h"
#include "process.h"

namespace jax_elementwise::runtime {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

// ---- Finding it ---------------------------------------------------------------------------------

bool is_program(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

// The path of a program, empty where there is none of that name.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return is_program(name) ? name : "";
  const char* path = std::getenv("PATH");
  std::istringstream directories(path == nullptr ? "" : path);
  for (std::string directory; std::getline(directories, directory, ':');) {
    const fs::path candidate = fs::path(directory.empty() ? "." : directory) / name;
    if (is_program(candidate)) return candidate.string();
  }
  return {};
}

// $CXX: a program, whose path may have spaces in it, or one with arguments ("ccache g++").
Words named_compiler(const std::string& text) {
  if (const std::string whole = find_program(text); !whole.empty()) return {whole};
  std::istringstream stream(text);
  Words words{std::istream_iterator<std::string>(stream), {}};
  const std::string program = words.empty() ? "" : find_program(words[0]);
  if (program.empty()) {
    throw Unavailable("the environment variable CXX names a compiler that is not there: " + text);
  }
  words[0] = program;
  return words;
}

Words find_compiler() {
  if (const char* named = std::getenv("CXX"); named != nullptr && *named != '\0') {
    return named_compiler(named);
  }
  for (const char* name : {"c++", "g++", "clang++"}) {
    if (const std::string program = find_program(name); !program.empty()) return {program};
  }
  throw Unavailable(
      "kernels for CPUs need a C++ compiler, and there is no c++, g++ or clang++ on PATH. Install "
      "one (apt install g++, dnf install gcc-c++, conda install cxx-compiler), or name one in the "
      "environment variable CXX.");
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

// ---- Knowing it ---------------------------------------------------------------------------------

struct HostCompiler {
  Words command;
  std::string target;    // the option for this CPU; empty where the compiler has none
  std::string identity;  // of the compiler and of this CPU as it sees it
};

Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

[[noreturn]] void refuse(const Words& command, const ProcessResult& result) {
  throw Unavailable("the C++ compiler " + command[0] + " does not work (" + result.failure +
                    "): " + result.output);
}

// Whatever order the lines are in: that of g++'s macros depends on the names of files.
std::uint64_t hash_of_lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  std::uint64_t hash = fnv1a("");
  for (const std::string& line : lines) hash = fnv1a("\n", fnv1a(line, hash));
  return hash;
}

// Which instructions the compiler would use here, and which C library it compiles for, as its
// macros say it: the name "native" does not tell one CPU from another, and a home directory, and so
// the cache, may be shared by several.
HostCompiler examine(const Words& command) {
  HostCompiler compiler{command, "-march=native", {}};
  const ProcessResult version = run_process(command + Words{"--version"});
  if (!version.failure.empty()) refuse(command, version);
  const TemporaryDirectory directory;
  const std::string macros = directory.path() + "/macros";
  const Words probe{"-std=c++17",
                    "-nostdinc++",
                    "-dM",
                    "-E",
                    "-o",
                    macros,
                    directory.write("probe.cc", "#include <math.h>\n")};
  ProcessResult result = run_process(command + (Words{compiler.target} + probe));
  if (!result.failure.empty()) {
    compiler.target = "";
    result = run_process(command + probe);
  }
  if (!result.failure.empty()) refuse(command, result);
  std::error_code error;
  const fs::path real = fs::canonical(command[0], error);
  compiler.identity = (error ? command[0] : real.string()) + "\n" +
                      version.output.substr(0, version.output.find('\n')) + "\nmacros " +
                      std::to_string(hash_of_lines(read_file(macros)));
  return compiler;
}

// When a program was written and how large it is: another one may be put in its place.
std::string stamp(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return {};
  return std::to_string(status.st_mtime) + " " + std::to_string(status.st_size);
}

const HostCompiler& host_compiler() {
  static std::mutex mutex;
  static std::map<Words, const HostCompiler> known;
  const Words command = find_compiler();
  const Words key = command + Words{stamp(command[0])};
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  return known.emplace(key, examine(command)).first->second;
}

// ---- Using it -----------------------------------------------------------------------------------

// Not -O3: it writes out the loop over the elements of a pack, and then takes 12 times as long for
// 16 functions of float8. Without contraction: whole and partial packs may become other
// instructions, and the same value must give the same bits in both.
Words options_of(const HostCompiler& compiler, const CompileRequest& request) {
  Words options{"-std=c++17",
                "-O2",
                "-ftree-vectorize",
                "-fPIC",
                "-shared",
                "-w",
                "-nostdinc++",
                "-fno-rtti",
                "-fno-exceptions",
                "-fno-math-errno",
                "-fvisibility=hidden",
                "-Wl,--as-needed",
                "-ffp-contract=off"};
  if (!compiler.target.empty()) options.push_back(compiler.target);
  for (const std::string& option : request.options) {
    if (option == "--use_fast_math") {
      // What NVRTC does for it, as far as a CPU has it: nothing is reassociated. Not -ffast-math,
      // with which a library, once loaded, would change the arithmetic of the whole thread.
      options = options + Words{"-ffp-contract=fast", "-freciprocal-math", "-fno-trapping-math"};
    } else if (option != "--device-as-default-execution-space") {  // a host has no other
      options.push_back(option);
    }
  }
  return options;
}

std::string without(std::string text, const std::string& part) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at)) {
    text.erase(at, part.size());
  }
  return text;
}

}  // namespace

std::string host_compiler_identity(const CompileRequest& request) {
  const HostCompiler& compiler = host_compiler();
  std::string result = compiler.identity + "\noptions";
  for (const std::string& word : compiler.command) result += " " + word;
  for (const std::string& option : options_of(compiler, request)) result += " " + option;
  return result;
}

CompiledImage host_compile(const CompileRequest& request) {
  if (request.name.find('/') != std::string::npos) {  // it comes with programs, and names a file
    throw Error(Fault::kInvalidArgument, "no name of a kernel: " + request.name);
  }
  const HostCompiler& compiler = host_compiler();
  const TemporaryDirectory directory;
  for (const Header& header : headers()) directory.write(header.name, header.text);
  const std::string text = directory.write(
      request.name + ".cc", request.source + "\nJEW_HOST_ENTRY(" + request.name + ")\n");
  const std::string library = directory.path() + "/kernel.so";
  const ProcessResult result = run_process(
      compiler.command + options_of(compiler, request) +
      Words{"-I" + directory.path(), "-include", "jax_elementwise/host.h", "-o", library, text});
  std::string bytes = read_file(library);
  if (result.failure.empty() && !bytes.empty()) return {std::move(bytes), false};
  if (!result.started) refuse(compiler.command, result);
  throw CompileError(without(result.output, directory.path() + "/") + compiler.command[0] + ": " +
                     (result.failure.empty() ? "no output" : result.failure));
}

}  // namespace jax_elementwise::runtime
