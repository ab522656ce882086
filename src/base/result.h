// Result<T>: a value or an Error that a user can act on.
//
// Every failure caused by the outside world (files, kernels, command lines, traced programs)
// travels as an Error: what failed, where, why, and how to mend it. Assertions are for our own
// mistakes only. Data that is merely odd or lossy is no error; it is counted (see losses in the
// layer at hand) and the work goes on.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace auxtrail {

struct Error {
  std::string what;   // the operation that failed: "read perf.data header"
  std::string where;  // file, offset, pid, option; may be empty
  std::string why;    // the cause: "file ends after 96 of 104 bytes"
  std::string fix;    // what the user can do; may be empty
  int sys_errno = 0;  // the errno behind it, 0 if none

  // One line for a person: "what (where): why; fix".
  [[nodiscard]] std::string message() const {
    std::string text = what;
    if (!where.empty()) text += " (" + where + ")";
    if (!why.empty()) text += ": " + why;
    if (!fix.empty()) text += "; " + fix;
    return text;
  }
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

[[nodiscard]] inline tl::unexpected<Error> fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

// An Error for a system call that just failed; `saved_errno` is the errno it left.
[[nodiscard]] inline tl::unexpected<Error> fail_errno(std::string what, std::string where,
                                                      int saved_errno, std::string fix = "") {
  return fail(
      {std::move(what), std::move(where), std::strerror(saved_errno), std::move(fix), saved_errno});
}

}  // namespace auxtrail

// Early return: AUXTRAIL_TRY(status_expression); AUXTRAIL_ASSIGN(auto x, result_expression);
#define AUXTRAIL_TRY(expr)                                                                \
  do {                                                                                    \
    auto auxtrail_try_result = (expr);                                                    \
    if (!auxtrail_try_result)                                                             \
      return ::tl::unexpected<::auxtrail::Error>(std::move(auxtrail_try_result).error()); \
  } while (0)
#define AUXTRAIL_CONCAT_(a, b) a##b
#define AUXTRAIL_CONCAT(a, b) AUXTRAIL_CONCAT_(a, b)
#define AUXTRAIL_ASSIGN_(tmp, lhs, expr)                                        \
  auto tmp = (expr);                                                            \
  if (!tmp) return ::tl::unexpected<::auxtrail::Error>(std::move(tmp).error()); \
  lhs = std::move(*tmp)
#define AUXTRAIL_ASSIGN(lhs, expr) \
  AUXTRAIL_ASSIGN_(AUXTRAIL_CONCAT(auxtrail_assign_, __LINE__), lhs, expr)
