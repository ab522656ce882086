// FlowDecoder: from events and code to the flow: blocks of instructions, and between them the
// events at the very places where they happened.
//
// The complete decoder: everything that Intel PT can say, decided as libipt's block decoder decides
// it (blocks end at every branch). It is the reference for the fast walk over the decoded-block
// graph (decode/graph_walk.h), which takes over from it where only TNT and TIP packets follow, and
// hands back what it does not know.
//
//   FlowDecoder flow(config, trace, code);
//   FlowItem item;
//   for (auto kind = flow.next(item); kind != FlowItemKind::kEnd; kind = flow.next(item)) ...
//
// It differs from libipt on purpose in this: endless loops are errors; an error tells the address
// where the flow stands, also before the first block; an event that cannot be is dropped after its
// error.
//
// Bad packets and missing code come as kError items; decoding then goes on by itself: at the next
// event that tells an address, or at the next PSB. Every call ends, whatever the bytes.
// Thread safety: none. `code` may be shared between decoders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "flow/code_memory.h"
#include "flow/event.h"
#include "flow/event_decoder.h"
#include "flow/instruction.h"
#include "flow/return_stack.h"
#include "flow/status.h"
#include "pt/trace_config.h"

namespace auxtrail::flow {

enum class FlowItemKind : uint8_t { kBlock, kEvent, kError, kEnd };

// Instructions executed one after the other. The last one may be a branch; where it led is the next
// block's first_ip, or told by the event that follows. A block ends at every branch, at its
// section's end, and where an event binds.
struct FlowBlock {
  uint64_t first_ip = 0;
  uint64_t last_ip = 0;  // of the last instruction, not behind it
  uint32_t instructions = 0;
  ExecMode mode = ExecMode::kUnknown;
  bool speculative = false;  // in a transaction
  Instruction last{};        // the instruction at last_ip
  bool was_led = false;      // a packet told where it led: to FlowDecoder::ip()
};

// What failed.
enum class FlowStage : uint8_t {
  kSync,    // beginning at a PSB
  kFlow,    // following packets and code
  kResync,  // looking for an event to go on at, after an error of the flow
};

struct FlowItem {
  FlowBlock block;  // kBlock
  // kEvent: kDisabled, kEnabled ... with ip filled as far as it is known; never kTnt or kTip.
  Event event;
  bool resumed = false;        // kEnabled: tracing goes on where it stopped
  Status error = Status::kOk;  // kError
  FlowStage stage = FlowStage::kFlow;
  uint64_t offset = 0;     // kError, kEvent: in the trace
  uint64_t ip = 0;         // kError: where the flow was; 0: unknown
  bool lost_sync = false;  // kError: the trace is skipped up to the next PSB
};

class FlowDecoder {
 public:
  // Borrows `trace` and `code`.
  FlowDecoder(const pt::TraceConfig& config, std::span<const std::byte> trace,
              const CodeMemory& code);

  FlowItemKind next(FlowItem& item);

  // The next item is the first one from the PSB at `offset` on, as if the trace began there (it
  // need not be ahead).
  void begin_at(size_t offset);

  // From now on the flow runs over other code; also to be called when `code` was added to.
  void set_code(const CodeMemory& code);
  // After a kError item of kNoMap or kBadInstruction, when set_code() brought what was missing: go
  // on at that very place instead of skipping trace.
  void retry();
  // Whether the flow goes on at the next event that tells an address after an error (the default),
  // or at the next PSB only.
  void set_resync(bool on) { resyncs_ = on; }

  // The newest time of the flow so far; false without a TSC packet.
  bool time(uint64_t& tsc) const;
  // The time of the packet that decided what the flow did last; of a TNT packet from its first bit
  // on, where time() waits for the last one.
  [[nodiscard]] const pt::Moment& moment() const { return moment_; }
  // For whoever moved() the flow: the packet that he used last may be older than the clock.
  void set_moment(const pt::Moment& moment) { moment_ = moment; }
  [[nodiscard]] size_t offset() const { return events_.offset(); }
  // Whether tracing is on where the flow is. At kEnd: the trace ends in the middle of things.
  [[nodiscard]] bool tracing() const { return enabled_; }

  // For the fast walk. ready(): tracing is on, the flow stands at ip() before an instruction that
  // was not delivered yet, and no event was read ahead. Then somebody else may follow the flow, and
  // tells with moved() where he left it; the return stack is shared.
  [[nodiscard]] bool ready() const;
  [[nodiscard]] uint64_t ip() const { return ip_; }
  [[nodiscard]] ExecMode mode() const {
    return mode_ != ExecMode::kUnknown ? mode_ : assumed_mode_;
  }
  [[nodiscard]] bool speculative() const { return speculative_; }
  ReturnStack& return_stack() { return returns_; }
  EventDecoder& events() { return events_; }
  // Somebody else followed the flow to `ip`, right behind a branch that a packet decided, and told
  // events() how far he read. Of the last TNT packet he left `tnt_bits` bits, the oldest first. He
  // must not do so within a transaction if errata.bdm64 is set.
  void moved(uint64_t ip, uint64_t tnt, unsigned tnt_bits);

