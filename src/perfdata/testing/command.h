// Running Linux perf and other programs from a test, in a scratch directory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace auxtrail::perfdata::testing {

struct CommandOutcome {
  int status = -1;  // exit status, or 128 + signal
  std::string out;
  std::string err;
};

// A directory that is removed at the end of its life.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string file(std::string_view name) const;
  // Runs a shell command in the directory, with HOME there as well, and waits for it.
  [[nodiscard]] CommandOutcome run(const std::string& command) const;

 private:
  std::string path_;
};

bool have_perf();
// The shared test data: $AUXTRAIL_TEST_DATA, or the place the build was told.
std::string test_data(std::string_view relative);
std::vector<std::string> lines_of(std::string_view text);
std::string read_text(const std::string& path);
void write_file(const std::string& path, std::string_view bytes);

}  // namespace auxtrail::perfdata::testing
