// The packets of a trace, one line each.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "analysis/record_text.h"
#include "pt/packet_reader.h"

namespace auxtrail::analysis {
namespace {

constexpr size_t kShownBytes = 16;  // a PSB's

void put_line(fmt::memory_buffer& out, size_t offset, std::span<const std::byte> bytes,
              std::string_view text) {
  fmt::format_to(std::back_inserter(out), ".  {:08x}: ", offset);
  for (size_t i = 0; i < kShownBytes; ++i) {
    if (i < bytes.size()) {
      fmt::format_to(std::back_inserter(out), "{:02x} ", static_cast<unsigned>(bytes[i]));
    } else {
      fmt::format_to(std::back_inserter(out), "   ");
    }
  }
  fmt::format_to(std::back_inserter(out), " {}\n", text);
}

// How many PAD bytes there are from `offset` on.
size_t padding_at(std::span<const std::byte> trace, size_t offset) {
  const auto rest = trace.subspan(offset);
  const auto end =
      std::find_if(rest.begin(), rest.end(), [](std::byte byte) { return byte != std::byte{0}; });
  return static_cast<size_t>(end - rest.begin());
}

}  // namespace

void append_packet_text(std::span<const std::byte> trace, fmt::memory_buffer& out) {
  pt::PacketReader reader(trace);
  while (reader.offset() < trace.size()) {
    const size_t start = reader.offset();
    pt::Packet packet;
    const pt::ReadStatus status = reader.next(packet);
    if (status == pt::ReadStatus::kPacket && packet.kind == pt::PacketKind::kPad) {
      const size_t count = std::max<size_t>(padding_at(trace, start), 1);
      for (size_t more = 1; more < count; ++more) (void)reader.next(packet);
      put_line(out, start, trace.subspan(start, count),
               count == 1 ? "PAD" : fmt::format("PAD x {}", count));
    } else if (status == pt::ReadStatus::kPacket) {
      put_line(out, start, trace.subspan(start, reader.offset() - start), pt::text(packet));
    } else {
      if (!reader.sync_forward() || reader.offset() == start) reader.seek(trace.size());
      put_line(out, start, trace.subspan(start, reader.offset() - start),
               fmt::format("{}: {} bytes skipped", pt::name(status), reader.offset() - start));
    }
  }
}

}  // namespace auxtrail::analysis
