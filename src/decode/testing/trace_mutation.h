// Damage to traces, as bad memory, lost pieces and hostile authors do it: bits, bytes and whole
// packets.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "decode/testing/random.h"

namespace auxtrail::decode::testing {

// Changes `trace` in one to three ways and says which. `other` is a trace to take pieces from.
std::string mutate(std::vector<std::byte>& trace, std::span<const std::byte> other, Random& random);

}  // namespace auxtrail::decode::testing
