// A libnvrtc that compiles nothing. Its version, its architectures and its failures are what the
// environment says, and what it gives for machine code is the options, filled up with dots to
// FAKE_NVRTC_SIZE. Its log is FAKE_NVRTC_LOG. FAKE_NVRTC_HOOK is a shell command that runs amid a
// compilation: the runtime has looked on the disk and not written yet.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kInternalError = 11;

std::string setting(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

std::vector<int> archs() {
  std::istringstream words(setting("FAKE_NVRTC_ARCHS", "90"));
  std::vector<int> result;
  for (int arch; words >> arch;) result.push_back(arch);
  return result;
}

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  const std::string version = setting("FAKE_NVRTC_VERSION", "13.0");
  return std::sscanf(version.c_str(), "%d.%d", major, minor) == 2 ? 0 : kInternalError;
}

const char* nvrtcGetErrorString(int) { return "a failure that a test asked for"; }

int nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(archs().size());
  return 0;
}

int nvrtcGetSupportedArchs(int* result) {
  for (const int arch : archs()) *result++ = arch;
  return 0;
}

int nvrtcCreateProgram(std::string** program, const char*, const char*, int, const char* const*,
                       const char* const*) {
  *program = new std::string;
  return 0;
}

int nvrtcDestroyProgram(std::string** program) {
  delete *program;
  return 0;
}

int nvrtcCompileProgram(std::string* program, int count, const char* const* options) {
  for (int i = 0; i < count; ++i) *program += std::string(options[i]) + " ";
  const size_t size = std::stoul(setting("FAKE_NVRTC_SIZE", "0"));
  if (program->size() < size) program->resize(size, '.');
  const std::string hook = setting("FAKE_NVRTC_HOOK", "");
  if (!hook.empty() && std::system(hook.c_str()) != 0) return kInternalError;
  return std::stoi(setting("FAKE_NVRTC_RESULT", "0"));
}

int nvrtcGetProgramLogSize(std::string*, size_t* size) {
  *size = setting("FAKE_NVRTC_LOG", "the log").size() + 1;
  return 0;
}

int nvrtcGetProgramLog(std::string*, char* text) {
  std::strcpy(text, setting("FAKE_NVRTC_LOG", "the log").c_str());
  return 0;
}

int nvrtcGetCUBINSize(std::string* program, size_t* size) {
  *size = program->size();
  return 0;
}

int nvrtcGetCUBIN(std::string* program, char* code) {
  program->copy(code, program->size());
  return 0;
}

int nvrtcGetPTXSize(std::string* program, size_t* size) { return nvrtcGetCUBINSize(program, size); }

int nvrtcGetPTX(std::string* program, char* code) { return nvrtcGetCUBIN(program, code); }

}  // extern "C"
