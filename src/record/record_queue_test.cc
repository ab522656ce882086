#include "record/record_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace auxtrail::record {
namespace {

struct Entry {
  uint64_t time_ns;
  uint64_t serial;
};

void push(RecordQueue& queue, const Entry& entry) {
  queue.push(entry.time_ns, std::as_bytes(std::span(&entry, 1)));
}

std::vector<Entry> take(RecordQueue& queue, uint64_t cutoff_ns) {
  std::vector<Entry> taken;
  queue.take_until(cutoff_ns, [&taken](std::span<const std::byte> record) {
    Entry entry{};
    ASSERT_EQ(record.size(), sizeof(entry));
    std::memcpy(&entry, record.data(), sizeof(entry));
    taken.push_back(entry);
  });
  return taken;
}

// Against a stable sort of the whole: nothing lost, nothing twice, order kept.
TEST(RecordQueue, SortsAcrossRounds) {
  std::mt19937_64 random(7);
  RecordQueue queue;
  std::vector<Entry> all;
  std::vector<Entry> taken;
  for (uint64_t round = 0; round < 50; ++round) {
    for (int i = 0; i < 40; ++i) {
      all.push_back({round * 100 + random() % 150, all.size()});
      push(queue, all.back());
    }
    const auto part = take(queue, round * 100);
    taken.insert(taken.end(), part.begin(), part.end());
  }
  const auto rest = take(queue, UINT64_MAX);
  taken.insert(taken.end(), rest.begin(), rest.end());
  EXPECT_EQ(queue.size(), 0U);
  std::stable_sort(all.begin(), all.end(),
                   [](const Entry& a, const Entry& b) { return a.time_ns < b.time_ns; });
  ASSERT_EQ(taken.size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(taken[i].time_ns, all[i].time_ns);
    EXPECT_EQ(taken[i].serial, all[i].serial);
  }
}

TEST(RecordQueue, HoldsBackWhatIsNotOldEnough) {
  RecordQueue queue;
  push(queue, {10, 0});
  push(queue, {20, 1});
  EXPECT_TRUE(take(queue, 10).empty());
  EXPECT_EQ(take(queue, 11).size(), 1U);
  EXPECT_EQ(queue.size(), 1U);
}

}  // namespace
}  // namespace auxtrail::record
