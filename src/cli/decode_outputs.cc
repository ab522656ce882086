#include "cli/decode_outputs.h"

#include <bit>
#include <new>

#include "pt/packet_reader.h"
#include "pt/text_cursor.h"

namespace auxtrail::cli {
namespace {

using decode::Branch;
using decode::BranchKind;

constexpr size_t kKinds = static_cast<size_t>(BranchKind::kCount);
// Two addresses of 16 digits, the longest kind, blanks and the line's end.
constexpr size_t kMaxLineBytes = 64;

std::array<std::string_view, kKinds> kind_names() {
  std::array<std::string_view, kKinds> names;
  for (size_t kind = 0; kind < kKinds; ++kind) names[kind] = name(static_cast<BranchKind>(kind));
  return names;
}

}  // namespace

void BranchPrinter::on_branches(std::span<const Branch> branches) {
  static const auto names = kind_names();
  for (const Branch& branch : branches) {
    if (text_.size() - used_ < kMaxLineBytes) flush();
    char* const begin = text_.data() + used_;
    pt::TextCursor line(begin);
    line.hex_digits(branch.from, 1).put(' ').hex_digits(branch.to, 1).put(' ');
    line.put(names[static_cast<size_t>(branch.kind)]).put('\n');
    used_ += static_cast<size_t>(line.end() - begin);
  }
}

void BranchPrinter::flush() {
  out_.write({text_.data(), used_});
  used_ = 0;
  if (!out_.flush()) throw Closed();
}

BranchTotals::BranchTotals() {
  static_assert(std::endian::native == std::endian::little);
  if (!state_) throw std::bad_alloc();
  XXH64_reset(state_.get(), 0);
}

void BranchTotals::on_branches(std::span<const Branch> branches) {
  for (const Branch& branch : branches) {
    ++counts_[static_cast<size_t>(branch.kind)];
    entries_[used_] = {branch.from, branch.to, static_cast<uint64_t>(branch.kind)};
    if (++used_ == kEntries) hash_entries();
  }
}

void BranchTotals::hash_entries() {
  XXH64_update(state_.get(), entries_.data(), used_ * sizeof(Entry));
  used_ = 0;
}

uint64_t BranchTotals::hash() {
  hash_entries();
  return XXH64_digest(state_.get());
}

PacketTotals count_packets(std::span<const std::byte> trace, const pt::Errata& errata) {
  PacketTotals totals;
  pt::PacketReader reader(trace, errata, pt::Padding::kSkip);
  pt::Packet packet;
  while (reader.sync_forward()) {
    pt::ReadStatus status = pt::ReadStatus::kPacket;
    while ((status = reader.next(packet)) == pt::ReadStatus::kPacket) {
      totals.tnt_bits += packet.tnt_bits;
      totals.tips += packet.kind == pt::PacketKind::kTip ? 1 : 0;
    }
    if (status == pt::ReadStatus::kEnd) break;
    // The reader stands at the bytes that are no packet.
    reader.seek(reader.offset() + 1);
  }
  return totals;
}

}  // namespace auxtrail::cli
