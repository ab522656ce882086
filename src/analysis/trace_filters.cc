#include "analysis/trace_filters.h"

#include <algorithm>

#include "event/addr_filter.h"
#include "event/event.h"
#include "image/dso.h"
#include "pt/packet_reader.h"

namespace auxtrail::analysis {

TraceFilters::TraceFilters(std::string_view text) {
  event::Event event;
  event.task = 1;  // files are mapped in a process
  event::AddrFilters parsed;
  if (event::parse_addr_filters(text.data(), text.size(), event, parsed) != 0) return;
  for (uint32_t i = 0; i < parsed.count; ++i) {
    const event::AddrFilter& filter = parsed.filters[i];
    filters_.push_back({filter.action == event::AddrFilterAction::kStop, filter.offset,
                        filter.size_bytes,
                        filter.path != nullptr ? std::string(filter.path, filter.path_bytes) : ""});
  }
}

bool TraceFilters::exclude(const image::Layout& code, uint64_t ip) const {
  const image::Mapping* const mapping = code.find(ip);
  bool outside = false;
  bool inside = false;
  for (const Filter& filter : filters_) {
    const bool here = mapping != nullptr && mapping->dso->path == filter.path &&
                      mapping->offset_of(ip) - filter.offset < filter.size_bytes;
    if (filter.stops && here) return true;
    if (!filter.stops) (here ? inside : outside) = true;
  }
  return outside && !inside;
}

bool TraceFilters::stopped(std::span<const std::byte> aux) const {
  if (std::none_of(filters_.begin(), filters_.end(),
                   [](const Filter& filter) { return filter.stops; })) {
    return false;
  }
  bool stopped = false;
  pt::PacketReader reader(aux);
  if (!reader.sync_forward()) return false;
  for (pt::Packet packet; reader.next(packet) == pt::ReadStatus::kPacket;) {
    if (packet.kind == pt::PacketKind::kStop) stopped = true;
    if (packet.kind == pt::PacketKind::kTipPge) stopped = false;
  }
  return stopped;
}

}  // namespace auxtrail::analysis
