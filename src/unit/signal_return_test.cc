#include "unit/signal_return.h"

#include <gmock/gmock.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

#include "unit/thread_state.h"

extern "C" {
// What stack_switch.S calls; no signal comes that way here.
__attribute__((visibility("hidden"))) void* auxtrail_route_signal(int, void*, void*) {
  return nullptr;
}

// Where go() leads: stores what it finds and calls landed().
void landing();
void landed();
struct Found {
  uint64_t general[16];  // rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15
  uint64_t flags;
  uint64_t vector[2];  // xmm9
  uint64_t wide[8];    // zmm17, if has_avx512
  uint32_t mxcsr;
} found;
uint8_t has_avx512;
}

asm(R"(
        .globl landing
landing:
        movq %rax, found(%rip)
        movq %rcx, found+8(%rip)
        movq %rdx, found+16(%rip)
        movq %rbx, found+24(%rip)
        movq %rsp, found+32(%rip)
        movq %rbp, found+40(%rip)
        movq %rsi, found+48(%rip)
        movq %rdi, found+56(%rip)
        movq %r8, found+64(%rip)
        movq %r9, found+72(%rip)
        movq %r10, found+80(%rip)
        movq %r11, found+88(%rip)
        movq %r12, found+96(%rip)
        movq %r13, found+104(%rip)
        movq %r14, found+112(%rip)
        movq %r15, found+120(%rip)
        movdqu %xmm9, found+136(%rip)
        pushfq
        popq found+128(%rip)
        stmxcsr found+216(%rip)
        cmpb $0, has_avx512(%rip)
        je 1f
        vmovdqu64 %zmm17, found+152(%rip)
1:      call landed
)");

namespace auxtrail::unit {
namespace {

constexpr greg_t kRegisters[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                 REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                 REG_R12, REG_R13, REG_R14, REG_R15};
constexpr greg_t kCarryAndZero = 0x41;
constexpr greg_t kStatusFlags = 0x8d5;

SignalReturn signal_return;
sigjmp_buf back;
uint64_t interrupted_ip;
alignas(64) char stack[65536];

void adopt(int, siginfo_t*, void* context) {
  signal_return.adopt(*static_cast<ucontext_t*>(context));
}
void note_ip(int, siginfo_t*, void* context) {
  interrupted_ip =
      static_cast<uint64_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
}

void handle(int signal, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO;
  ASSERT_EQ(sigaction(signal, &action, nullptr), 0);
}

sigset_t only(int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  return set;
}

class SignalReturnTest : public ::testing::Test {
 protected:
  void SetUp() override {
    tells_state_in_use_ = SignalReturn::note_processor();
    handle(SIGUSR1, adopt);
    ASSERT_EQ(raise(SIGUSR1), 0);
    if (!signal_return.usable()) GTEST_SKIP() << "this processor's signal frames have another form";
    auto& registers = signal_return.context().uc_mcontext.gregs;
    for (size_t i = 0; i < std::size(kRegisters); ++i) {
      registers[kRegisters[i]] = static_cast<greg_t>(0x1111111111111100 + i);
    }
    registers[REG_RSP] = reinterpret_cast<greg_t>(stack + sizeof stack);
    registers[REG_RIP] = reinterpret_cast<greg_t>(&landing);
    registers[REG_EFL] |= kCarryAndZero;
  }
  bool tells_state_in_use_ = false;
  void TearDown() override {
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, nullptr);
  }

