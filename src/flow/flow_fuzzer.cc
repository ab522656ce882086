// Fuzzes FlowDecoder and everything below it: whatever trace and code, it must end, stay inside its
// bytes, and deliver no more than the bytes can account for.
//
//   byte 0, 1   errata          byte 2   bit 0 resync, bit 1 ticks, bit 2 a filter, bit 3 text,
//   bit 4 a walk takes over     byte 3   so many bytes of code, at 0x1000; the rest is the trace
#include <algorithm>
#include <cstdlib>
#include <span>

#include "flow/flow_text.h"

namespace {

using auxtrail::flow::CodeMemory;
using auxtrail::flow::FlowDecoder;
using auxtrail::flow::FlowItem;
using auxtrail::flow::FlowItemKind;

constexpr size_t kHeaderBytes = 4;
constexpr uint64_t kBase = 0x1000;
// As many blocks may follow one event.
constexpr uint64_t kMaxBlocksPerByte = 200'000;

void require(bool condition) {
  if (!condition) std::abort();
}

auxtrail::pt::TraceConfig config_of(const uint8_t* header) {
  auxtrail::pt::TraceConfig config;
  const unsigned bits = header[0] | header[1] << 8;
  const auto bit = [&](int index) { return (bits >> index & 1) != 0; };
  config.errata = {bit(0), bit(1), bit(2), bit(3), bit(4), bit(5), bit(6), bit(7), bit(8), bit(9)};
  config.mtc_freq = static_cast<uint8_t>(bits >> 12);
  config.cpuid_0x15_eax = 1;
  config.cpuid_0x15_ebx = 4;
  config.nom_freq = 4;
  config.tick_events = (header[2] & 2) != 0;
  if ((header[2] & 4) != 0) {
    config.ranges[0] = {auxtrail::pt::AddressRange::Kind::kFilter, kBase, kBase + 0x10};
  }
  return config;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kHeaderBytes) return 0;
  const size_t code_bytes = std::min<size_t>(data[3], size - kHeaderBytes);
  CodeMemory code;
  // In two sections: instructions may lie across.
  code.add(kBase, std::span(data + kHeaderBytes, code_bytes));
  code.add(kBase + 5, std::span(data + kHeaderBytes, code_bytes).subspan(code_bytes / 2));
  const auto trace = std::as_bytes(std::span(data, size).subspan(kHeaderBytes + code_bytes));

  FlowDecoder flow(config_of(data), trace, code);
  flow.set_resync((data[2] & 1) != 0);
  auxtrail::flow::FlowText text({.event_ip = true, .event_time = true, .status_updates = true},
                                code);
  std::string out;
  FlowItem item;
  uint64_t blocks = 0;
  uint64_t others = 0;
  for (auto kind = flow.next(item); kind != FlowItemKind::kEnd; kind = flow.next(item)) {
    ++(kind == FlowItemKind::kBlock ? blocks : others);
    if (kind == FlowItemKind::kBlock) require(item.block.instructions != 0);
    if (kind == FlowItemKind::kError) require(item.error != auxtrail::flow::Status::kOk);
    if ((data[2] & 8) != 0 && out.size() < 10'000) text.append(kind, item, out);
    if ((data[2] & 16) != 0 && flow.ready()) flow.moved(flow.ip());
    require(others <= 20 * (trace.size() + 1));
    require(blocks <= kMaxBlocksPerByte * (trace.size() + 1));
  }
  require(flow.next(item) == FlowItemKind::kEnd);
  return 0;
}
