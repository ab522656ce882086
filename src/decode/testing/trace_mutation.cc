#include "decode/testing/trace_mutation.h"

#include <algorithm>
#include <array>
#include <utility>

#include "pt/packet_reader.h"

namespace auxtrail::decode::testing {
namespace {

using Bytes = std::vector<std::byte>;
using Other = std::span<const std::byte>;

struct Range {
  size_t begin = 0;
  size_t end = 0;
};

auto at(Bytes& trace, size_t place) { return trace.begin() + static_cast<std::ptrdiff_t>(place); }

Bytes copy(Bytes& trace, Range range) { return {at(trace, range.begin), at(trace, range.end)}; }

Range random_range(size_t size, size_t most, Random& random) {
  const size_t begin = random.below(size);
  return {begin, begin + random.between(1, std::min(most, size - begin))};
}

std::vector<Range> packets_of(std::span<const std::byte> trace, bool only_psbs) {
  std::vector<Range> packets;
  pt::PacketReader reader(trace);
  pt::Packet packet;
  while (reader.offset() < trace.size()) {
    if (reader.next(packet) != pt::ReadStatus::kPacket) {
      if (!reader.sync_forward()) break;
      continue;
    }
    if (only_psbs && packet.kind != pt::PacketKind::kPsb) continue;
    packets.push_back({packet.offset, packet.offset + packet.size_bytes});
  }
  return packets;
}

void flip_bit(Bytes& trace, Other, Random& random) {
  trace[random.below(trace.size())] ^= static_cast<std::byte>(1U << random.below(8));
}

void change_byte(Bytes& trace, Other, Random& random) {
  trace[random.below(trace.size())] = static_cast<std::byte>(random.below(256));
}

void insert_bytes(Bytes& trace, Other, Random& random) {
  Bytes bytes(random.between(1, 8));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(256));
  trace.insert(at(trace, random.below(trace.size() + 1)), bytes.begin(), bytes.end());
}

void delete_bytes(Bytes& trace, Other, Random& random) {
  const Range range = random_range(trace.size(), 16, random);
  trace.erase(at(trace, range.begin), at(trace, range.end));
}

void duplicate_bytes(Bytes& trace, Other, Random& random) {
  const Bytes bytes = copy(trace, random_range(trace.size(), 32, random));
  trace.insert(at(trace, random.below(trace.size() + 1)), bytes.begin(), bytes.end());
}

void cut_end(Bytes& trace, Other, Random& random) { trace.resize(random.between(1, trace.size())); }

void cut_begin(Bytes& trace, Other, Random& random) {
  trace.erase(trace.begin(), at(trace, random.below(trace.size())));
}

void splice(Bytes& trace, Other other, Random& random) {
  if (other.empty()) return;
  trace.resize(random.below(trace.size()) + 1);
  const auto rest = other.subspan(random.below(other.size()));
  trace.insert(trace.end(), rest.begin(), rest.end());
}

void remove_psb(Bytes& trace, Other, Random& random) {
  const auto psbs = packets_of(trace, true);
  if (psbs.empty()) return;
  const Range range = psbs[random.below(psbs.size())];
  trace.erase(at(trace, range.begin), at(trace, range.end));
}

void remove_packet(Bytes& trace, Other, Random& random) {
  const auto packets = packets_of(trace, false);
  if (packets.empty()) return;
  const Range range = packets[random.below(packets.size())];
  trace.erase(at(trace, range.begin), at(trace, range.end));
}

void duplicate_packet(Bytes& trace, Other, Random& random) {
  const auto packets = packets_of(trace, false);
  if (packets.empty()) return;
  const Bytes bytes = copy(trace, packets[random.below(packets.size())]);
  const size_t place = packets[random.below(packets.size())].begin;
  trace.insert(at(trace, place), bytes.begin(), bytes.end());
}

void swap_packets(Bytes& trace, Other, Random& random) {
  const auto packets = packets_of(trace, false);
  if (packets.size() < 2) return;
  const size_t first = random.below(packets.size() - 1);
  std::rotate(at(trace, packets[first].begin), at(trace, packets[first + 1].begin),
              at(trace, packets[first + 1].end));
}

// A packet of another trace.
void borrow_packet(Bytes& trace, Other other, Random& random) {
  const auto packets = packets_of(trace, false);
  const auto others = packets_of(other, false);
  if (packets.empty() || others.empty()) return;
  const Range range = others[random.below(others.size())];
  const auto bytes = other.subspan(range.begin, range.end - range.begin);
  trace.insert(at(trace, packets[random.below(packets.size())].begin), bytes.begin(), bytes.end());
}

struct Mutation {
  const char* name;
  void (*apply)(Bytes&, Other, Random&);
};
constexpr std::array kMutations = {
    Mutation{"flip a bit", flip_bit},
    Mutation{"change a byte", change_byte},
    Mutation{"insert bytes", insert_bytes},
    Mutation{"delete bytes", delete_bytes},
    Mutation{"duplicate bytes", duplicate_bytes},
    Mutation{"cut the end", cut_end},
    Mutation{"cut the begin", cut_begin},
    Mutation{"splice", splice},
    Mutation{"remove a PSB", remove_psb},
    Mutation{"remove a packet", remove_packet},
    Mutation{"duplicate a packet", duplicate_packet},
    Mutation{"swap packets", swap_packets},
    Mutation{"borrow a packet", borrow_packet},
};

}  // namespace

std::string mutate(std::vector<std::byte>& trace, std::span<const std::byte> other,
                   Random& random) {
  std::string names;
  for (size_t count = random.between(1, 3); count > 0 && !trace.empty(); --count) {
    const Mutation& mutation = kMutations[random.below(kMutations.size())];
    mutation.apply(trace, other, random);
    if (!names.empty()) names += ", ";
    names += mutation.name;
  }
  return names;
}

}  // namespace auxtrail::decode::testing
