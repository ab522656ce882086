// Explorer: runs two threads in every order that the C++ memory model has for them, and finds data
// races.
//
// It does not look at a model of the code but at the code: what is compiled with -fsanitize=thread
// calls __tsan_read4(), __tsan_atomic64_load(address, order) and so on for every access to memory,
// and explorer.cc, not libtsan, is what answers. Both "threads" are coroutines of one thread. Where
// one is about to make an atomic access to shared memory, any of them may go on; a load may return
// the newest value or any older one that coherence and what the thread already knows allow. Each
// such choice is a branch, and all branches are taken, one run after the other.
//
// Plain accesses to shared memory are checked by vector clocks: two of them to one byte, one a
// write, with neither happening before the other, are a race, whatever the order in which they
// came. An order is weakened on request (Weaken), for a test to see that it is missed.
//
// What it leaves out: more than two threads, atomic read-modify-write operations on shared memory,
// two threads that write the same atomic, and values out of thin air.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace auxtrail::event::testing {

inline constexpr int kThreads = 2;

// An atomic access that is taken for relaxed, whatever it asks for.
struct Weaken {
  const void* address = nullptr;
  bool store = false;  // else loads
};

struct Exploration {
  uint64_t runs = 0;
  uint64_t atomic_accesses = 0;
  uint64_t stale_loads = 0;  // loads that returned an older value than the newest
  uint64_t racy_runs = 0;
  std::string first_race;
};

class Explorer {
 public:
  // Memory of both threads; `name` is for race reports. Everything else is private to whoever uses
  // it and not looked at.
  void share(const void* begin, size_t size_bytes, std::string name);
  void weaken(const Weaken& what) { weaken_ = what; }

  // In each run: `prepare` (which must bring everything to the same beginning), then both threads,
  // then `finish`. Ends when there is no branch left, or after `most_runs`.
  Exploration explore(const std::function<void()>& prepare,
                      const std::function<void()> (&threads)[2],
                      const std::function<void()>& finish, uint64_t most_runs);

  // What the instrumented code does.
  void plain_access(const void* address, size_t size_bytes, bool write);
  [[nodiscard]] bool is_shared(const void* address) const;
  uint64_t atomic_load(const void* address, uint64_t newest, int order);
  void atomic_store(const void* address, uint64_t value, int order);

  static Explorer* current();

 private:
  using Clock = uint32_t[kThreads];
  struct Range {
    uintptr_t begin, end;
    std::string name;
  };
  struct Byte {
    int writer = -1;
    uint32_t write_clock = 0;
    Clock read_clock = {};
  };
  // What a thread knows of the others: their time, and the newest message of each atomic.
  struct Knowledge {
    Clock clock = {};
    std::vector<size_t> seen;
    void join(const Knowledge& other);
  };
  struct Message {
    uint64_t value = 0;
    bool released = false;
    Knowledge knowledge;
  };
  struct Atomic {
    uintptr_t address;
    std::vector<Message> messages;
  };
  struct Choice {
    uint32_t taken, count;
  };

  void run_once(const std::function<void()> (&threads)[2]);
  uint32_t choose(uint32_t count);
  bool next_branch();
  size_t atomic_at(const void* address, uint64_t value);
  void switch_point();
  void report(const std::string& what, uintptr_t address);

  std::vector<Range> ranges_;
  Weaken weaken_;
  Exploration result_;
  std::vector<Choice> choices_;
  size_t at_ = 0;
  bool racy_ = false;

  std::vector<std::vector<Byte>> bytes_;  // by range
  std::vector<Atomic> atomics_;
  Knowledge knowledge_[kThreads];
  bool running_ = false;
  int thread_ = 0;
};

}  // namespace auxtrail::event::testing
