#include "abi/attr.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace auxtrail::abi {

std::optional<perf_event_attr> read_attr(std::span<const std::byte> bytes) {
  if (bytes.size() < PERF_ATTR_SIZE_VER0) return std::nullopt;
  perf_event_attr attr{};
  std::memcpy(&attr, bytes.data(), std::min(bytes.size(), sizeof(attr)));
  return attr;
}

}  // namespace auxtrail::abi
