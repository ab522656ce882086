// NodeTable: from addresses to links, for many readers and one writer at a time.
//
// Open addressing; grows by copying. Readers need no lock: the tables they may still look at live
// as long as the NodeTable.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace auxtrail::decode {

class NodeTable {
 public:
  NodeTable() { grow(kFirstSlots); }

  // 0 if the address is not known, or not yet known to this thread.
  [[nodiscard]] uint32_t find(uint64_t ip) const {
    const Slots& slots = *newest_.load(std::memory_order_acquire);
    for (size_t i = hash(ip);; ++i) {
      const Slot& slot = slots.slots[i & slots.mask];
      const uint32_t link = slot.link.load(std::memory_order_acquire);
      if (link == 0 || slot.ip == ip) return link;
    }
  }

  // `ip` is not in the table, `link` is not 0. One thread at a time.
  void insert(uint64_t ip, uint32_t link) {
    if (count_ * 2 > newest_.load(std::memory_order_relaxed)->mask) {
      grow(2 * (newest_.load(std::memory_order_relaxed)->mask + 1));
    }
    put(*newest_.load(std::memory_order_relaxed), ip, link);
    ++count_;
  }

 private:
  static constexpr size_t kFirstSlots = 1024;

  struct Slot {
    uint64_t ip = 0;  // written before the link, and once
    std::atomic<uint32_t> link{0};
  };
  struct Slots {
    explicit Slots(size_t size) : mask(size - 1), slots(std::make_unique<Slot[]>(size)) {}
    size_t mask;
    std::unique_ptr<Slot[]> slots;
  };

  static size_t hash(uint64_t ip) { return ip * 0x9e3779b97f4a7c15 >> 20; }

  static void put(Slots& to, uint64_t ip, uint32_t link) {
    size_t i = hash(ip);
    while (to.slots[i & to.mask].link.load(std::memory_order_relaxed) != 0) ++i;
    Slot& slot = to.slots[i & to.mask];
    slot.ip = ip;
    slot.link.store(link, std::memory_order_release);
  }

  void grow(size_t size) {
    auto bigger = std::make_unique<Slots>(size);
    if (const Slots* old = newest_.load(std::memory_order_relaxed); old != nullptr) {
      for (size_t i = 0; i <= old->mask; ++i) {
        const uint32_t link = old->slots[i].link.load(std::memory_order_relaxed);
        if (link != 0) put(*bigger, old->slots[i].ip, link);
      }
    }
    newest_.store(bigger.get(), std::memory_order_release);
    all_.push_back(std::move(bigger));
  }

  std::atomic<Slots*> newest_{nullptr};
  std::vector<std::unique_ptr<Slots>> all_;
  size_t count_ = 0;
};

}  // namespace auxtrail::decode
