// The files that `auxtrail decode` reads: the trace, mapped, and the code as a CodeMap.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "base/unique_fd.h"
#include "cli/decode_arguments.h"
#include "image/code_map.h"

namespace auxtrail::cli {

class TraceFile {
 public:
  static Result<TraceFile> open(const FileRange& range);
  // Lives as long as the object.
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  Mapping mapping_;
  std::span<const std::byte> bytes_;
};

// Checks that every file is there and as long as asked for.
Result<image::CodeMap> open_code(const DecodeArguments& arguments);

}  // namespace auxtrail::cli
