#include "cli/text_output.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace auxtrail::cli {

TextOutput::TextOutput(int fd) : fd_(fd) {
  ::signal(SIGPIPE, SIG_IGN);  // a broken pipe shows as EPIPE
}

void TextOutput::write(std::string_view text) {
  buffer_.append(text.data(), text.data() + text.size());
  if (buffer_.size() >= kFlushBytes) flush();
}

bool TextOutput::flush() {
  size_t written = 0;
  while (open() && written < buffer_.size()) {
    const ssize_t count = ::write(fd_, buffer_.data() + written, buffer_.size() - written);
    if (count >= 0) {
      written += static_cast<size_t>(count);
    } else if (errno != EINTR) {
      failed_errno_ = errno;
    }
  }
  buffer_.clear();
  return open();
}

int TextOutput::finish(std::string_view command) {
  if (flush() || failed_errno_ == EPIPE) return 0;
  fmt::print(stderr, "auxtrail {}: write the output: {}\n", command, std::strerror(failed_errno_));
  return 1;
}

bool wants_colour(int fd) {
  const char* no_colour = std::getenv("NO_COLOR");
  return (no_colour == nullptr || *no_colour == '\0') && ::isatty(fd) != 0;
}

}  // namespace auxtrail::cli
