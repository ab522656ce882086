// What code that is compiled with -fsanitize=thread calls, answered by the Explorer instead of
// libtsan. Linked with --wrap=memcpy, which the instrumentation leaves to an interceptor.
#include <cstring>

#include "event/testing/explorer.h"

namespace {

using auxtrail::event::testing::Explorer;

Explorer* explorer_of(const void* address) {
  Explorer* const explorer = Explorer::current();
  return explorer != nullptr && explorer->is_shared(address) ? explorer : nullptr;
}

void plain(const void* address, size_t size_bytes, bool write) {
  if (Explorer* const explorer = explorer_of(address)) {
    explorer->plain_access(address, size_bytes, write);
  }
}

template <class T>
T load(const volatile T* address, int order) {
  const auto* const plain_address = const_cast<const T*>(address);
  const T newest = __atomic_load_n(address, __ATOMIC_SEQ_CST);
  Explorer* const explorer = explorer_of(plain_address);
  if (explorer == nullptr) return newest;
  return static_cast<T>(explorer->atomic_load(plain_address, newest, order));
}

template <class T>
void store(volatile T* address, T value, int order) {
  if (Explorer* const explorer = explorer_of(const_cast<const T*>(address))) {
    explorer->atomic_store(const_cast<const T*>(address), value, order);
  }
  __atomic_store_n(address, value, __ATOMIC_SEQ_CST);
}

// The Explorer knows no read-modify-write of shared memory: better no test than one that misses it.
template <class T>
volatile T* private_only(volatile T* address) {
  if (explorer_of(const_cast<const T*>(address)) != nullptr) __builtin_trap();
  return address;
}

}  // namespace

#define PLAIN(size)                                                                \
  void __tsan_read##size(void* address) { plain(address, size, false); }           \
  void __tsan_write##size(void* address) { plain(address, size, true); }           \
  void __tsan_unaligned_read##size(void* address) { plain(address, size, false); } \
  void __tsan_unaligned_write##size(void* address) { plain(address, size, true); }

// Read-modify-write: of private variables only (see the Explorer).
#define ATOMIC(bits, Type)                                                                         \
  Type __tsan_atomic##bits##_load(const volatile Type* a, int order) { return load(a, order); }    \
  void __tsan_atomic##bits##_store(volatile Type* a, Type v, int order) { store(a, v, order); }    \
  Type __tsan_atomic##bits##_exchange(volatile Type* a, Type v, int) {                             \
    return __atomic_exchange_n(private_only(a), v, __ATOMIC_SEQ_CST);                              \
  }                                                                                                \
  Type __tsan_atomic##bits##_fetch_add(volatile Type* a, Type v, int) {                            \
    return __atomic_fetch_add(private_only(a), v, __ATOMIC_SEQ_CST);                               \
  }                                                                                                \
  Type __tsan_atomic##bits##_fetch_sub(volatile Type* a, Type v, int) {                            \
    return __atomic_fetch_sub(private_only(a), v, __ATOMIC_SEQ_CST);                               \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile Type* a, Type* c, Type v, int, int) {   \
    return __atomic_compare_exchange_n(private_only(a), c, v, false, __ATOMIC_SEQ_CST,             \
                                       __ATOMIC_SEQ_CST);                                          \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile Type* a, Type* c, Type v, int, int) { \
    return __atomic_compare_exchange_n(private_only(a), c, v, false, __ATOMIC_SEQ_CST,             \
                                       __ATOMIC_SEQ_CST);                                          \
  }                                                                                                \
  Type __tsan_atomic##bits##_compare_exchange_val(volatile Type* a, Type c, Type v, int, int) {    \
    (void)__atomic_compare_exchange_n(private_only(a), &c, v, false, __ATOMIC_SEQ_CST,             \
                                      __ATOMIC_SEQ_CST);                                           \
    return c;                                                                                      \
  }

extern "C" {
#pragma GCC diagnostic ignored "-Wmissing-declarations"
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_atomic_signal_fence(int) {}
void __tsan_read_range(void* address, size_t size_bytes) { plain(address, size_bytes, false); }
void __tsan_write_range(void* address, size_t size_bytes) { plain(address, size_bytes, true); }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

void* __real_memcpy(void* to, const void* from, size_t size_bytes);
void* __wrap_memcpy(void* to, const void* from, size_t size_bytes) {
  plain(from, size_bytes, false);
  plain(to, size_bytes, true);
  return __real_memcpy(to, from, size_bytes);
}
}
