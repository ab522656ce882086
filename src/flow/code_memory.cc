#include "flow/code_memory.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace auxtrail::flow {
namespace {

// Of a section; it may reach up to 2^64, which no uint64_t can say.
uint64_t last_address(const CodeSection& section) {
  return section.address + (section.bytes.size() - 1);
}

// What a section shows from `first` to `last`, both inside it.
CodeSection part(const CodeSection& section, uint64_t first, uint64_t last) {
  return {first, section.bytes.subspan(first - section.address, last - first + 1)};
}

}  // namespace

void CodeMemory::add(uint64_t address, std::span<const uint8_t> bytes) {
  if (bytes.empty()) return;
  const uint64_t room = std::numeric_limits<uint64_t>::max() - address;  // one less than there is
  if (bytes.size() - 1 > room) bytes = bytes.first(room + 1);
  const CodeSection added{address, bytes};
  const uint64_t end = last_address(added);

  const auto first = std::lower_bound(
      sections_.begin(), sections_.end(), address,
      [](const CodeSection& section, uint64_t value) { return last_address(section) < value; });
  auto behind = first;
  while (behind != sections_.end() && behind->address <= end) ++behind;

  // What the new section leaves over of those it hides.
  std::vector<CodeSection> now;
  if (first != behind && first->address < address) {
    now.push_back(part(*first, first->address, address - 1));
  }
  now.push_back(added);
  if (first != behind && last_address(behind[-1]) > end) {
    now.push_back(part(behind[-1], end + 1, last_address(behind[-1])));
  }
  const auto place = sections_.erase(first, behind);
  sections_.insert(place, now.begin(), now.end());
}

const CodeSection* CodeMemory::find(uint64_t address) const {
  auto behind = std::upper_bound(
      sections_.begin(), sections_.end(), address,
      [](uint64_t value, const CodeSection& section) { return value < section.address; });
  if (behind == sections_.begin()) return nullptr;
  --behind;
  return address - behind->address < behind->bytes.size() ? &*behind : nullptr;
}

size_t CodeMemory::read(uint64_t address, uint8_t* to, size_t count) const {
  size_t done = 0;
  while (done < count) {
    const CodeSection* section = find(address + done);
    if (section == nullptr) break;
    const size_t skipped = address + done - section->address;
    const size_t here = std::min(count - done, section->bytes.size() - skipped);
    std::memcpy(to + done, section->bytes.data() + skipped, here);
    done += here;
    if (address + done < address) break;  // the end of all addresses
  }
  return done;
}

}  // namespace auxtrail::flow
