// Brings records into order of time, one round of the recorder at a time.
//
// A recorder drains its rings one after the other and ends each drain with FINISHED_ROUND. What a
// round brings may be older than what an earlier ring of the same round brought, but nothing in
// later rounds is older than the newest record of the round before. So at the end of a round
// everything up to the newest time of the round before can go out, and at most two rounds wait
// here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "perfdata/reader.h"

namespace auxtrail::perfdata {

class RoundQueue {
 public:
  explicit RoundQueue(size_t max_pending) : max_pending_(max_pending) {}

  // Takes a record with a time; delivers the older half first if too many wait. False: visitor said
  // stop.
  bool push(const DataRecord& record, const RecordVisitor& visitor);
  bool end_round(const RecordVisitor& visitor);
  bool end_all(const RecordVisitor& visitor);

  // Records delivered after a younger one.
  [[nodiscard]] uint64_t out_of_order() const { return out_of_order_; }

 private:
  struct Entry {
    DataRecord record;
    std::unique_ptr<std::byte[]> copy;  // of a record whose bytes end with the callback
  };
  void sort();
  bool deliver(size_t count, const RecordVisitor& visitor);
  bool deliver_until(uint64_t time_ns, const RecordVisitor& visitor);

  size_t max_pending_;
  std::vector<Entry> pending_;
  size_t sorted_ = 0;  // so many at the front are in order
  uint64_t newest_time_ns_ = 0;
  uint64_t safe_time_ns_ = 0;  // the newest time of the round before
  uint64_t delivered_time_ns_ = 0;
  uint64_t out_of_order_ = 0;
};

}  // namespace auxtrail::perfdata
