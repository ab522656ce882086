// Sizes and counts as perf's options spell them: "4096", "4K", "1M", and for -m pages or sizes.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace auxtrail::record {

// A decimal number with an optional unit B, K, M or G (1024-based, either case).
// `option` names the option in the Error.
Result<uint64_t> parse_size(std::string_view text, std::string_view option);

// perf's -m: a bare number counts pages, one with a unit is a size in bytes. Both are rounded up to
// a power of two of pages. Errors: not a number, zero, over kMaxPages.
Result<uint32_t> parse_pages(std::string_view text, std::string_view option);

inline constexpr uint32_t kMaxPages = 16384;  // 64 MiB per thread and kind

}  // namespace auxtrail::record
