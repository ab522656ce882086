// PendingEvents: events that wait for the packet they bind to, oldest first.
//
// Room for as many as libipt's queue has, which is more than a processor ever makes wait. Copying
// copies only what is there: a flow decoder looks ahead with a copy of the whole event decoder.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "flow/event.h"

namespace auxtrail::flow {

// Packets that release events, as bits.
enum Binding : uint8_t {
  kAtPsbEnd = 1,
  kAtTip = 2,      // TIP, TIP.PGE, TIP.PGD
  kAtFup = 4,      // the FUP goes on to start an asynchronous branch
  kAtOwnFup = 8,   // the FUP exists for the event alone
  kAtExstop = 16,  // MWAIT
  kAtCfe = 32,     // EVD
  kAtPwrx = 64,    // PWRE; also at whatever else shows that no PWRX comes
  kAtAnything = 127,
};

class PendingEvents {
 public:
  static constexpr size_t kCapacity = 14;

  PendingEvents() = default;
  PendingEvents(const PendingEvents& other) { *this = other; }
  PendingEvents& operator=(const PendingEvents& other) {
    size_ = other.size_;
    std::copy_n(other.entries_.begin(), size_, entries_.begin());
    return *this;
  }

  [[nodiscard]] bool empty() const { return size_ == 0; }
  void clear() { size_ = 0; }

  // False if there is no room.
  bool add(const Event& event, unsigned bindings) {
    if (size_ == kCapacity) return false;
    entries_[size_++] = {event, static_cast<uint8_t>(bindings)};
    return true;
  }

  // The oldest event that any of `bindings` releases; nullptr if there is none.
  Event* first(unsigned bindings) {
    for (size_t i = 0; i < size_; ++i) {
      if ((entries_[i].bindings & bindings) != 0) return &entries_[i].event;
    }
    return nullptr;
  }
  Event* first(unsigned bindings, EventKind kind) {
    for (size_t i = 0; i < size_; ++i) {
      Entry& entry = entries_[i];
      if ((entry.bindings & bindings) != 0 && entry.event.kind == kind) return &entry.event;
    }
    return nullptr;
  }

  // Takes first(bindings) out; false if there is none.
  bool take(unsigned bindings, Event& event) {
    Event* found = size_ == 0 ? nullptr : first(bindings);
    if (found == nullptr) return false;
    event = *found;
    remove(found);
    return true;
  }

 private:
  struct Entry {
    Event event;
    uint8_t bindings = 0;
  };

  void remove(const Event* event) {
    auto at = std::find_if(entries_.begin(), entries_.begin() + size_,
                           [&](const Entry& entry) { return &entry.event == event; });
    std::move(at + 1, entries_.begin() + size_, at);
    --size_;
  }

  std::array<Entry, kCapacity> entries_;
  uint8_t size_ = 0;
};

}  // namespace auxtrail::flow
