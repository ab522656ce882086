// SimulatedWalk: a random path through a SimulatedProgram, the Intel PT trace of it, and the truth.
//
// The truth is what a consumer of a BranchDecoder must be told. It is made from the walk's own
// decisions, not from the packets. What the packets cannot tell is left out of it, or optional:
//
//   - behind an overflow's last packet the flow is unknown; the branch right before the loss was
//     made, but a decoder that waits for the next block to know where it led has lost it;
//   - a trace without an end may be followed a little further than the walk went.
//
// The walk never passes an address twice without a packet in between: an event that names it would
// be ambiguous. Where it were to, an interrupt happens.
#pragma once

#include <cstdint>
#include <vector>

#include "decode/testing/flow_recorder.h"
#include "decode/testing/random.h"
#include "decode/testing/simulated_program.h"
#include "decode/testing/trace_encoder.h"

namespace auxtrail::decode::testing {

struct WalkOptions {
  EncoderOptions encoder;
  size_t steps = 200;
  uint8_t interrupt_percent = 2;
  uint8_t overflow_per_mille = 3;
  bool transactions = true;
  bool user_only = false;  // far branches and interrupts switch tracing off
  bool skl014 = false;     // direct branches out of the filter do not tell where
  bool open_end = false;   // the trace ends with tracing on
  bool start_in_psb = true;
  // Only [filter_start, filter_end] is traced. Both 0: everything.
  uint64_t filter_start = 0;
  uint64_t filter_end = 0;
};

struct SimulatedTrace {
  std::vector<std::byte> bytes;
  std::vector<FlowRecord> truth;
  // Executed while tracing was on; known as long as nothing was lost and the trace has an end.
  uint64_t instructions = 0;
  bool is_complete = true;
  bool open_end = false;
};

class SimulatedWalk {
 public:
  SimulatedWalk(const SimulatedProgram& program, const WalkOptions& options, uint64_t seed);
  SimulatedTrace run();

 private:
  [[nodiscard]] const SimInsn& insn(uint32_t index) const { return program_.insns()[index]; }
  [[nodiscard]] uint64_t ip() const { return insn(at_).ip; }
  [[nodiscard]] bool is_traced(uint32_t index) const;
  [[nodiscard]] uint32_t random_traced();
  [[nodiscard]] bool binds_without_ip() const;
  [[nodiscard]] bool leads_to_passed(const SimInsn& insn) const;

  void start();
  void finish();
  void step();
  void maybe_something_else();
  void execute(const SimInsn& insn);
  void execute_near(const SimInsn& insn, uint32_t to);
  void execute_direct(const SimInsn& insn, uint32_t to);
  void execute_conditional(const SimInsn& insn);
  void execute_far(const SimInsn& insn);
  void execute_plain(const SimInsn& insn);
  void ptwrite(const SimInsn& insn);
  void mwait(const SimInsn& insn);
  void move_to_cr3(const SimInsn& insn);
  void begin_transaction(const SimInsn& insn);
  void fall_through(const SimInsn& insn);
  uint32_t return_target();

  void interrupt();
  void abort_transaction();
  void async_branch(uint32_t to, bool leaves);  // leaves: what is traced at all
  void lose_packets();
  void off(GapKind kind, uint64_t from);
  void while_off();
  void on();
  void psb_plus();

  void branch(const SimInsn& insn, uint64_t to, bool ends);
  void not_taken(const SimInsn& insn);
  void trace_end(uint64_t from);
  void trace_begin();
  void mark() { encoder_.set_mark(trace_.truth.size()); }
  void cut_to_written();

  const SimulatedProgram& program_;
  WalkOptions options_;
  Random random_;
  TraceEncoder encoder_;
  SimulatedTrace trace_;
  uint32_t at_ = 0;  // the instruction that is next
  bool on_ = false;
  bool has_gap_ = false;
  FlowRecord gap_;
  bool in_transaction_ = false;
  uint32_t abort_target_ = 0;
  uint64_t cr3_ = 0x1000;
  uint64_t vmcs_ = 0;
  std::vector<uint32_t> calls_;
  std::vector<uint64_t> passed_;  // addresses since the last packet that leads the flow
};

}  // namespace auxtrail::decode::testing
