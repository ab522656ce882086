#include "cli/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace auxtrail::cli {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(500);
constexpr auto kBetweenDrawings = std::chrono::milliseconds(100);
constexpr size_t kWidth = 40;

}  // namespace

ProgressBar::ProgressBar(std::string what, bool may_show)
    : what_(std::move(what)), may_show_(may_show && ::isatty(STDERR_FILENO) != 0) {}

void ProgressBar::update(double done) {
  if (!may_show_) return;
  const auto now = Clock::now();
  if (now - started_ < kPatience || now - drawn_ < kBetweenDrawings) return;
  drawn_ = now;
  shown_ = true;
  done = std::clamp(done, 0.0, 1.0);
  const auto filled = static_cast<size_t>(done * kWidth);
  fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {:3.0f}%", what_, "", filled, "", kWidth - filled,
             done * 100);
  std::fflush(stderr);
}

void ProgressBar::clear() {
  if (!shown_) return;
  shown_ = false;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

}  // namespace auxtrail::cli
