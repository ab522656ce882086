// SampleText: samples and their branches, and the branches of full trace, as text in the form of
// `perf script` (6.1).
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>

#include "analysis/full_trace.h"
#include "analysis/sample_walk.h"
#include "analysis/script_fields.h"
#include "history/call_stack.h"

namespace auxtrail::analysis {

// Not thread-safe. `recording` must outlive it.
class SampleText {
 public:
  // `max_branches` of each sample are printed, the newest ones; 0: all of them.
  SampleText(Recording& recording, ScriptFields fields, size_t max_branches);

  // Appends the sample's line, with callstack one line per frame, and with brlist one line per
  // branch; then an empty one.
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
  void append_call_stack(const WalkedSample& walked, fmt::memory_buffer& out);
  void append_branch_list(const WalkedSample& walked, fmt::memory_buffer& out);
  void append_end(const image::Layout& code, uint64_t address, std::string_view marker,
                  fmt::memory_buffer& out);
  [[nodiscard]] std::span<const decode::Branch> newest(const WalkedSample& walked) const;

  // Functions by their symbols.
  class Functions : public history::FunctionFinder {
   public:
    explicit Functions(image::Symbolizer& symbolizer) : symbolizer_(symbolizer) {}
    void set_code(const image::Layout& code) { code_ = &code; }
    uint64_t start_of(uint64_t ip) override;

   private:
    image::Symbolizer& symbolizer_;
    const image::Layout* code_ = nullptr;
  };

  Recording& recording_;
  ScriptFields fields_;
  size_t max_branches_;
  size_t event_width_ = 0;
  std::unique_ptr<Functions> functions_;  // if call stacks are asked for
  std::unique_ptr<history::CallStack> call_stack_;
};

}  // namespace auxtrail::analysis
