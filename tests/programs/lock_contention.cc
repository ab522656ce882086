// Many threads that fight for a mutex, a spin lock, a ticket lock, a read-write lock and a
// condition variable; futures and a pipeline. The totals are exact.
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <queue>
#include <shared_mutex>
#include <thread>
#include <vector>

#include "check.h"

namespace {

constexpr int kThreads = 16;

struct TicketLock {
  std::atomic<uint32_t> next{0}, serving{0};
  void lock() {
    const uint32_t mine = next.fetch_add(1);
    while (serving.load(std::memory_order_acquire) != mine) sched_yield();
  }
  void unlock() { serving.fetch_add(1, std::memory_order_release); }
};

struct SpinLock {
  std::atomic<bool> taken{false};
  void lock() {
    while (taken.exchange(true, std::memory_order_acquire)) sched_yield();
  }
  void unlock() { taken.store(false, std::memory_order_release); }
};

template <class Lock>
uint64_t Fight(uint64_t rounds) {
  Lock lock;
  uint64_t counter = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (uint64_t k = 0; k < rounds; ++k) {
        lock.lock();
        counter += 1 + (check::Burn(k, 10) & 0);
        lock.unlock();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return counter;
}

uint64_t ReadersAndWriters() {
  std::shared_mutex lock;
  uint64_t left = 0, right = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 5000; ++k) {
        if ((k + i) % 4 == 0) {
          std::unique_lock write(lock);
          ++left;
          ++right;
        } else {
          std::shared_lock read(lock);
          CHECK(left == right);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return left;
}

uint64_t Pipeline(uint64_t items) {
  std::mutex mutex;
  std::condition_variable ready, space;
  std::queue<uint64_t> queue;
  uint64_t sum = 0;
  std::thread consumer([&] {
    for (uint64_t i = 0; i < items; ++i) {
      std::unique_lock lock(mutex);
      ready.wait(lock, [&] { return !queue.empty(); });
      sum = sum * 31 + queue.front();
      queue.pop();
      space.notify_one();
    }
  });
  for (uint64_t i = 0; i < items; ++i) {
    std::unique_lock lock(mutex);
    space.wait(lock, [&] { return queue.size() < 16; });
    queue.push(check::Burn(i, 5));
    ready.notify_one();
  }
  consumer.join();
  return sum;
}

uint64_t Futures() {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    auto one = std::async(std::launch::async, [i] { return check::Burn(i, 10000); });
    auto two = std::async(std::launch::async, [i] { return check::Burn(i + 7, 10000); });
    sum += one.get() ^ two.get();
  }
  return sum;
}

}  // namespace

int main() {
  std::printf("mutex %llu\n", check::Llu(Fight<std::mutex>(60000)));
  std::printf("ticket %llu\n", check::Llu(Fight<TicketLock>(3000)));
  std::printf("spin %llu\n", check::Llu(Fight<SpinLock>(60000)));
  std::printf("read-write %llu\n", check::Llu(ReadersAndWriters()));
  std::printf("pipeline %016llx\n", check::Llu(Pipeline(60000)));
  std::printf("futures %016llx\n", check::Llu(Futures()));
  return 0;
}
