// ProgressBar: one line on stderr while long work goes on; nothing if stderr is no terminal or the
// work is done soon.
#pragma once

#include <chrono>
#include <string>

namespace auxtrail::cli {

class ProgressBar {
 public:
  // `may_show` false: never shows, for commands whose output goes to the same terminal meanwhile.
  ProgressBar(std::string what, bool may_show);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `done` from 0 to 1. Cheap: most calls do nothing.
  void update(double done);
  // Takes the line off the screen.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  bool may_show_;
  bool shown_ = false;
  Clock::time_point started_ = Clock::now();
  Clock::time_point drawn_{};
};

}  // namespace auxtrail::cli
