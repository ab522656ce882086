// SignalReturn: ends a window without a trap.
//
// rt_sigreturn is the one system call that sets every register, the extended state, the alternate
// stack and the signal mask at once, so that a pending signal arrives at the program's next
// instruction and nowhere before. It only needs a frame like the one a signal leaves. This one is
// made of the trigger's frame, which has what a window does not change, and costs a quarter of a
// trap with its handler.
//
// Reference: Linux arch/x86/include/uapi/asm/sigcontext.h (layout), sigreturn(2); Intel SDM volume
// 1, 13.2 (CPUID leaf 0DH) and volume 2, XGETBV.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>

namespace auxtrail::unit {

class SignalReturn {
 public:
  // Asks the processor what covers_state_in_use() needs to know: false if it does not tell. Once,
  // at the unit's start.
  static bool note_processor();

  // Takes over from the trigger's frame what the program can't change during a window. Afterwards
  // usable() tells whether the frame's extended state has the form and size known here.
  void adopt(const ucontext_t& trigger);
  [[nodiscard]] bool usable() const { return usable_; }
  // Whether the trigger's frame has room for all extended state that is in use by now. AMX comes
  // into use with its first instruction, which may be one of the window's: Linux enlarges the
  // frames of a thread only then.
  [[nodiscard]] bool covers_state_in_use() const;

  // What go() is to establish: general registers and signal mask are the caller's to fill in.
  [[nodiscard]] ucontext_t& context() { return context_; }
  // Goes there, with the extended state (vector registers and the like) as it is.
  [[noreturn]] void go();

 private:
  // x87, SSE, AVX, AVX-512 and protection keys. The kernel's frame of a thread that used AMX before
  // the window is larger, and then a trap ends its windows.
  static constexpr size_t kMaxExtendedBytes = 3072;

  ucontext_t context_;  // of which the kernel knows kKernelContextBytes
  uint64_t features_;   // of the extended state, as in XCR0
  bool usable_;
  alignas(64) std::byte extended_[kMaxExtendedBytes];
};

}  // namespace auxtrail::unit
