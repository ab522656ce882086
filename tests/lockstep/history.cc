// See history.h.
#include "history.h"

#include <fmt/format.h>

#include "pt/packet_reader.h"

namespace auxtrail::lockstep {
namespace {

// A system call ends its stretch before itself: what it leads to is the kernel's.
bool EndsBefore(const decode::Branch& branch) {
  return branch.kind == decode::BranchKind::kTraceEnd ||
         (branch.ends_trace && branch.kind == decode::BranchKind::kSyscall);
}

class Collector : public decode::FlowConsumer {
 public:
  void on_branch(const decode::Branch& branch) override {
    if (branch.kind == decode::BranchKind::kTraceBegin) {
      stretches_.emplace_back().first_ip = branch.to;
    } else if (EndsBefore(branch)) {
      current().final_ip = branch.from;
    } else {
      current().transfers.push_back({branch.from, branch.to});
    }
  }
  void on_not_taken(uint64_t ip) override { current().transfers.push_back({ip, 0}); }
  void on_gap(const decode::Gap& gap) override {
    if (gap.kind == decode::GapKind::kDisabled) return;
    fail(fmt::format("gap from {:#x} to {:#x}", gap.from_ip, gap.to_ip));
  }
  void on_error(const decode::DecodeError& error) override {
    fail(fmt::format("{} at offset {:#x}, ip {:#x}", name(error.cause), error.offset, error.ip));
  }

  void fail(const std::string& error) {
    if (error_.empty()) error_ = error;
  }
  std::vector<History> take() {
    if (!error_.empty()) current().error = error_;
    return std::move(stretches_);
  }

 private:
  History& current() {
    if (stretches_.empty()) stretches_.emplace_back();
    return stretches_.back();
  }

  std::vector<History> stretches_;
  std::string error_;
};

// The outcomes of each stretch: TIP.PGD ends one.
std::vector<std::vector<Outcome>> Outcomes(std::span<const std::byte> aux) {
  std::vector<std::vector<Outcome>> outcomes(1);
  pt::PacketReader reader(aux);
  if (!reader.sync_forward()) return {};
  pt::Packet packet;
  while (reader.next(packet) == pt::ReadStatus::kPacket) {
    if (packet.kind == pt::PacketKind::kTipPgd) outcomes.emplace_back();
    if (packet.kind == pt::PacketKind::kTip) outcomes.back().push_back(Outcome::kTarget);
    for (int bit = packet.tnt_bits - 1; bit >= 0; --bit) {
      const bool taken = (packet.payload >> bit & 1) != 0;
      outcomes.back().push_back(taken ? Outcome::kTaken : Outcome::kNotTaken);
    }
  }
  outcomes.pop_back();  // behind the last TIP.PGD there is nothing
  return outcomes;
}

}  // namespace

std::vector<History> HistoryDecoder::decode_stretches(const image::CodeMap& code,
                                                      std::span<const std::byte> aux) {
  Collector collector;
  const decode::DecodeSummary summary = decoder_->decode(code, aux, collector);
  if (summary.ends_open) collector.fail("the trace does not say where it ends");
  std::vector<History> stretches = collector.take();
  if (!stretches.empty() && !stretches.back().error.empty()) return stretches;
  auto outcomes = Outcomes(aux);
  if (outcomes.size() != stretches.size()) {
    stretches.emplace_back().error =
        fmt::format("{} stretches, but {} TIP.PGD packets", stretches.size(), outcomes.size());
    return stretches;
  }
  for (size_t i = 0; i < stretches.size(); ++i) stretches[i].outcomes = std::move(outcomes[i]);
  return stretches;
}

History HistoryDecoder::decode(const image::CodeMap& code, std::span<const std::byte> aux) {
  std::vector<History> stretches = decode_stretches(code, aux);
  if (stretches.empty()) return {};
  if (stretches.size() > 1 && stretches.back().error.empty()) {
    stretches.back().error = fmt::format("{} stretches of one window", stretches.size());
  }
  return std::move(stretches.back());
}

}  // namespace auxtrail::lockstep
