// The packets of a trace, one line each.
#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "analysis/record_text.h"
#include "pt/packet_reader.h"
#include "pt/text_cursor.h"

namespace auxtrail::analysis {
namespace {

using pt::TextCursor;

constexpr size_t kShownBytes = 16;  // a PSB's
constexpr size_t kLettersPerByte = 3;
// The offset with its signs, the bytes, the text and the line's end.
constexpr size_t kMaxLineBytes = 22 + kShownBytes * kLettersPerByte + pt::kMaxTextBytes + 2;

// One line at a time is put together here and then copied: a buffer that grows by the letter costs
// more than the letters.
class PacketLines {
 public:
  PacketLines(std::span<const std::byte> trace, fmt::memory_buffer& out)
      : trace_(trace), out_(out) {}

  // The line of the bytes at [begin, end) up to where its text belongs.
  TextCursor begin(size_t begin, size_t end) {
    TextCursor line(line_.data());
    line.put(".  ").hex_digits(begin, 8).put(": ");
    const size_t shown = std::min(end - begin, kShownBytes);
    for (size_t i = 0; i < shown; ++i) {
      line.hex_digits(std::to_integer<uint8_t>(trace_[begin + i]), 2).put(' ');
    }
    char* const text = line.end();
    const size_t blanks = (kShownBytes - shown) * kLettersPerByte + 1;
    std::memset(text, ' ', blanks);
    return TextCursor(text + blanks);
  }
  void end(TextCursor line) {
    line.put('\n');
    out_.append(line_.data(), line.end());
  }

 private:
  std::span<const std::byte> trace_;
  fmt::memory_buffer& out_;
  std::array<char, kMaxLineBytes> line_;
};

}  // namespace

void append_packet_text(std::span<const std::byte> trace, fmt::memory_buffer& out) {
  pt::PacketReader reader(trace);
  PacketLines lines(trace, out);
  while (reader.offset() < trace.size()) {
    const size_t start = reader.offset();
    pt::Packet packet;
    const pt::ReadStatus status = reader.next(packet);
    if (status == pt::ReadStatus::kPacket && packet.kind == pt::PacketKind::kPad) {
      const size_t count = 1 + reader.skip_padding();
      TextCursor line = lines.begin(start, start + count);
      line.put("PAD");
      if (count > 1) line.put(" x ").decimal(count);
      lines.end(line);
    } else if (status == pt::ReadStatus::kPacket) {
      const TextCursor line = lines.begin(start, reader.offset());
      lines.end(TextCursor(pt::write_text(packet, line.end())));
    } else {
      if (!reader.sync_forward() || reader.offset() == start) reader.seek(trace.size());
      const size_t skipped = reader.offset() - start;
      TextCursor line = lines.begin(start, reader.offset());
      lines.end(line.put(pt::name(status)).put(": ").decimal(skipped).put(" bytes skipped"));
    }
  }
}

}  // namespace auxtrail::analysis
