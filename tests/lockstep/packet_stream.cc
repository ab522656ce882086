// See packet_stream.h.
#include "packet_stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "pt/packet_reader.h"

namespace auxtrail::lockstep {
namespace {

constexpr uint64_t kAnchorEveryBytes = 1024;
constexpr uint64_t kKeptBytes = 65536;  // before the anchor: more than a sample has
constexpr size_t kKnownStretches = 4096;

template <class T>
bool IsTail(const std::vector<T>& tail, const std::vector<T>& all) {
  return tail.size() <= all.size() && std::equal(tail.rbegin(), tail.rend(), all.rbegin());
}

// Whether `newer` are the last stretches of `known`, of which the first may be cut at its
// beginning. What is older than `known` can't be told. Returns a difference.
template <class Known>
std::string TailDifference(const std::vector<History>& newer, const Known& known) {
  for (size_t i = 0; i < newer.size() && i < known.size(); ++i) {
    const History& one = newer[newer.size() - 1 - i];
    const History& other = known[known.size() - 1 - i];
    const bool may_be_cut = i + 1 == newer.size();
    const bool same = one.final_ip == other.final_ip && IsTail(one.transfers, other.transfers) &&
                      IsTail(one.outcomes, other.outcomes);
    const bool whole = one.first_ip == other.first_ip &&
                       one.transfers.size() == other.transfers.size() &&
                       one.outcomes.size() == other.outcomes.size();
    if (same && (whole || may_be_cut)) continue;
    return fmt::format(
        "stretch {} from the end: {:#x} to {:#x} with {} branches and {} outcomes, executed were "
        "{:#x} to {:#x} with {} and {}",
        i, one.first_ip, one.final_ip, one.transfers.size(), one.outcomes.size(), other.first_ip,
        other.final_ip, other.transfers.size(), other.outcomes.size());
  }
  return {};
}

std::string Error(const std::vector<History>& stretches) {
  return stretches.empty() ? "no stretch" : stretches.back().error;
}

}  // namespace

bool PacketStream::collect() { return channel_.append_aux(bytes_); }

std::span<const std::byte> PacketStream::view(uint64_t from, uint64_t to) const {
  return std::span(bytes_).subspan(from - start_, to - from);
}

std::optional<uint64_t> PacketStream::find(std::span<const std::byte> sample) const {
  // The record's padding; the stream stands behind a TIP.PGD there.
  for (int i = 0; i < 7 && !sample.empty() && sample.back() == std::byte{0}; ++i) {
    sample = sample.first(sample.size() - 1);
  }
  const auto found = std::search(bytes_.rbegin(), bytes_.rend(), sample.rbegin(), sample.rend());
  if (found == bytes_.rend()) return std::nullopt;
  return end() - static_cast<uint64_t>(found - bytes_.rbegin());
}

std::vector<History> PacketStream::decode(const image::CodeMap& code, uint64_t end) {
  behind_mark_.clear();
  problem_.clear();
  if (end == mark_) return {};
  std::vector<History> stretches = decoder_.decode_stretches(code, view(anchor_, end));
  problem_ = Error(stretches);
  if (!problem_.empty()) return {};
  const size_t old = since_anchor_.size();
  if (stretches.size() < old) {
    problem_ = fmt::format("{} stretches, but {} before", stretches.size(), old);
    return {};
  }
  problem_ = TailDifference({stretches.begin(), stretches.begin() + static_cast<ptrdiff_t>(old)},
                            since_anchor_);
  if (!problem_.empty()) return {};
  behind_mark_.assign(stretches.begin() + static_cast<ptrdiff_t>(old), stretches.end());
  return behind_mark_;
}

void PacketStream::mark(const image::CodeMap& code, uint64_t end) {
  mark_ = end;
  since_anchor_.insert(since_anchor_.end(), behind_mark_.begin(), behind_mark_.end());
  known_.insert(known_.end(), behind_mark_.begin(), behind_mark_.end());
  while (known_.size() > kKnownStretches) known_.pop_front();
  behind_mark_.clear();
  if (mark_ - anchor_ < kAnchorEveryBytes) return;

  uint64_t newest = anchor_;
  pt::PacketReader reader(view(anchor_, mark_));
  pt::Packet packet;
  while (reader.next(packet) == pt::ReadStatus::kPacket) {
    if (packet.kind == pt::PacketKind::kPsb) newest = anchor_ + packet.offset;
  }
  if (newest == anchor_) return;
  std::vector<History> stretches = decoder_.decode_stretches(code, view(newest, mark_));
  problem_ = Error(stretches);
  if (problem_.empty()) problem_ = TailDifference(stretches, since_anchor_);
  anchor_ = newest;
  since_anchor_ = std::move(stretches);
  forget_old_bytes();
}

void PacketStream::forget_old_bytes() {
  if (anchor_ - start_ < 2 * kKeptBytes) return;
  const uint64_t to = anchor_ - kKeptBytes;
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(to - start_));
  start_ = to;
}

std::string PacketStream::compare_sample(const image::CodeMap& code,
                                         std::span<const std::byte> sample) {
  const std::vector<History> stretches = decoder_.decode_stretches(code, sample);
  const std::string error = Error(stretches);
  return error.empty() ? TailDifference(stretches, known_) : error;
}

void PacketStream::falsify_known() {
  if (!known_.empty() && !known_.back().transfers.empty()) known_.back().transfers.back().from ^= 1;
}

}  // namespace auxtrail::lockstep
