// Small traces by hand, and what is in them as text.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "pt/packet_reader.h"

namespace auxtrail::pt::testing {

using Trace = std::vector<std::byte>;

inline Trace bytes_of(std::initializer_list<int> values) {
  Trace trace;
  for (const int value : values) trace.push_back(static_cast<std::byte>(value));
  return trace;
}

// The packets of `trace` as text, up to its end or the first error.
inline std::vector<std::string> texts(const Trace& trace, const Errata& errata = {}) {
  std::vector<std::string> lines;
  PacketReader reader(trace, errata);
  Packet packet;
  while (reader.next(packet) == ReadStatus::kPacket) lines.push_back(text(packet));
  return lines;
}

inline void put_psb(Trace& trace) {
  for (int pair = 0; pair < 8; ++pair) {
    trace.push_back(std::byte{0x02});
    trace.push_back(std::byte{0x82});
  }
}

}  // namespace auxtrail::pt::testing
