// See mutation.h.
#include "mutation.h"

#include <iterator>
#include <vector>

#include "pt/packet_reader.h"

namespace auxtrail::lockstep {

const char* Name(Mutation mutation) {
  constexpr const char* kNames[] = {"none",        "outcome",        "transfer",     "target",
                                    "final ip",    "register",       "flags",        "vector",
                                    "signal mask", "memory",         "sample ip",    "first ip",
                                    "sample aux",  "sample history", "call argument"};
  static_assert(std::size(kNames) == kAllMutations);
  return kNames[static_cast<size_t>(mutation)];
}

bool FlipOutcome(std::span<std::byte> aux, size_t skip) {
  std::vector<pt::Packet> outcomes;
  pt::PacketReader reader(aux);
  (void)reader.sync_forward();
  pt::Packet packet;
  while (reader.next(packet) == pt::ReadStatus::kPacket) {
    if (packet.tnt_bits != 0) outcomes.push_back(packet);
  }
  if (outcomes.size() <= skip) return false;
  const pt::Packet& chosen = outcomes[outcomes.size() - 1 - skip];
  const bool is_short = chosen.kind == pt::PacketKind::kTnt8;
  aux[chosen.offset + (is_short ? 0 : 2)] ^= is_short ? std::byte{2} : std::byte{1};
  return true;
}

}  // namespace auxtrail::lockstep
