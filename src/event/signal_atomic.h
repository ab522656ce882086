// SignalAtomic: a variable shared between a thread and the signal handlers that interrupt it.
//
// What the kernel's local_t is to NMIs. Relaxed operations on the compiler's builtins and a
// compiler barrier; no ordering between CPUs is meant, for both sides are one thread. Not
// std::atomic because <atomic> does not compile with clang 14 when vector and x87 registers are off
// limits (-mgeneral-regs-only), as they are for code that runs on a traced program's registers.
#pragma once

#include <cstdint>

namespace auxtrail::event {

// Keeps the compiler from moving memory accesses across.
inline void signal_barrier() { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

template <class T>
class SignalAtomic {
 public:
  constexpr SignalAtomic() = default;
  constexpr explicit SignalAtomic(T value) : value_(value) {}
  SignalAtomic(const SignalAtomic&) = delete;
  SignalAtomic& operator=(const SignalAtomic&) = delete;

  [[nodiscard]] T load() const { return __atomic_load_n(&value_, __ATOMIC_RELAXED); }
  void store(T value) { __atomic_store_n(&value_, value, __ATOMIC_RELAXED); }
  [[nodiscard]] T exchange(T value) {
    return __atomic_exchange_n(&value_, value, __ATOMIC_RELAXED);
  }
  void add(T value) { (void)__atomic_fetch_add(&value_, value, __ATOMIC_RELAXED); }
  void subtract(T value) { (void)__atomic_fetch_sub(&value_, value, __ATOMIC_RELAXED); }
  // True if the value was `expected` and is now `desired`; else `expected` receives the value.
  [[nodiscard]] bool compare_exchange(T& expected, T desired) {
    return __atomic_compare_exchange_n(&value_, &expected, desired, /*weak=*/true, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED);
  }

 private:
  T value_{};
};

}  // namespace auxtrail::event
