// TntMemo: what a walk found behind a node and a few TNT bits, remembered.
//
// Programs take the same ways again and again: one look-up in place of eight steps. An entry holds
// for the first `bits` of the asked bits: it ends before a return whose call came before, for the
// bits alone don't tell where that leads.
//
// The walk waits for every look-up, so entries are small enough for the nearest caches: two words,
// two entries to a bucket, and what only some outputs need lies apart (Way). Bounded: a place is
// taken over only by who misses in its bucket twice in a row, so rare ways do not drive out the hot
// ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "decode/code_graph.h"

namespace auxtrail::decode {

class TntMemo {
 public:
  static constexpr unsigned kMaxBits = 8;
  static constexpr size_t kMaxRecords = 8;
  static constexpr size_t kMaxPushes = 2;
  static constexpr uint32_t kMaxInstructions = (1u << 18) - 1;

  // What is asked: a node, a 1, and the bits behind it, oldest first. 36 bits, never 0.
  static constexpr unsigned kKeyBits = kLinkBits + kMaxBits + 1;
  static constexpr uint64_t key(Link node, uint64_t bits, unsigned count) {
    const uint64_t marker = uint64_t{1} << count;
    return uint64_t{node} << (kMaxBits + 1) | marker | (bits & (marker - 1));
  }
  static constexpr Link node_of(uint64_t key) { return static_cast<Link>(key >> (kMaxBits + 1)); }
  static constexpr uint64_t bits_of(uint64_t key) { return key & ((1u << (kMaxBits + 1)) - 1); }

  // The answer.
  struct Entry {
    uint64_t key_and_end = 0;  // 0: empty
    uint64_t numbers = 0;

    [[nodiscard]] bool answers(uint64_t key) const { return ((key_and_end ^ key) & kKeyMask) == 0; }
    [[nodiscard]] uint64_t key() const { return key_and_end & kKeyMask; }
    [[nodiscard]] Link end() const { return static_cast<Link>(key_and_end >> kKeyBits); }
    // Bits used up; branches taken, and not; calls whose return is still to come.
    [[nodiscard]] unsigned bits() const { return numbers & 15; }
    [[nodiscard]] unsigned taken() const { return numbers >> 4 & 15; }
    [[nodiscard]] unsigned not_taken() const { return numbers >> 8 & 15; }
    [[nodiscard]] unsigned pushes() const { return numbers >> 12 & 3; }
    [[nodiscard]] uint32_t instructions() const { return numbers >> 14 & kMaxInstructions; }
    // For the owner: how often it was used.
    [[nodiscard]] uint64_t uses() const { return numbers >> 32; }
    void use() { numbers += uint64_t{1} << 32; }
    void forget_uses() { numbers &= 0xffff'ffff; }
  };

  // What happens on the way.
  struct alignas(64) Way {
    uint32_t records[kMaxRecords] = {};  // of the branches taken, in order
    uint32_t pushes[kMaxPushes] = {};    // of the calls whose return is still to come
    uint32_t last = 0;  // the last branch: its record, twice, and 1 if it was taken
    // While it is made; the entry has them afterwards.
    uint32_t instructions = 0;
    uint8_t bits = 0;
    uint8_t taken = 0;
    uint8_t not_taken = 0;
    uint8_t push_count = 0;
  };

  TntMemo() { resize(kFirstBucketBits); }

  // The place of the entry that answers `key`, or of one that does not.
  [[nodiscard]] size_t find(uint64_t key) const {
    const size_t first = bucket(key) * 2;
    return entries_[first].answers(key) ? first : first + 1;
  }
  Entry& entry(size_t place) { return entries_[place]; }
  Way& way(size_t place) { return ways_[place]; }
  [[nodiscard]] size_t size() const { return entries_.size(); }

  // Whether the key missed in its bucket the last time, too.
  bool misses_again(uint64_t key) {
    uint32_t& missed = missed_[bucket(key)];
    const auto low = static_cast<uint32_t>(key ^ key >> 32);
    if (missed == low) return true;
    missed = low;
    return false;
  }

  // A place for `key`, whose present entry goes. Before the memo is full it becomes larger instead:
  // nothing has its old place any more, and `place` is not set.
  bool admit(uint64_t key, size_t& place) {
    if (++made_ * 2 > entries_.size() && bucket_bits_ < kMaxBucketBits) {
      grow();
      return false;
    }
    const size_t first = bucket(key) * 2;
    place = first + (entries_[first].key_and_end == 0       ? 0
                     : entries_[first + 1].key_and_end == 0 ? 1
                                                            : made_ & 1);
    return true;
  }
  // Fills the place with what its way says.
  void set(size_t place, uint64_t key, Link end) {
    const Way& way = ways_[place];
    entries_[place].key_and_end = uint64_t{end} << kKeyBits | key;
    entries_[place].numbers = way.bits | uint64_t{way.taken} << 4 | uint64_t{way.not_taken} << 8 |
                              uint64_t{way.push_count} << 12 | uint64_t{way.instructions} << 14;
  }

 private:
  static constexpr unsigned kFirstBucketBits = 8;
  static constexpr unsigned kMaxBucketBits = 14;
  static constexpr uint64_t kKeyMask = (uint64_t{1} << kKeyBits) - 1;
  static_assert(kKeyBits + kLinkBits <= 64);

  [[nodiscard]] size_t bucket(uint64_t key) const {
    return key * 0x9e3779b97f4a7c15 >> (64 - bucket_bits_);
  }

  void resize(unsigned bucket_bits) {
    bucket_bits_ = bucket_bits;
    const size_t buckets = size_t{1} << bucket_bits;
    entries_.assign(2 * buckets, {});
    ways_.assign(2 * buckets, {});
    missed_.assign(buckets, 0);
  }

  void grow() {
    const std::vector<Entry> entries = std::move(entries_);
    const std::vector<Way> ways = std::move(ways_);
    resize(bucket_bits_ + 2);
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].key_and_end == 0) continue;
      size_t place = bucket(entries[i].key()) * 2;
      if (entries_[place].key_and_end != 0) ++place;  // at most two were in the bucket before
      entries_[place] = entries[i];
      ways_[place] = ways[i];
    }
  }

  unsigned bucket_bits_ = 0;
  size_t made_ = 0;
  std::vector<Entry> entries_;
  std::vector<Way> ways_;
  std::vector<uint32_t> missed_;
};

// What lies behind `link` along these bits, as far as one way can hold it: where it ends. way.bits
// is 0 if there is nothing. Returns are followed only if the trace compresses them.
Link follow_way(CodeGraph& graph, Link link, uint64_t bits, unsigned count, bool compressed_returns,
                TntMemo::Way& way);

}  // namespace auxtrail::decode
