// RecordQueue: brings the records of all rings of a session into the order of time.
//
// Rings are drained one after the other, so records arrive ordered per ring only. The queue holds
// them back until a later round and then lets go of everything older than a cut-off, sorted. Perf
// wants records of one trace queue in time order (it drops AUX data that goes backwards), and
// readers of the file profit likewise. A record that arrives after its time has been let go is not
// lost; it comes out of order with the next round, which FINISHED_ROUND allows for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace auxtrail::record {

class RecordQueue {
 public:
  // Takes a copy of one whole record.
  void push(uint64_t time_ns, std::span<const std::byte> record);

  // Calls consume(std::span<const std::byte>) for each record older than `cutoff_ns`, oldest first,
  // equal times in the order of arrival, and forgets them. Returns their number.
  template <class Consume>
  size_t take_until(uint64_t cutoff_ns, Consume&& consume) {
    const size_t count = sort_until(cutoff_ns);
    for (size_t i = 0; i < count; ++i) {
      consume(std::span<const std::byte>(bytes_).subspan(items_[i].offset, items_[i].size_bytes));
    }
    drop_first(count);
    return count;
  }

  [[nodiscard]] size_t size() const { return items_.size(); }

 private:
  struct Item {
    uint64_t time_ns;
    uint64_t arrival;
    size_t offset;
    size_t size_bytes;
  };
  size_t sort_until(uint64_t cutoff_ns);
  void drop_first(size_t count);

  std::vector<Item> items_;
  std::vector<std::byte> bytes_;
  uint64_t arrivals_ = 0;
};

}  // namespace auxtrail::record
