// NativeFlow: one trace through flow::FlowDecoder and, wherever it can, the fast walk.
//
// The two take turns: the flow decoder delivers items one by one and says where nothing is pending;
// there the walk takes over, and hands back at the first packet that it does not know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include "decode/branch_assembler.h"
#include "decode/branch_decoder.h"
#include "decode/flow_code.h"
#include "decode/program_code.h"
#include "decode/walker.h"
#include "flow/flow_decoder.h"

namespace auxtrail::decode {

// Where a flow finds the code and the walker of a program; for as long as the flow lives.
class FlowPrograms {
 public:
  struct Program {
    const flow::CodeMemory* memory = nullptr;
    Walker* walker = nullptr;  // null: no walks
  };
  virtual ~FlowPrograms() = default;
  virtual Program get(const image::CodeMap& code) = 0;
};

class NativeFlow {
 public:
  // What lies around the trace, if it is a piece of a longer one (psb_border.h).
  struct Piece {
    uint64_t offset = 0;     // in the longer one
    bool continues = false;  // it begins with a PSB+ at which tracing is on
    bool goes_on = false;    // it ends behind such a PSB+
  };

  // All that is passed by reference must outlive the flow.
  NativeFlow(const pt::TraceConfig& config, std::span<const std::byte> trace,
             FlowPrograms& programs, FlowCode& code, FlowConsumer& consumer, const Piece& piece);
  NativeFlow(const pt::TraceConfig& config, std::span<const std::byte> trace,
             FlowPrograms& programs, FlowCode& code, FlowConsumer& consumer)
      : NativeFlow(config, trace, programs, code, consumer, {}) {}

  // One item, or one walk. False at the end of the trace.
  bool step();

  // Goes on with the next piece of the same trace. It begins at a PSB; the piece before ended
  // behind the PSB+ that this one begins with (goes_on); `continues` is not for this.
  void go_on(std::span<const std::byte> trace, const Piece& piece);

  // When the flow was where it is now, in the trace's own time; nothing without TSC packets.
  [[nodiscard]] std::optional<uint64_t> now() const;

  // Whether tracing was on at the end, and if not, the hole that it left.
  [[nodiscard]] bool tracing() const { return assembler_.running(); }
  [[nodiscard]] const std::optional<Gap>& open_gap() const { return assembler_.open_gap(); }

  // The instruction executed last; BranchAssembler::kLastIpBefore if a piece executed none.
  [[nodiscard]] uint64_t last_ip() const { return assembler_.last_ip(); }

  // The counters of all steps so far.
  [[nodiscard]] const DecodeSummary& summary() const { return assembler_.summary(); }

 private:
  bool walk();
  void take_up(uint64_t ip);
  void on_block(const flow::FlowBlock& block);
  void on_event(const flow::FlowItem& item);
  void on_error(const flow::FlowItem& item);
  void tell_missing_psb();
  void show(const image::CodeMap& code);
  void follow_time();
  bool show_later_code(uint64_t ip);

  pt::TraceConfig config_;
  std::span<const std::byte> trace_;
  Piece piece_;
  bool wants_times_ = false;
  FlowPrograms& programs_;
  FlowCode& code_;
  FlowConsumer& consumer_;
  BranchAssembler assembler_;
  FlowPrograms::Program program_;
  std::optional<flow::FlowDecoder> flow_;
  WalkOptions walk_options_;
  flow::ExecMode walked_mode_ = flow::ExecMode::kUnknown;  // of the last walk
  // Where the last walk gave up, not to try again before the flow went on.
  size_t futile_offset_ = std::numeric_limits<size_t>::max();
  uint64_t futile_ip_ = 0;
};

}  // namespace auxtrail::decode
