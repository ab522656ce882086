// Running the auxtrail program and others from tests, with what they print and how they end.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace auxtrail::cli::testing {

struct Ended {
  int wait_status = 0;
  std::string out;
  std::string err;

  [[nodiscard]] int exit_status() const;  // -1 if a signal ended it
  [[nodiscard]] int signal() const;       // 0 if none did
};

struct RunOptions {
  std::map<std::string, std::string> environment;  // on top of ours
  std::string folder;                              // working directory, ours if empty
  std::string input;                               // stdin
  std::function<void(pid_t)> meanwhile;            // called once it runs
  std::function<void()> in_child;                  // called before exec
};

// Runs the program and waits. stdout and stderr go through files, so neither side can block.
Ended run_program(const std::vector<std::string>& command, const RunOptions& options = {});

// For RunOptions::in_child: from here on perf_event_open fails with EACCES, as in a container.
void deny_perf_events();

// A folder that is removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] std::string path(const std::string& name = "") const;

 private:
  std::string path_;
};

std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& text);

}  // namespace auxtrail::cli::testing
