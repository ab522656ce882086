// TextOutput: a command's data on its way to stdout, in large pieces, with every failure noticed.
//
// A reader that went away (head, a closed pager) is no failure: the command stops and ends quietly,
// as a filter should.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string_view>

namespace auxtrail::cli {

class TextOutput {
 public:
  explicit TextOutput(int fd);

  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(buffer_), format, std::forward<Args>(args)...);
    if (buffer_.size() >= kFlushBytes) flush();
  }
  void write(std::string_view text);
  // Puts all that was printed out. False after a failure, also of an earlier flush.
  bool flush();

  // Whether it makes sense to go on.
  [[nodiscard]] bool open() const { return failed_errno_ == 0; }
  // Flushes; then 0, or 0 if the reader went away, or 1 after a message on stderr.
  int finish(std::string_view command);

 private:
  static constexpr size_t kFlushBytes = size_t{64} << 10;
  int fd_;
  int failed_errno_ = 0;
  fmt::memory_buffer buffer_;
};

// Whether colours belong on this descriptor: a terminal, and NO_COLOR is not set.
bool wants_colour(int fd);

}  // namespace auxtrail::cli
