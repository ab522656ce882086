// See history.h.
#include "history.h"

#include <fmt/format.h>

#include "pt/packet_reader.h"

namespace auxtrail::lockstep {
namespace {

class Collector : public decode::FlowConsumer {
 public:
  explicit Collector(History& history) : history_(history) {}

  void on_branch(const decode::Branch& branch) override {
    if (!branch.is_marker()) history_.transfers.push_back({branch.from, branch.to});
  }
  void on_not_taken(uint64_t ip) override { history_.transfers.push_back({ip, 0}); }
  void on_gap(const decode::Gap& gap) override {
    history_.error = fmt::format("gap from {:#x} to {:#x}", gap.from_ip, gap.to_ip);
  }
  void on_error(const decode::DecodeError& error) override {
    history_.error =
        fmt::format("{} at offset {:#x}, ip {:#x}", name(error.cause), error.offset, error.ip);
  }

 private:
  History& history_;
};

std::vector<bool> Outcomes(std::span<const std::byte> aux) {
  std::vector<bool> outcomes;
  pt::PacketReader reader(aux);
  pt::Packet packet;
  while (reader.next(packet) == pt::ReadStatus::kPacket) {
    for (int bit = packet.tnt_bits - 1; bit >= 0; --bit) {
      outcomes.push_back((packet.payload >> bit & 1) != 0);
    }
  }
  return outcomes;
}

}  // namespace

History HistoryDecoder::decode(const image::CodeMap& code, std::span<const std::byte> aux) {
  History history;
  Collector collector(history);
  const decode::DecodeSummary summary = decoder_->decode(code, aux, collector);
  history.first_ip = summary.first_ip.value_or(0);
  history.final_ip = summary.final_ip.value_or(0);
  if (summary.ends_open) history.error = "the trace does not say where it ends";
  history.outcomes = Outcomes(aux);
  return history;
}

}  // namespace auxtrail::lockstep
