// One event as text, in ptxed's words.
#include <fmt/format.h>

#include "flow/flow_text.h"

namespace auxtrail::flow {
namespace {

std::string_view mode_text(ExecMode mode) {
  switch (mode) {
    case ExecMode::k16:
      return "16-bit";
    case ExecMode::k32:
      return "32-bit";
    case ExecMode::k64:
      return "64-bit";
    case ExecMode::kUnknown:
      break;
  }
  return "<unknown>";
}

std::string tsx_text(const Event& event) {
  if (event.flag2) return "aborted";
  return event.flag ? "begin transaction" : "committed";
}

// C-states as the packets have them: one less than their names.
unsigned c_state(uint16_t value) { return (value + 1u) & 0xf; }

std::string pwrx_text(const Event& event) {
  return fmt::format("pwrx {}{}{}c{} (c{})", event.flag ? "int: " : "", event.flag2 ? "st: " : "",
                     event.flag3 ? "hw: " : "", c_state(event.small), c_state(event.small2));
}

std::string vmexit_text(const Event& event) {
  std::string text = "vmexit";
  if (event.flag) text += fmt::format(", intr: {}", event.small);
  if (event.flag2) text += fmt::format(", vmxr: {:016x}", event.payload);
  if (event.flag3) text += fmt::format(", vmxq: {:016x}", event.payload2);
  return text;
}

std::string interrupt_text(const Event& event) {
  std::string text = fmt::format("interrupt {}", event.small);
  if (event.flag) text += fmt::format(", cr2: {:016x}", event.payload);
  return text;
}

// What the event is, without where.
std::string what(const Event& event, bool resumed) {
  switch (event.kind) {
    case EventKind::kEnabled:
      return resumed ? "resumed" : "enabled";
    case EventKind::kDisabled:
    case EventKind::kAsyncDisabled:
      return "disabled";
    case EventKind::kAsyncBranch:
      return "interrupt";
    case EventKind::kPaging:
    case EventKind::kAsyncPaging:
      return fmt::format("paging, cr3: {:016x}{}", event.payload, event.flag ? ", nr" : "");
    case EventKind::kExecMode:
      return fmt::format("exec mode: {}", mode_text(event.mode));
    case EventKind::kTsx:
      return tsx_text(event);
    case EventKind::kStop:
      return "stopped";
    case EventKind::kVmcs:
    case EventKind::kAsyncVmcs:
      return fmt::format("vmcs, base: {:016x}", event.payload);
    case EventKind::kMwait:
      return fmt::format("mwait {:x} {:x}", event.payload, event.payload2);
    case EventKind::kPwre:
      return fmt::format("pwre c{}.{}{}", c_state(event.small), c_state(event.small2),
                         event.flag ? " hw" : "");
    case EventKind::kPwrx:
      return pwrx_text(event);
    case EventKind::kPtwrite:
      return fmt::format("ptwrite: {:x}", event.payload);
    case EventKind::kCbr:
      return fmt::format("cbr: {:x}", event.small);
    case EventKind::kMnt:
      return fmt::format("mnt: {:x}", event.payload);
    case EventKind::kInterruptFlag:
      return event.flag ? "interrupts enabled" : "interrupts disabled";
    case EventKind::kInterrupt:
      return interrupt_text(event);
    case EventKind::kSipi:
      return fmt::format("sipi: {:x}", event.small);
    case EventKind::kVmexit:
      return vmexit_text(event);
    case EventKind::kUintr:
      return fmt::format("uintr {}", event.small);
    case EventKind::kSwintr:
      return fmt::format("swintr {}", event.small);
    case EventKind::kBlockItem:
      return fmt::format("block {:x} item {:x}: {:x}", event.small, event.small2, event.payload);
    case EventKind::kBlockEnd:
      return fmt::format("block {:x} end", event.small);
    case EventKind::kTrigger:
      return fmt::format("trig {:02x}{}", event.small, event.flag2 ? ", mult" : "");
    default:
      return std::string(name(event.kind));
  }
}

// Kinds that have no address, or whose address is not worth telling.
bool has_no_place(EventKind kind) {
  switch (kind) {
    case EventKind::kPaging:
    case EventKind::kVmcs:
    case EventKind::kStop:
    case EventKind::kPwre:
    case EventKind::kPwrx:
    case EventKind::kCbr:
    case EventKind::kMnt:
    case EventKind::kSipi:
    case EventKind::kBlockItem:
      return true;
    default:
      return false;
  }
}

std::string place(const Event& event) {
  if (event.kind == EventKind::kAsyncBranch) {
    const std::string from = fmt::format(", from: {:016x}", event.at);
    return event.ip_suppressed ? from : from + fmt::format(", to: {:016x}", event.ip);
  }
  std::string text;
  if (event.kind == EventKind::kAsyncDisabled) text = fmt::format(", at: {:016x}", event.at);
  const bool always = event.kind == EventKind::kAsyncPaging || event.kind == EventKind::kAsyncVmcs;
  if (!event.ip_suppressed || always) text += fmt::format(", ip: {:016x}", event.ip);
  return text;
}

}  // namespace

std::string text(const Event& event, bool resumed, const FlowTextOptions& options) {
  std::string line;
  if (options.event_time && event.has_tsc) line = fmt::format("{:016x}  ", event.tsc);
  line += what(event, resumed);
  if (options.event_ip && !has_no_place(event.kind)) line += place(event);
  if (event.kind == EventKind::kTrigger && event.payload != 0) {
    line += fmt::format(", icnt: {}", event.payload);
  }
  return line;
}

}  // namespace auxtrail::flow
