// TntMemo: what a walk found behind a node and a few TNT bits, remembered.
//
// Programs take the same ways again and again: one look-up in place of six steps. An entry holds
// for the first `bits` of the asked bits: it ends before a return, whose way the bits alone don't
// tell. Direct mapped and bounded; a place is taken over only by who misses there twice in a row,
// so rare ways do not drive out the hot ones. The part that the walk waits for is small and lies
// apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "decode/code_graph.h"

namespace auxtrail::decode {

class TntMemo {
 public:
  static constexpr unsigned kMaxBits = 8;
  static constexpr size_t kMaxRecords = 8;
  static constexpr size_t kMaxPushes = 2;

  // Where node and bits lead to.
  struct Entry {
    uint64_t key = 0;  // of node and bits; 0: empty
    Link end = 0;
    uint8_t bits = 0;  // used up
    uint8_t taken = 0;
    uint8_t not_taken = 0;
    uint8_t push_count = 0;
  };
  static_assert(sizeof(Entry) == 16);

  // And what happens on the way.
  struct Way {
    uint32_t records[kMaxRecords] = {};  // of the branches taken, in order
    uint32_t pushes[kMaxPushes] = {};    // of the calls among them whose return may be compressed
    uint32_t instructions = 0;
    uint32_t last = 0;  // the last branch: its record, twice, and 1 if it was taken
    uint32_t uses = 0;  // for the owner
  };

  TntMemo() { resize(kFirstIndexBits); }

  // The oldest of `count` bits is bit count - 1; what stands above it is ignored.
  static constexpr uint64_t key(Link node, uint64_t bits, unsigned count) {
    const uint64_t marker = uint64_t{1} << count;
    return uint64_t{node} << (kMaxBits + 1) | marker | (bits & (marker - 1));
  }
  static constexpr Link node_of(uint64_t key) { return static_cast<Link>(key >> (kMaxBits + 1)); }
  // With a 1 before the oldest.
  static constexpr uint64_t bits_of(uint64_t key) { return key & ((1u << (kMaxBits + 1)) - 1); }
  [[nodiscard]] size_t index(uint64_t key) const { return key * 0x9e3779b97f4a7c15 >> shift_; }

  Entry& entry(size_t index) { return entries_[index]; }
  Way& way(size_t index) { return ways_[index]; }
  [[nodiscard]] size_t size() const { return entries_.size(); }

  // Whether the key missed at its place the last time, too.
  bool misses_again(size_t index, uint64_t key) {
    const auto low = static_cast<uint32_t>(key ^ key >> 32);
    if (missed_[index] == low) return true;
    missed_[index] = low;
    return false;
  }

  // Counts an entry that is about to be made. False: there is no room to spare, and the memo became
  // larger; nothing has its old index any more.
  bool admit() {
    if (++made_ * 2 <= entries_.size() || shift_ == 64 - kMaxIndexBits) return true;
    const std::vector<Entry> entries = std::move(entries_);
    const std::vector<Way> ways = std::move(ways_);
    resize(64 - shift_ + 2);
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].key == 0) continue;
      entries_[index(entries[i].key)] = entries[i];
      ways_[index(entries[i].key)] = ways[i];
    }
    return false;
  }

 private:
  static constexpr unsigned kFirstIndexBits = 9;
  static constexpr unsigned kMaxIndexBits = 17;

  void resize(unsigned index_bits) {
    shift_ = 64 - index_bits;
    entries_.assign(size_t{1} << index_bits, {});
    ways_.assign(size_t{1} << index_bits, {});
    missed_.assign(size_t{1} << index_bits, 0);
  }

  unsigned shift_ = 0;
  size_t made_ = 0;
  std::vector<Entry> entries_;
  std::vector<Way> ways_;
  std::vector<uint32_t> missed_;
};

}  // namespace auxtrail::decode