  // With `vector` in xmm9 and, where there is one, `wide` in zmm17; comes back when it landed.
  static void go(const uint64_t (&vector)[2], const uint64_t (&wide)[8] = {}) {
    if (sigsetjmp(back, 0) != 0) return;
    if (has_avx512 != 0) asm volatile("vmovdqu64 %0, %%zmm17" : : "m"(wide));
    asm volatile("movdqu %0, %%xmm9" : : "m"(vector) : "xmm9");
    signal_return.go();
  }
};

TEST_F(SignalReturnTest, EstablishesRegistersFlagsAndVectorState) {
  found = {};
  go({0x0123456789abcdef, 0xfedcba9876543210});
  const auto& registers = signal_return.context().uc_mcontext.gregs;
  for (size_t i = 0; i < std::size(kRegisters); ++i) {
    EXPECT_EQ(found.general[i], static_cast<uint64_t>(registers[kRegisters[i]])) << i;
  }
  EXPECT_EQ(static_cast<greg_t>(found.flags) & kStatusFlags, registers[REG_EFL] & kStatusFlags);
  EXPECT_EQ(found.vector[0], 0x0123456789abcdef);
  EXPECT_EQ(found.vector[1], 0xfedcba9876543210);
}

// What the window's code may have changed is as it left it, not as the trigger found it.
TEST_F(SignalReturnTest, KeepsExtendedStateAndControlRegisters) {
  has_avx512 = __builtin_cpu_supports("avx512f") != 0 ? 1 : 0;
  found = {};
  const uint32_t before = __builtin_ia32_stmxcsr();
  const uint32_t changed = before ^ 0x8000;  // flush to zero
  __builtin_ia32_ldmxcsr(changed);
  const uint64_t wide[8] = {1, 2, 3, 4, 5, 6, 7, 0x8000000000000000};
  go({0, 0}, wide);
  __builtin_ia32_ldmxcsr(before);
  EXPECT_EQ(found.mxcsr, changed);
  if (has_avx512 == 0) GTEST_SKIP() << "no AVX-512: only MXCSR was looked at";
  EXPECT_THAT(found.wide, ::testing::ElementsAreArray(wide));
}

// As when AMX comes into use during a window: the trigger's frame has no room for it.
TEST_F(SignalReturnTest, SeesStateThatItsFrameHasNoRoomFor) {
  if (!tells_state_in_use_) GTEST_SKIP() << "this processor does not tell";
  if (__builtin_cpu_supports("avx") == 0) GTEST_SKIP() << "no AVX to play the late state";
  EXPECT_TRUE(signal_return.covers_state_in_use());
  handle(SIGUSR1, [](int, siginfo_t*, void* context) {
    constexpr uint64_t kAvx = 1U << 2;
    auto* const frame = static_cast<ucontext_t*>(context);
    auto* const at = reinterpret_cast<std::byte*>(frame->uc_mcontext.fpregs) + 464;
    _fpx_sw_bytes form;
    std::memcpy(&form, at, sizeof form);
    const _fpx_sw_bytes whole = form;
    form.xstate_bv &= ~kAvx;
    std::memcpy(at, &form, sizeof form);
    signal_return.adopt(*frame);
    std::memcpy(at, &whole, sizeof whole);
  });
  ASSERT_EQ(raise(SIGUSR1), 0);
  ASSERT_TRUE(signal_return.usable());
  asm volatile("vzeroall"
               :
               :
               : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
                 "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
  asm volatile("vpcmpeqd %%ymm7, %%ymm7, %%ymm7" : : : "xmm7");
  EXPECT_FALSE(signal_return.covers_state_in_use());
  asm volatile("vzeroupper");
}

TEST_F(SignalReturnTest, KeepsTheAlternateStack) {
  static char memory[65536];
  const stack_t mine{memory, 0, sizeof memory};
  stack_t old{};
  ASSERT_EQ(sigaltstack(&mine, &old), 0);
  SetUp();  // the frame to return by tells of the stack
  go({0, 0});
  stack_t now{};
  ASSERT_EQ(sigaltstack(&old, &now), 0);
  EXPECT_EQ(now.ss_sp, mine.ss_sp);
  EXPECT_EQ(now.ss_size, mine.ss_size);
  EXPECT_EQ(now.ss_flags, 0);
}

TEST_F(SignalReturnTest, PendingSignalArrivesWhereTheProgramGoesOn) {
  handle(SIGUSR2, note_ip);
  interrupted_ip = 0;
  const sigset_t blocked = only(SIGUSR2);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &blocked, nullptr), 0);
  ASSERT_EQ(raise(SIGUSR2), 0);
  EXPECT_EQ(interrupted_ip, 0U);
  signal_return.context().uc_sigmask = only(SIGHUP);
  go({0, 0});
  EXPECT_EQ(interrupted_ip, reinterpret_cast<uint64_t>(&landing));
  sigset_t now;
  pthread_sigmask(SIG_SETMASK, nullptr, &now);
  EXPECT_EQ(sigismember(&now, SIGHUP), 1);
  EXPECT_EQ(sigismember(&now, SIGUSR2), 0);
}

// Where a Thread has it, with a signal at each instruction on the way, as the trigger's may come:
// its frames must not overwrite the thread's state.
TEST_F(SignalReturnTest, SignalsOnTheWayOutLeaveTheThreadAlone) {
  alignas(64) static std::byte memory[kUnitStackBytes + sizeof(Thread)];
  constexpr size_t kThread = kUnitStackBytes;
  constexpr size_t kLeaving = kThread + offsetof(Thread, signal_return);
  constexpr auto kFill = std::byte{0x5a};
  std::fill(std::begin(memory), std::end(memory), kFill);
  static SignalReturn* leaving = nullptr;
  leaving = new (memory + kLeaving) SignalReturn();
  handle(SIGUSR1,
         [](int, siginfo_t*, void* frame) { leaving->adopt(*static_cast<ucontext_t*>(frame)); });
  ASSERT_EQ(raise(SIGUSR1), 0);
  auto& registers = leaving->context().uc_mcontext.gregs;
  registers[REG_RSP] = reinterpret_cast<greg_t>(stack + sizeof stack);
  registers[REG_RIP] = reinterpret_cast<greg_t>(&landing);
  static volatile sig_atomic_t steps;
  steps = 0;
  handle(SIGTRAP, [](int, siginfo_t*, void*) { steps = steps + 1; });
  if (sigsetjmp(back, 0) == 0) {
    asm volatile("pushfq; orl $0x100, (%%rsp); popfq" : : : "memory", "cc");
    leaving->go();
  }
  EXPECT_GE(steps, 8);
  const auto is_untouched = [](std::byte value) { return value == kFill; };
  EXPECT_TRUE(std::all_of(memory + kThread, memory + kLeaving, is_untouched));
  EXPECT_TRUE(
      std::all_of(memory + kLeaving + sizeof(SignalReturn), std::end(memory), is_untouched));
}

TEST(SignalReturn, RefusesFramesItDoesNotKnow) {
  ucontext_t context{};
  SignalReturn fresh{};
  fresh.adopt(context);  // no extended state at all
  EXPECT_FALSE(fresh.usable());
  alignas(64) std::byte state[4096]{};
  context.uc_mcontext.fpregs = reinterpret_cast<fpregset_t>(state);
  fresh.adopt(context);  // the old form, without xsave
  EXPECT_FALSE(fresh.usable());
  _fpx_sw_bytes form{};
  form.magic1 = FP_XSTATE_MAGIC1;
  form.xstate_size = 11008;  // with AMX tiles
  std::memcpy(state + 464, &form, sizeof form);
  fresh.adopt(context);
  EXPECT_FALSE(fresh.usable());
}

}  // namespace
}  // namespace auxtrail::unit

void landed() { siglongjmp(auxtrail::unit::back, 1); }
