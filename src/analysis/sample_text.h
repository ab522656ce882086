// SampleText: samples and their branches, and the branches of full trace, as text in the form of
// `perf script` (6.1).
#pragma once

#include <fmt/format.h>

#include <cstdint>

#include "analysis/full_trace.h"
#include "analysis/sample_walk.h"
#include "analysis/script_fields.h"

namespace auxtrail::analysis {

// Not thread-safe. `recording` must outlive it.
class SampleText {
 public:
  // `max_branches` of each sample are printed, the newest ones; 0: all of them.
  SampleText(Recording& recording, ScriptFields fields, size_t max_branches);

  // Appends the sample's line, and with brlist one line per branch and an empty one.
  void append(const WalkedSample& walked, fmt::memory_buffer& out);
  // Appends the line of a branch of full trace, as `perf script --itrace=b` has it.
  void append(const TracePosition& position, const decode::Branch& branch, fmt::memory_buffer& out);

 private:
  struct Head {
    uint32_t pid;
    uint32_t tid;
    uint32_t cpu;
    uint64_t time_ns;
    uint64_t lookup_time_ns;  // for names
    uint64_t period;
    std::string_view event;
  };
  void append_head(const Head& head, fmt::memory_buffer& out);
  void append_place(const image::Layout& code, uint64_t address, fmt::memory_buffer& out);
  void append_symbol(const image::Location& location, fmt::memory_buffer& out);
  void append_dso(const image::Location& location, fmt::memory_buffer& out);
  void append_branch_stack(const WalkedSample& walked, fmt::memory_buffer& out);
  void append_branch_list(const WalkedSample& walked, fmt::memory_buffer& out);
  void append_end(const image::Layout& code, uint64_t address, std::string_view marker,
                  fmt::memory_buffer& out);
  [[nodiscard]] std::span<const decode::Branch> newest(const WalkedSample& walked) const;

  Recording& recording_;
  ScriptFields fields_;
  size_t max_branches_;
  size_t event_width_ = 0;
};

}  // namespace auxtrail::analysis
