// The lines of packets against the same written with fmt, byte by byte and packet by packet.
#include <gtest/gtest.h>

#include <string>

#include "analysis/record_text.h"
#include "pt/packet_reader.h"
#include "pt/testing/random_trace.h"

namespace auxtrail::analysis {
namespace {

using pt::testing::RandomTrace;
using pt::testing::Trace;

std::string reference_line(std::span<const std::byte> trace, size_t begin, size_t end,
                           const std::string& text) {
  std::string line = fmt::format(".  {:08x}: ", begin);
  for (size_t i = begin; i < begin + 16; ++i) {
    line += i < end ? fmt::format("{:02x} ", static_cast<unsigned>(trace[i])) : "   ";
  }
  return fmt::format("{} {}\n", line, text);
}

std::string reference(std::span<const std::byte> trace) {
  std::string lines;
  pt::PacketReader reader(trace);
  while (reader.offset() < trace.size()) {
    const size_t start = reader.offset();
    pt::Packet packet;
    const pt::ReadStatus status = reader.next(packet);
    std::string text = pt::text(packet);
    if (status != pt::ReadStatus::kPacket) {
      if (!reader.sync_forward() || reader.offset() == start) reader.seek(trace.size());
      text = fmt::format("{}: {} bytes skipped", pt::name(status), reader.offset() - start);
    } else if (packet.kind == pt::PacketKind::kPad) {
      while (reader.offset() < trace.size() && trace[reader.offset()] == std::byte{0}) {
        (void)reader.next(packet);
      }
      const size_t count = reader.offset() - start;
      if (count > 1) text = fmt::format("PAD x {}", count);
    }
    lines += reference_line(trace, start, reader.offset(), text);
  }
  return lines;
}

TEST(PacketLinesTest, EveryPacketIsALineAsWithFmt) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    RandomTrace random(seed);
    Trace trace = random.make_with_newer(500);
    trace.resize(trace.size() + seed);  // padding, also more than the sixteen bytes that are shown
    const Trace more = random.make(50);
    trace.insert(trace.end(), more.begin(), more.end());
    fmt::memory_buffer out;
    append_packet_text(trace, out);
    ASSERT_EQ(std::string(out.data(), out.size()), reference(trace)) << "seed " << seed;
  }
}

TEST(PacketLinesTest, DamagedTracesAsWell) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    const Trace trace = RandomTrace(seed).make_bytes(500);
    fmt::memory_buffer out;
    append_packet_text(trace, out);
    ASSERT_EQ(std::string(out.data(), out.size()), reference(trace)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace auxtrail::analysis
