// Copying and clearing memory without a call into any library.
//
// The engine runs inside the traced program's signal handlers. memcpy there would be a call through
// the program's own symbol table (lazy binding, interposers, IFUNCs); `rep movsb` is always ours.
// Sanitised builds copy byte by byte instead, so that the sanitiser sees each access.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define AUXTRAIL_VISIBLE_COPY 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define AUXTRAIL_VISIBLE_COPY 1
#endif
#endif

namespace auxtrail::event {

// The regions must not overlap.
inline void copy_bytes(std::byte* to, const std::byte* from, size_t size_bytes) {
#ifdef AUXTRAIL_VISIBLE_COPY
  for (size_t i = 0; i < size_bytes; ++i) const_cast<volatile std::byte*>(to)[i] = from[i];
#else
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size_bytes) : : "memory");
#endif
}

inline void clear_bytes(std::byte* to, size_t size_bytes) {
#ifdef AUXTRAIL_VISIBLE_COPY
  for (size_t i = 0; i < size_bytes; ++i) const_cast<volatile std::byte*>(to)[i] = std::byte{0};
#else
  asm volatile("rep stosb" : "+D"(to), "+c"(size_bytes) : "a"(0) : "memory");
#endif
}

}  // namespace auxtrail::event
