// PacketReader next to libipt's packet decoder on the same bytes.
#pragma once

#include <intel-pt.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "pt/packet_reader.h"

namespace auxtrail::pt::testing {

using Trace = std::vector<std::byte>;

class LibiptPackets {
 public:
  explicit LibiptPackets(const Trace& trace, const Errata& errata = {});
  // Reads the packet at `offset`; its size or an error, negative.
  int at(size_t offset, pt_packet& packet);
  // Where libipt is after at().
  [[nodiscard]] uint64_t offset() const;
  // All places that libipt synchronises on, from the front and from the end.
  std::vector<uint64_t> psbs_forward();
  std::vector<uint64_t> psbs_backward();

 private:
  std::unique_ptr<pt_packet_decoder, decltype(&pt_pkt_free_decoder)> decoder_{nullptr,
                                                                              &pt_pkt_free_decoder};
};

struct Comparison {
  uint64_t packets = 0;
  uint64_t errors = 0;
  std::array<uint64_t, static_cast<size_t>(PacketKind::kCount)> kinds{};
};

// Reads the whole trace with both, and expects the same packets, sizes, errors and places; after an
// error both go on one byte further.
Comparison compare(const Trace& trace, const Errata& errata = {});

}  // namespace auxtrail::pt::testing
