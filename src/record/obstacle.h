// Obstacle: what keeps the software trace unit out of a program file.
//
// The unit is a preloaded library, so it reaches 64-bit x86 programs that start through glibc's
// dynamic loader, with rights for which the loader heeds LD_PRELOAD.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace auxtrail::record {

struct Obstacle {
  std::string brief;  // a word or two: "static"
  std::string why;    // a sentence
  std::string fix;    // what to do instead; may be empty
};

// Looks at the file's headers and rights. Error: it cannot be read, or is damaged.
Result<std::optional<Obstacle>> find_obstacle(const std::string& program);

}  // namespace auxtrail::record
