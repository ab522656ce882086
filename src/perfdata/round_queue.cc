#include "perfdata/round_queue.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace auxtrail::perfdata {

bool RoundQueue::push(const DataRecord& record, const RecordVisitor& visitor) {
  Entry entry{record, nullptr};
  if (record.unpacked) {
    const auto bytes = record.record.bytes;
    entry.copy = std::make_unique<std::byte[]>(bytes.size());
    std::memcpy(entry.copy.get(), bytes.data(), bytes.size());
    entry.record.record.bytes = {entry.copy.get(), bytes.size()};
  }
  newest_time_ns_ = std::max(newest_time_ns_, record.time_ns);
  pending_.push_back(std::move(entry));
  if (pending_.size() <= max_pending_) return true;
  sort();
  return deliver((pending_.size() + 1) / 2, visitor);
}

bool RoundQueue::end_round(const RecordVisitor& visitor) {
  sort();
  const bool go_on = deliver_until(safe_time_ns_, visitor);
  safe_time_ns_ = newest_time_ns_;
  return go_on;
}

bool RoundQueue::end_all(const RecordVisitor& visitor) {
  sort();
  return deliver(pending_.size(), visitor);
}

// Stable: records of one time keep their order in the file.
void RoundQueue::sort() {
  const auto older = [](const Entry& a, const Entry& b) {
    return a.record.time_ns < b.record.time_ns;
  };
  const auto middle = pending_.begin() + static_cast<std::ptrdiff_t>(sorted_);
  std::stable_sort(middle, pending_.end(), older);
  std::inplace_merge(pending_.begin(), middle, pending_.end(), older);
  sorted_ = pending_.size();
}

bool RoundQueue::deliver_until(uint64_t time_ns, const RecordVisitor& visitor) {
  const auto end = std::upper_bound(
      pending_.begin(), pending_.end(), time_ns,
      [](uint64_t time, const Entry& entry) { return time < entry.record.time_ns; });
  return deliver(static_cast<size_t>(end - pending_.begin()), visitor);
}

bool RoundQueue::deliver(size_t count, const RecordVisitor& visitor) {
  bool go_on = true;
  for (size_t at = 0; at < count && go_on; ++at) {
    const DataRecord& record = pending_[at].record;
    if (record.time_ns < delivered_time_ns_) ++out_of_order_;
    delivered_time_ns_ = std::max(delivered_time_ns_, record.time_ns);
    go_on = visitor(record);
  }
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(count));
  sorted_ = pending_.size();
  return go_on;
}

}  // namespace auxtrail::perfdata
