// FlowDecoder: from events and code to the flow: blocks of instructions, and between them the events
// at the very places where they happened.
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
// Bad packets and missing code come as kError items; decoding then goes on by itself: at the next
// event that tells an address, or at the next PSB. Every call ends, whatever the bytes.
// Thread safety: none. `code` may be shared between decoders.
#pragma once

#include <cstddef>
#include <cstdint>
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
// block's first_ip, or told by the event that follows.
struct FlowBlock {
  uint64_t first_ip = 0;
  uint64_t last_ip = 0;  // of the last instruction, not behind it
  uint32_t instructions = 0;
  ExecMode mode = ExecMode::kUnknown;
  bool speculative = false;  // in a transaction
  Instruction last{};        // the instruction at last_ip
};

struct FlowItem {
  FlowBlock block;  // kBlock
  // kEvent: kDisabled, kEnabled ... with ip filled as far as it is known; never kTnt or kTip.
  Event event;
  bool resumed = false;  // kEnabled: tracing goes on where it stopped
  Status error = Status::kOk;  // kError
  uint64_t offset = 0;         // kError, kEvent: of the packet
  uint64_t ip = 0;             // kError: where the flow was; 0: unknown
  bool lost_sync = false;      // kError: the trace is skipped up to the next PSB
};

class FlowDecoder {
 public:
  // Borrows `trace` and `code`.
  FlowDecoder(const pt::TraceConfig& config, std::span<const std::byte> trace,
              const CodeMemory& code);

  FlowItemKind next(FlowItem& item);

  // From now on the flow runs over other code.
  void set_code(const CodeMemory& code);

  // The newest time of the trace so far; false without a TSC packet.
  bool time(uint64_t& tsc) const;
  [[nodiscard]] size_t offset() const;

  // For the fast walk. ready(): tracing is on, the flow stands at ip() before an instruction that was
  // not delivered yet, and no event was read ahead. Then somebody else may follow the flow, and
  // tells with moved() where he left it; the return stack is shared.
  [[nodiscard]] bool ready() const;
  [[nodiscard]] uint64_t ip() const;
  [[nodiscard]] ExecMode mode() const;
  ReturnStack& return_stack();
  EventDecoder& events();
  void moved(uint64_t ip);
};

}  // namespace auxtrail::flow
