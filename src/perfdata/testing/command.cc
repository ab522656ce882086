#include "perfdata/testing/command.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace auxtrail::perfdata::testing {

ScratchDirectory::ScratchDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "auxtrail-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) std::abort();
  path_ = pattern;
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string ScratchDirectory::file(std::string_view name) const {
  return path_ + "/" + std::string(name);
}

CommandOutcome ScratchDirectory::run(const std::string& command) const {
  const std::string script = fmt::format(
      "cd '{0}' && export HOME='{0}' LC_ALL=C && ({1}) >'{0}/.out' 2>'{0}/.err' </dev/null", path_,
      command);
  const int status = std::system(script.c_str());
  CommandOutcome outcome;
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = read_text(file(".out"));
  outcome.err = read_text(file(".err"));
  return outcome;
}

bool have_perf() {
  static const bool found = std::system("perf version >/dev/null 2>&1") == 0;
  return found;
}

std::string test_data(std::string_view relative) {
  const char* given = std::getenv("AUXTRAIL_TEST_DATA");
  return std::string(given != nullptr ? given : AUXTRAIL_TEST_DATA_DIR) + "/" +
         std::string(relative);
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  std::istringstream in{std::string(text)};
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace auxtrail::perfdata::testing
