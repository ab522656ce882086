// What two systems have opened and mapped, and what of it must be the same.
#pragma once

#include <gtest/gtest.h>
#include <linux/perf_event.h>
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <string>

namespace auxtrail::perf_event::testing {

// An event that both systems have opened.
struct Opened {
  int real = -1;
  int played = -1;
  perf_event_attr attr{};
  int variable = -1;  // that it watches
  bool closed = false;
  bool limited = false;  // by PERF_EVENT_IOC_REFRESH
};
// A mapping that both have made.
struct Mapped {
  long real = 0;
  long played = 0;
  uint64_t length = 0;
  uint64_t offset = 0;
  int protection = 0;
  size_t event = 0;
};

inline perf_event_mmap_page* page(long address) {
  return reinterpret_cast<perf_event_mmap_page*>(address);
}

// The words of a read(2); of the times only whether there are any. `ids` has the kernel's ids by
// ours.
inline void compare_reading(const uint64_t* ours, const uint64_t* theirs, size_t words,
                            uint64_t format, const std::map<uint64_t, uint64_t>& ids,
                            const std::string& context) {
  const auto has = [format](uint64_t bit) { return (format & bit) != 0; };
  // The number of events, or the count of the only one.
  ASSERT_EQ(ours[0], theirs[0]) << context;
  size_t word = 1;
  for (const uint64_t time : {PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING}) {
    if (!has(time)) continue;
    ASSERT_EQ(ours[word] != 0, theirs[word] != 0) << "time of " << time << context;
    ++word;
  }
  while (word < words) {
    if (has(PERF_FORMAT_GROUP)) {
      ASSERT_EQ(ours[word], theirs[word]) << "count" << context;
      ++word;
    }
    if (has(PERF_FORMAT_ID)) {
      ASSERT_EQ(ids.at(ours[word]), theirs[word]) << "id" << context;
      ++word;
    }
    if (has(PERF_FORMAT_LOST)) {
      ASSERT_EQ(ours[word], theirs[word]) << "lost" << context;
      ++word;
    }
  }
}

// Kind and size of every record that is not read yet; their number.
inline uint64_t compare_records(const Mapped& area, const std::string& context) {
  const uint64_t size = page(area.real)->data_size;
  const auto header_at = [size](long address, uint64_t position) {
    perf_event_header header;
    std::memcpy(&header, reinterpret_cast<std::byte*>(address) + 4096 + (position & (size - 1)),
                sizeof header);
    return header;
  };
  uint64_t count = 0;
  const uint64_t head = page(area.real)->data_head;
  for (uint64_t at = page(area.real)->data_tail; at != head; ++count) {
    const perf_event_header ours = header_at(area.played, at);
    const perf_event_header theirs = header_at(area.real, at);
    const bool same =
        ours.type == theirs.type && ours.size == theirs.size && ours.misc == theirs.misc;
    EXPECT_TRUE(same) << "record at " << at << ": ours " << ours.type << " size " << ours.size
                      << ", the kernel's " << theirs.type << " size " << theirs.size << context;
    if (!same) break;
    at += theirs.size;
  }
  return count;
}

// The control pages of a data area; and the records, where a reader can know them.
inline uint64_t compare_ring(const Mapped& area, bool backward, const std::string& context) {
  const perf_event_mmap_page& ours = *page(area.played);
  const perf_event_mmap_page& theirs = *page(area.real);
  EXPECT_EQ(ours.data_head, theirs.data_head) << "data_head of #" << area.event << context;
  EXPECT_EQ(ours.data_tail, theirs.data_tail);
  EXPECT_EQ(ours.data_offset, theirs.data_offset);
  EXPECT_EQ(ours.data_size, theirs.data_size);
  EXPECT_EQ(ours.aux_head, theirs.aux_head);
  const bool known = !backward && (area.protection & PROT_WRITE) != 0;
  return known && ours.data_head == theirs.data_head ? compare_records(area, context) : 0;
}

}  // namespace auxtrail::perf_event::testing
