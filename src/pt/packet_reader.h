// PacketReader: from bytes to Intel PT packets, one at a time, from any offset.
//
// The layer below decoding: `dump --packets` shows what it yields, nothing here needs the program's
// code. Opcodes and errors agree with libipt's packet decoder (tested against it); a failing packet
// leaves the reader where it is, so the caller decides between skipping a byte and searching the
// next PSB. Hostile bytes are expected: nothing is read outside the span, every call ends.
//
// Speed: next() takes the commonest packets (TNT, TIP and its kin, PAD, CYC, MTC, TSC) here, in the
// caller's loop, as long as sixteen bytes are left; all others go through pt/packet_parser.h. A
// reader is small and cheap to copy: a copy looks ahead.
// Reference: Intel SDM vol. 3, "Intel Processor Trace"; ../shared/docs/pt-decoder-checklist.md
// section 4.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "pt/packet.h"
#include "pt/packet_parser.h"
#include "pt/packet_shape.h"
#include "pt/trace_config.h"

namespace auxtrail::pt {

// What next() does about PAD packets.
enum class Padding : uint8_t { kRead, kSkip };

// How many PAD bytes there are at the front of `bytes`.
size_t count_padding(std::span<const std::byte> bytes);

class PacketReader {
 public:
  // Borrows `trace`, which must outlive the reader. Of the errata, skd007 and skz84 are known to
  // packets; the others are for the layers behind.
  explicit PacketReader(std::span<const std::byte> trace, const Errata& errata = {},
                        Padding padding = Padding::kRead)
      : trace_(trace), padding_(padding) {
    context_.skd007 = errata.skd007;
    context_.skz84 = errata.skz84;
    allow_shortcut();
  }

  // Reads the packet at offset() and moves behind it; without a packet the reader does not move
  // (but over the padding that it was told to skip), and leaves `packet` alone.
  ReadStatus next(Packet& packet);

  // Moves over the PAD packets at offset() and keeps all state; returns their number.
  size_t skip_padding() {
    const size_t count = count_padding(trace_.subspan(offset_));
    offset_ += count;
    return count;
  }

  // Moves to the next PSB at or behind offset() (see pt/psb_search.h); false, and no move, if there
  // is none. Forgets the last IP, as a PSB does.
  bool sync_forward();

  // Moves to the last PSB that begins before offset(), likewise.
  bool sync_backward();

  // Moves to `offset` (at most the trace's size) and forgets all state.
  void seek(size_t offset);

  [[nodiscard]] size_t offset() const { return offset_; }

 private:
  static constexpr size_t kShortcutBytes = 16;

  void allow_shortcut() {
    const bool allowed = context_.block_item_bytes == 0 && trace_.size() >= kShortcutBytes;
    shortcut_end_ = allowed ? trace_.size() - kShortcutBytes + 1 : 0;
  }
  bool take_cyc(uint64_t bytes, Packet& packet);
  ReadStatus next_of_any_kind(Packet& packet);

  std::span<const std::byte> trace_;
  size_t offset_ = 0;
  uint64_t last_ip_ = 0;
  // The shortcut is for offsets below: sixteen bytes are there, and no block is open, in which the
  // bytes of BIP packets look like TNT or others.
  size_t shortcut_end_ = 0;
  ParseContext context_{};
  Padding padding_ = Padding::kRead;
};

// The payload of the first TSC packet of a trace that begins with a packet; nothing if there is
// none before the end or the first bytes that are no packet.
std::optional<uint64_t> first_tsc(std::span<const std::byte> trace);

// Up to three bytes, of which all but the last say that another follows: 5, 7 and 7 bits. Leaves
// longer ones and those that SKD007 may have changed alone.
[[gnu::always_inline]] inline bool PacketReader::take_cyc(uint64_t bytes, Packet& packet) {
  constexpr uint64_t kMore = 0x01'01'04;
  const uint64_t last = ~bytes & kMore;
  if (last == 0) return false;
  const auto size_bytes = static_cast<uint8_t>(1 + std::countr_zero(last) / 8);
  if (context_.skd007 && size_bytes == 2) return false;
  const uint64_t all = (bytes >> 3 & 0x1f) | (bytes >> 9 & 0x7f) << 5 | (bytes >> 17 & 0x7f) << 12;
  packet = Packet{.kind = PacketKind::kCyc,
                  .size_bytes = size_bytes,
                  .offset = offset_,
                  .payload = all & ((uint64_t{1} << (7U * size_bytes - 2)) - 1)};
  offset_ += size_bytes;
  return true;
}

[[gnu::always_inline]] inline ReadStatus PacketReader::next(Packet& packet) {
  while (offset_ < shortcut_end_) {
    const std::byte* at = trace_.data() + offset_;
    const auto opcode = std::to_integer<uint8_t>(*at);
    if (opcode > 2 && (opcode & 1) == 0) {
      const auto bits = static_cast<uint8_t>(std::bit_width(unsigned{opcode}) - 2);
      packet = Packet{.kind = PacketKind::kTnt8,
                      .size_bytes = 1,
                      .tnt_bits = bits,
                      .offset = offset_,
                      .payload = (opcode >> 1) & ((1U << bits) - 1)};
      ++offset_;
      return ReadStatus::kPacket;
    }
    uint64_t bytes;  // without the opcode
    std::memcpy(&bytes, at + 1, sizeof(bytes));
    if (opcode == 0) {
      if (padding_ == Padding::kSkip) {
        offset_ += bytes != 0 ? 1 : count_padding(trace_.subspan(offset_));
        continue;
      }
      packet = Packet{.kind = PacketKind::kPad, .size_bytes = 1, .offset = offset_};
      ++offset_;
      return ReadStatus::kPacket;
    }
    if (const shapes::Shape shape = shapes::kShapes[opcode]; shape.size_bytes != 0) {
      const uint64_t payload = bytes & shapes::kLowBytes[shape.size_bytes - 1U];
      packet = Packet{.kind = shape.kind,
                      .size_bytes = shape.size_bytes,
                      .ipc = shape.ipc,
                      .offset = offset_,
                      .payload = payload};
      if (shape.ipc != IpCompression::kSuppressed) {
        packet.ip = last_ip_ = shapes::decompress(shape.ipc, payload, last_ip_);
      }
      offset_ += shape.size_bytes;
      return ReadStatus::kPacket;
    }
    if ((opcode & 3) == 3) {
      if (take_cyc(bytes << 8 | opcode, packet)) return ReadStatus::kPacket;
    } else if (opcode == 0x02 && (bytes & 0xff) == 0xa3) {
      const uint64_t payload = bytes >> 8 & shapes::kLowBytes[6];
      if (payload > 1) {
        const auto bits = static_cast<uint8_t>(std::bit_width(payload) - 1);
        packet = Packet{.kind = PacketKind::kTnt64,
                        .size_bytes = 8,
                        .tnt_bits = bits,
                        .offset = offset_,
                        .payload = payload ^ (uint64_t{1} << bits)};
        offset_ += 8;
        return ReadStatus::kPacket;
      }
    }
    break;
  }
  // A packet of its own, so that the caller's may live in registers.
  Packet any;
  const ReadStatus status = next_of_any_kind(any);
  if (status == ReadStatus::kPacket) packet = any;
  return status;
}

}  // namespace auxtrail::pt
