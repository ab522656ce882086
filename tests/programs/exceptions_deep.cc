// C++ exceptions through many frames: with destructors on the way, rethrown, nested, from threads,
// through function pointers and virtual calls. Unwinding reads return addresses: they must be the
// program's own.
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

namespace {

struct Counted {
  explicit Counted(uint64_t* counter) : counter_(counter) {}
  ~Counted() { ++*counter_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  uint64_t* counter_;
};

struct Thrower {
  virtual ~Thrower() = default;
  virtual uint64_t Go(int depth, uint64_t* destroyed) = 0;
};

struct Recursive : Thrower {
  uint64_t Go(int depth, uint64_t* destroyed) override {
    Counted counted(destroyed);
    if (depth == 0) throw std::runtime_error("bottom");
    uint64_t below = (depth % 3 == 0 ? Self() : this)->Go(depth - 1, destroyed);
    return below + 1;
  }
  __attribute__((noinline)) Thrower* Self() { return this; }
};

__attribute__((noinline)) void Rethrow(Thrower& thrower, int depth, uint64_t* destroyed) {
  try {
    thrower.Go(depth, destroyed);
  } catch (const std::logic_error&) {
    CHECK(false);
  } catch (...) {
    *destroyed += 1000;
    throw;
  }
}

__attribute__((noinline)) void Nest(Thrower& thrower, int depth, uint64_t* destroyed) {
  try {
    Rethrow(thrower, depth, destroyed);
  } catch (const std::runtime_error& error) {
    CHECK(std::string(error.what()) == "bottom");
    std::throw_with_nested(std::out_of_range("outer"));
  }
}

uint64_t Rounds(int rounds, int depth) {
  Recursive thrower;
  uint64_t destroyed = 0;
  for (int i = 0; i < rounds; ++i) {
    try {
      Nest(thrower, depth + i % 7, &destroyed);
      CHECK(false);
    } catch (const std::out_of_range& outer) {
      try {
        std::rethrow_if_nested(outer);
        CHECK(false);
      } catch (const std::runtime_error& inner) {
        destroyed += std::strlen(inner.what());
      }
    }
  }
  return destroyed;
}

}  // namespace

int main() {
  std::printf("shallow %llu\n", check::Llu(Rounds(40000, 3)));
  std::printf("deep %llu\n", check::Llu(Rounds(1000, 500)));
  std::vector<uint64_t> results(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&results, i] { results[i] = Rounds(10000, 10 + static_cast<int>(i)); });
  }
  for (auto& thread : threads) thread.join();
  for (uint64_t result : results) {
    std::printf("thread %llu\n", check::Llu(result));
  }
  return 0;
}