 private:
  enum class Phase : uint8_t {
    kSync,      // not on the trace yet, or any more
    kTrailing,  // between two blocks: look for events right here
    kDeliver,   // event_ is to be delivered, the flow has come to it
    kProceed,   // build a block
    kFail,      // failure_ is to be delivered
    kResync,    // look for an event that tells an address
    kEnd,
  };
  // How far the flow came towards something.
  enum class Step : uint8_t {
    kReached,
    kBlockEnd,  // the block had to end before
    kFailed,    // failure_; kBadQuery: a packet is needed to go on
  };
  enum class Bit : uint8_t { kNone, kNotTaken, kTaken };
  // Kinds of events that bind to the instruction that stands postponed, one of each at most.
  enum Bound : uint8_t {
    kBoundPaging = 1,
    kBoundVmcs = 2,
    kBoundPtwrite = 4,
    kBoundIret = 8,
    kBoundVmentry = 16,
    kBoundUiret = 32,
  };
  struct BindingInstruction {
    Bound bound;
    bool (*matches)(const Instruction&);
    bool may_tell_ip;
  };
  using Predicate = bool (*)(const Instruction&);

  Step fail(Status status) {
    failure_ = status;
    return Step::kFailed;
  }

  // flow_decoder.cc: synchronising, and what follows what.
  FlowItemKind synchronize(FlowItem& item, bool& done);
  Status start();
  void reset();
  void look_for_trailing();
  FlowItemKind deliver(FlowItem& item);
  bool build_block(FlowItem& item);
  FlowItemKind report(FlowItem& item);
  void fill_error(FlowItem& item, Status status, FlowStage stage) const;
  void fail_in(Step step);
  void fetch();
  void consume();
  void set_anchor(const Event& event);

  // flow_proceed.cc: through the code.
  Status instruction_at(uint64_t ip, ExecMode mode, Instruction& insn, const CodeSection*& section,
                        bool& crosses) const;
  Step take_instruction();
  Step pass_instruction();
  Step proceed_to(Predicate matches);
  Step proceed_to_ip(uint64_t ip);
  Step proceed_freely();
  Step proceed_with_trace(const Instruction& insn, uint64_t ip);
  Step proceed_indirect();
  Bit take_bit();
  void postpone();
  void clear_postponed();
  Step leave_postponed();

  // flow_binding.cc: where an event happened.
  static const BindingInstruction* binding_instruction(EventKind kind);
  Step proceed_to_event();
  Step proceed_to_disabled();
  Step proceed_to_disabled_by_filter();
  Step proceed_to_binding(const BindingInstruction& binding);
  Step proceed_to_trigger();
  Step trailing_event();
  Step trailing_disabled();
  Step trailing_binding(const BindingInstruction& binding);
  Step trailing_at_ip();
  Step trailing_trigger();
  Step nothing_trails();
  Step anchor_trigger();
  void set_resume_ip(const Instruction& insn, uint64_t ip);
  [[nodiscard]] bool wants_tick() const;

  // flow_events.cc: what an event changes.
  Status apply_event(FlowItem& item);
  Status apply_context(const Event& event);

  // flow_errata.cc
  bool turn_disable_synchronous();
  void repair_abort();
  [[nodiscard]] bool leads_to(uint64_t from, uint64_t to, int steps) const;

  // flow_resync.cc
  void begin_resync();
  bool resync(FlowItem& item);
  bool resync_at_event();
  void resync_at(uint64_t ip);

  pt::TraceConfig config_;
  EventDecoder events_;
  const CodeMemory* code_;

  Phase phase_ = Phase::kSync;
  bool resyncs_ = true;
  bool resyncing_ = false;         // nobody knows where the flow is
  bool was_enabled_ = false;       // before that
  bool resynced_at_held_ = false;  // the event that is held was the last resync's
  Status failure_ = Status::kOk;
  size_t sync_error_offset_ = 0;
  std::optional<size_t> begin_at_;
  uint64_t blocks_without_event_ = 0;

  // The event that decides how far the flow goes; read only when that is asked.
  bool has_event_ = false;
  Status status_ = Status::kNoSync;  // of reading it
  Event event_;

  // Where the flow is.
  uint64_t ip_ = 0;
  ExecMode mode_ = ExecMode::kUnknown;  // what packets told
  ExecMode assumed_mode_;               // as long as they told none
  bool enabled_ = false;
  bool speculative_ = false;
  ReturnStack returns_;

  // The block that is built, or was built last.
  FlowBlock block_;
  const CodeSection* section_ = nullptr;
  bool block_is_full_ = false;
  bool behind_block_ = false;  // kTrailing: right behind block_

  // An instruction to which events bound: the flow has not left it yet, more of them may follow.
  bool postponed_ = false;
  uint8_t bound_ = 0;
  Instruction postponed_insn_;
  uint64_t postponed_ip_ = 0;

  // Of the last event used up.
  bool has_tsc_ = false;
  uint64_t tsc_ = 0;
  pt::Moment moment_;
  // Instructions since the last place that a TRIG packet may count from.
  bool has_count_ = false;
  uint32_t count_ = 0;
};

}  // namespace auxtrail::flow
