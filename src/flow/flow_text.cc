#include "flow/flow_text.h"

#include <fmt/format.h>

#include "flow/flow_instruction.h"

namespace auxtrail::flow {

void FlowText::append(FlowItemKind kind, const FlowItem& item, std::string& out) {
  switch (kind) {
    case FlowItemKind::kBlock:
      ++blocks_;
      append_block(item.block, out);
      return;
    case FlowItemKind::kEvent:
      if (item.event.status_update && !options_.status_updates) return;
      out += fmt::format("[{}]\n", text(item.event, item.resumed, options_));
      return;
    case FlowItemKind::kError:
      append_error(item, out);
      return;
    case FlowItemKind::kEnd:
      return;
  }
}

void FlowText::append_end(const FlowDecoder& flow, std::string& out) {
  if (flow.tracing()) out += "[end of trace]\n";
}

void FlowText::append_block(const FlowBlock& block, std::string& out) const {
  if (options_.blocks) {
    out += options_.block_numbers ? fmt::format("[block {:x}]\n", blocks_) : "[block]\n";
  }
  uint64_t ip = block.first_ip;
  for (uint32_t left = block.instructions; left > 0; --left) {
    out += fmt::format("{}{:016x}\n", block.speculative ? "? " : "", ip);
    if (left == 1) break;
    uint8_t bytes[15];
    Instruction insn;
    const size_t count = code_->read(ip, bytes, sizeof(bytes));
    if (!decode_instruction(bytes, count, block.mode, insn) || !next_ip(insn, ip, ip)) {
      out += fmt::format("[{:x}: the code is not what was decoded]\n", ip);
      break;
    }
  }
}

void FlowText::append_error(const FlowItem& item, std::string& out) const {
  const auto line = [&](std::string_view what) {
    out += fmt::format("[{:x}, {:x}: {}error: {}]\n", item.offset, item.ip, what, text(item.error));
  };
  switch (item.stage) {
    case FlowStage::kSync:
      line("sync ");
      return;
    case FlowStage::kResync:
      line("resync ");
      return;
    case FlowStage::kFlow:
      line("");
      if (options_.resync_errors && item.lost_sync) line("resync ");
      return;
  }
}

}  // namespace auxtrail::flow
