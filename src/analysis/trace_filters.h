// TraceFilters: the address filters that a file was recorded with, as its AUXTRACE_INFO tells.
//
// With them a sample may lie where nothing is traced: its history then ends earlier, where the
// program left what is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "image/address_space.h"

namespace auxtrail::analysis {

class TraceFilters {
 public:
  TraceFilters() = default;
  // Of the text that the kernel was given; what makes no sense filters nothing.
  explicit TraceFilters(std::string_view text);

  [[nodiscard]] bool empty() const { return filters_.empty(); }
  // Whether the trace is off at `ip`, of a process with these mappings: outside all "filter"
  // regions if there are any, or in one that stops the trace.
  [[nodiscard]] bool exclude(const image::Layout& code, uint64_t ip) const;
  // Whether the trace was stopped for good by the end of these AUX bytes.
  [[nodiscard]] bool stopped(std::span<const std::byte> aux) const;

 private:
  struct Filter {
    bool stops = false;
    uint64_t offset = 0;
    uint64_t size_bytes = 0;
    std::string path;
  };
  std::vector<Filter> filters_;
};

}  // namespace auxtrail::analysis
