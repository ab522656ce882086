// Where TlsBlock's fields lie relative to %fs; the same for every thread (initial-exec TLS).
#pragma once

#include <cstddef>
#include <cstdint>

#include "unit/thread_state.h"

namespace auxtrail::unit {

struct TlsOffsets {
  int32_t rcx, rax, log, target, resume, thread;
};

inline TlsOffsets tls_offsets() {
  uint64_t fs_base;
  asm("mov %%fs:0, %0" : "=r"(fs_base));
  const auto base = static_cast<int32_t>(reinterpret_cast<uint64_t>(&tls_block) - fs_base);
  const auto at = [base](size_t offset) { return base + static_cast<int32_t>(offset); };
  return {at(offsetof(TlsBlock, rcx)),    at(offsetof(TlsBlock, rax)),
          at(offsetof(TlsBlock, log)),    at(offsetof(TlsBlock, target)),
          at(offsetof(TlsBlock, resume)), at(offsetof(TlsBlock, thread))};
}

}  // namespace auxtrail::unit
