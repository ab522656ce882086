#include "record/record_queue.h"

#include <algorithm>

namespace auxtrail::record {

void RecordQueue::push(uint64_t time_ns, std::span<const std::byte> record) {
  items_.push_back({time_ns, arrivals_++, bytes_.size(), record.size()});
  bytes_.insert(bytes_.end(), record.begin(), record.end());
}

size_t RecordQueue::sort_until(uint64_t cutoff_ns) {
  const auto middle = std::partition(items_.begin(), items_.end(), [cutoff_ns](const Item& item) {
    return item.time_ns < cutoff_ns;
  });
  std::sort(items_.begin(), middle, [](const Item& a, const Item& b) {
    return a.time_ns != b.time_ns ? a.time_ns < b.time_ns : a.arrival < b.arrival;
  });
  return static_cast<size_t>(middle - items_.begin());
}

void RecordQueue::drop_first(size_t count) {
  items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(count));
  // In place and in the order of the bytes, so that they only ever move forward: memory that is
  // given back each round would be faulted in and cleared anew each round.
  std::sort(items_.begin(), items_.end(),
            [](const Item& a, const Item& b) { return a.offset < b.offset; });
  size_t kept = 0;
  for (Item& item : items_) {
    const auto from = bytes_.begin() + static_cast<std::ptrdiff_t>(item.offset);
    std::copy_n(from, item.size_bytes, bytes_.begin() + static_cast<std::ptrdiff_t>(kept));
    item.offset = kept;
    kept += item.size_bytes;
  }
  bytes_.resize(kept);
}

}  // namespace auxtrail::record
