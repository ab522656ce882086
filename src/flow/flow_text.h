// Blocks, events and errors of a flow as text, in the form of libipt's ptxed: one line per
// instruction (its address), events in brackets, errors with offset and address.
//
//   0000000000401000
//   ? 0000000000401003                              in a transaction
//   [enabled]  [disabled, ip: 0000000000401010]
//   [1b, 401007: error: no memory mapped at this address]
#pragma once

#include <cstdint>
#include <string>

#include "flow/code_memory.h"
#include "flow/flow_decoder.h"

namespace auxtrail::flow {

struct FlowTextOptions {
  bool blocks = false;          // a line before every block
  bool block_numbers = false;   // which counts them
  bool event_ip = false;        // the addresses of events
  bool event_time = false;      // their time
  bool status_updates = false;  // events that only repeat what is known, at a PSB+
  // Errors are followed by one more line if the packets themselves are at fault, as
  // `ptxed --resync-on-error` has it.
  bool resync_errors = false;
};

// "enabled, ip: 0000000000401000", without brackets. Pure.
std::string text(const Event& event, bool resumed, const FlowTextOptions& options);

class FlowText {
 public:
  // Borrows `code`, which must be the flow's.
  FlowText(const FlowTextOptions& options, const CodeMemory& code)
      : options_(options), code_(&code) {}

  void set_code(const CodeMemory& code) { code_ = &code; }

  // Appends the item's lines to `out`.
  void append(FlowItemKind kind, const FlowItem& item, std::string& out);
  // Appends what is to be said at the end.
  static void append_end(const FlowDecoder& flow, std::string& out);

 private:
  void append_block(const FlowBlock& block, std::string& out) const;
  void append_error(const FlowItem& item, std::string& out) const;

  FlowTextOptions options_;
  const CodeMemory* code_;
  uint64_t blocks_ = 0;
};

}  // namespace auxtrail::flow
