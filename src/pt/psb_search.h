// Where a trace has PSB packets, without reading the packets in between: where decoding can begin,
// and where a long trace can be cut. Sixteen bytes a step, so that memory is the limit.
//
// The rule is libipt's: a PSB is eight pairs 02 82, and in a longer run of pairs it is the last
// eight, because the payload before it may end like one. A payload of eight pairs (it takes two
// packets of eight bytes in a row, or PTW and MNT values made for it) is taken for a PSB, as by
// every decoder: only reading the packets from an earlier PSB on can tell.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace auxtrail::pt {

inline constexpr size_t kPsbBytes = 16;

// The offset of the first PSB that begins at `from` or behind it.
std::optional<size_t> find_psb(std::span<const std::byte> trace, size_t from = 0);

// The offset of the last PSB that begins before `before`.
std::optional<size_t> find_psb_backward(std::span<const std::byte> trace, size_t before);

}  // namespace auxtrail::pt
