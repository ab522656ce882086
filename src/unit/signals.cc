// See signals.h. Everything here may run in a signal handler.
#include "unit/signals.h"

#include <sys/mman.h>
#include <ucontext.h>

#include "unit/code_cache.h"
#include "unit/context.h"
#include "unit/continuous.h"
#include "unit/interpose.h"
#include "unit/overflow.h"
#include "unit/signal_set.h"
#include "unit/small_stacks.h"
#include "unit/stack_switch.h"
#include "unit/sys.h"
#include "unit/syscall_gate.h"
#include "unit/thread_state.h"
#include "unit/window.h"
#include "unit/window_leave.h"
#include "unit/window_parts.h"

namespace auxtrail::unit {
namespace {

// Those that an instruction can raise.
constexpr int kFive[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
constexpr uint64_t kFiveBits = signal_bit(SIGSEGV) | signal_bit(SIGBUS) | signal_bit(SIGFPE) |
                               signal_bit(SIGILL) | signal_bit(SIGTRAP);
constexpr int kSignals = 64;
// They end a program with a core dump: there the last AUX bytes are of use.
constexpr uint64_t kCrashBits = signal_bit(SIGABRT) | signal_bit(SIGQUIT) | signal_bit(SIGSYS) |
                                signal_bit(SIGXCPU) | signal_bit(SIGXFSZ);
constexpr uint64_t kNeverWatched = signal_bit(SIGKILL) | signal_bit(SIGSTOP) |
                                   uint64_t{3} << 31;  // SIGCANCEL and SIGSETXID are libc's own
constexpr int kTrapTrace = 2;                          // TRAP_TRACE
constexpr int kTrapPerf = 6;                           // TRAP_PERF

KernelAction program_action[kSignals + 1];
uint64_t watched_bits = kFiveBits;
uint32_t action_lock;
bool installed;
int owner_pid;
// 1; the kernel clears it in a child with memory of its own. Null where it can't be told to.
volatile uint64_t* fork_mark;

volatile uint64_t* map_fork_mark() {
  constexpr size_t kBytes = channel::kPageBytes;
  void* const page =
      sys::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  if (page == nullptr) return nullptr;
  if (sys::is_error(sys::call(SYS_madvise, sys::arg(page), kBytes, MADV_WIPEONFORK))) {
    sys::munmap(page, kBytes);
    return nullptr;
  }
  auto* const mark = static_cast<volatile uint64_t*>(page);
  *mark = 1;
  return mark;
}

// Calls `function`(signal) for each watched one.
template <class Function>
void for_each_watched(Function function) {
  for (uint64_t bits = watched_bits; bits != 0; bits &= bits - 1) {
    function(__builtin_ctzll(bits) + 1);
  }
}

bool is_default(const KernelAction& action) {
  return action.handler == reinterpret_cast<void*>(SIG_DFL);
}
bool is_ignored(const KernelAction& action) {
  return action.handler == reinterpret_cast<void*>(SIG_IGN);
}

// What rt_sigaction reports of it afterwards.
KernelAction as_kernel_keeps(KernelAction action) {
  constexpr uint64_t kExposeTagBits = 0x800;
  constexpr uint64_t kKnownFlags = SA_NOCLDSTOP | SA_NOCLDWAIT | SA_SIGINFO | kExposeTagBits |
                                   kRestorerFlag | SA_ONSTACK | SA_RESTART | SA_NODEFER |
                                   uint64_t{static_cast<unsigned>(SA_RESETHAND)};
  action.flags &= kKnownFlags;
  action.mask &= ~(signal_bit(SIGKILL) | signal_bit(SIGSTOP));
  return action;
}

long kernel_sigaction(int signal, const KernelAction* action, KernelAction* old) {
  return sys::call(SYS_rt_sigaction, signal, sys::arg(action), sys::arg(old), 8);
}
uint64_t set_mask(uint64_t mask) {
  uint64_t old = 0;
  (void)sys::call(SYS_rt_sigprocmask, SIG_SETMASK, sys::arg(&mask), sys::arg(&old), 8);
  return old;
}

// What the kernel is told for a given wish of the program's.
KernelAction effective(int signal, const KernelAction& wish) {
  const bool is_one_of_five = (signal_bit(signal) & kFiveBits) != 0;
  if (is_ignored(wish) && signal != SIGTRAP) return wish;
  if (is_default(wish) && !is_one_of_five && (signal_bit(signal) & kCrashBits) == 0) return wish;
  KernelAction action;
  action.handler = reinterpret_cast<void*>(&auxtrail_signal_entry);
  action.restorer = reinterpret_cast<void*>(&auxtrail_restore_rt);
  action.flags = SA_SIGINFO | kRestorerFlag;
  if (is_default(wish) || is_ignored(wish)) {
    action.flags |= SA_ONSTACK | SA_RESTART;
  } else {
    action.flags |= wish.flags & (SA_ONSTACK | SA_RESTART | SA_NOCLDSTOP | SA_NOCLDWAIT);
  }
  if (signal == SIGTRAP) action.flags |= SA_RESTART;
  // All but the five wait while we work; the program's own mask is set before its handler runs.
  action.mask = ~kFiveBits | signal_bit(signal);
  // Both frames may be built before either handler runs.
  if (keeps_trigger_off(action.flags)) action.mask |= signal_bit(SIGTRAP);
  return action;
}

// The action lock is only held with all signals blocked: a handler that calls sigaction() can't
// meet it.
class ActionLock {
 public:
  ActionLock() : old_mask_(set_mask(kAllSignals)) {
    while (__atomic_exchange_n(&action_lock, 1u, __ATOMIC_ACQUIRE) != 0) sys::sched_yield();
  }
  ~ActionLock() {
    __atomic_store_n(&action_lock, 0u, __ATOMIC_RELEASE);
    (void)set_mask(old_mask_);
  }
  ActionLock(const ActionLock&) = delete;
  ActionLock& operator=(const ActionLock&) = delete;

 private:
  uint64_t old_mask_;
};

// A sampler's cookie, kEntryCookie, or 0 if it is none's.
uint64_t cookie_of(int signal, const siginfo_t& info) {
  if (signal != SIGTRAP) return 0;
  uint64_t data = 0;
  if (info.si_code == kTrapPerf) {
    __builtin_memcpy(&data, reinterpret_cast<const char*>(&info) + 24, sizeof data);
  } else if (info.si_code == SI_TIMER) {
    data = reinterpret_cast<uint64_t>(info.si_value.sival_ptr);
  }
  return data - kTriggerCookie <= channel::kMaxSamplers ? data : 0;
}
bool is_trigger(int signal, const siginfo_t& info) { return cookie_of(signal, info) != 0; }
bool was_deferred(const siginfo_t& info) {
  if (info.si_code != kTrapPerf) return false;
  uint32_t flags;
  __builtin_memcpy(&flags, reinterpret_cast<const char*>(&info) + 36, sizeof flags);
  return (flags & 1) != 0;  // TRAP_PERF_FLAG_ASYNC
}

void send_to_this_thread(int signal, const siginfo_t& info) {
  (void)sys::call(SYS_rt_tgsigqueueinfo, sys::getpid(), sys::gettid(), signal, sys::arg(&info));
}

// A signal that was taken too early. With it blocked natively, only one for this very thread would
// be here now: another is the whole process's, for a thread that does not block it or waits for it.
void send_again(int signal, const siginfo_t& info, bool is_blocked) {
  if (is_blocked && info.si_code != SI_TKILL) {
    (void)sys::call(SYS_rt_sigqueueinfo, sys::getpid(), signal, sys::arg(&info));
  } else {
    send_to_this_thread(signal, info);
  }
}

struct EndRequest {
  ucontext_t* context;
  uint64_t pc;
  Way way;
  channel::Reason reason;
};
void end_on_own_stack(Thread* thread, EndRequest* request) {
  protect_frame(*request->context);
  window_end(*thread, *request->context, request->pc, request->way, request->reason);
}
void end_window(Thread& thread, EndRequest request) {
  call_on_stack(thread, &request, &end_on_own_stack, thread.stack_top);
  tls_block.state = UnitState::kIdle;
  replay_held_signals(thread, thread.saved_mask);
}

void hold(Thread& thread, int signal, const siginfo_t& info) {
  thread.held_signals |= signal_bit(signal);
  __builtin_memcpy(thread.held_info[signal - 1], &info, sizeof info);
}

// The kernel builds the frames of two signals that are due at once before either handler runs: the
// second one then interrupts the first one's handler at its first instruction.
bool is_at_trigger_entry(const ucontext_t& context) {
  return program_register(context, REG_RIP) == reinterpret_cast<uint64_t>(&auxtrail_signal_entry) &&
         program_register(context, REG_RDI) == SIGTRAP &&
         is_trigger(SIGTRAP,
                    *reinterpret_cast<const siginfo_t*>(program_register(context, REG_RSI)));
}

// In a handler of the unit's, before it calls the program's or returns.
bool is_in_handler(const ucontext_t& context) {
  const uint64_t ip = program_register(context, REG_RIP);
  return tls_block.in_route > 1 || (ip >= reinterpret_cast<uint64_t>(&auxtrail_signal_entry) &&
                                    ip < reinterpret_cast<uint64_t>(auxtrail_signal_code_end));
}

// The frame by which the thread leaves counts as its top.
bool is_on_unit_stack(const Thread& thread, const ucontext_t& context) {
  constexpr uint64_t kBytes = kUnitStackBytes + offsetof(Thread, signal_return);
  const uint64_t rsp = program_register(context, REG_RSP);
  return rsp - (thread.stack_top - kUnitStackBytes) <= kBytes;
}

// A signal that somebody sent to a thread which, as the program sees it, runs natively. It must not
// find the unit at work: it comes at the program's own position, when the trigger's handler or the
// window that just ended returns there, or when route_signal() has set the mask of the program's
// handler that it is about to call. False if nothing of the kind is under way.
bool delay_in_unit(Thread* thread, int signal, const siginfo_t& info, ucontext_t& context) {
  if (info.si_code > 0) return false;
  if (thread != nullptr && (tls_block.in_trigger != 0 || is_at_trigger_entry(context))) {
    hold(*thread, signal, info);  // on_overflow() replays it
    return true;
  }
  const bool is_leaving = thread != nullptr && is_on_unit_stack(*thread, context);
  if (!is_in_handler(context) && !is_leaving) return false;
  signal_mask(context) |= signal_bit(signal);
  send_to_this_thread(signal, info);
  return true;
}

bool is_blocked_by(const Thread& program, int signal) {
  return (program.saved_mask & signal_bit(signal)) != 0;
}

// One of the five gets through the gate's closed mask, though the program blocks it. Before the
// call it must be pending, for the call may open the mask and be ended by it.
void wait_in_gate(Thread& thread, int signal, const siginfo_t& info, ucontext_t& context) {
  if (call_was_made(context)) return hold(thread, signal, info);
  signal_mask(context) |= signal_bit(signal);  // the program's own mask is set next
  send_again(signal, info, true);
}

// A signal arrived while the thread was in translated code or in the unit. True if it is dealt
// with.
bool handle_in_unit(int signal, const siginfo_t& info, ucontext_t& context) {
  Thread* thread = tls_block.thread;
  if (thread == nullptr || tls_block.state == UnitState::kIdle) {
    return delay_in_unit(thread, signal, info, context);
  }
  const uint64_t ip = program_register(context, REG_RIP);
  if (tls_block.state == UnitState::kSyscall && is_in_gate(context)) {
    if (info.si_code <= 0 && gate_is_closed(context) && is_blocked_by(*thread, signal)) {
      wait_in_gate(*thread, signal, info, context);
      return true;
    }
    leave_gate(*thread, context);
    return false;
  }
  if (thread->stepping && signal == SIGTRAP && info.si_code == kTrapTrace) {
    continuous_step(*thread, context);
    return true;
  }
  // Sent by somebody, or a trap that no instruction of the window raised: a perf event's of the
  // program, a debugger's.
  if (info.si_code <= 0 || (signal == SIGTRAP && info.si_code != SI_KERNEL)) {
    hold(*thread, signal, info);
    return true;
  }
  if (!code_cache.in_cache(ip)) {
    if (signal != SIGSEGV && signal != SIGBUS) return false;
    if (!is_on_unit_stack(*thread, context)) return false;
    abort_translation(*thread, context, reinterpret_cast<uint64_t>(info.si_addr));
    return true;
  }
  if (signal == SIGTRAP && ip - 1 == code_cache.exit_trap()) {
    end_window(*thread, {&context, tls_block.exit_pc, kEmptyWay, thread->end_reason});
    return true;
  }
  if (signal == SIGTRAP) {  // a superblock was dropped: its first byte is int3 now
    const Block* const dropped = code_cache.block_at(ip - 1);
    if (dropped == nullptr) return false;
    end_window(*thread, {&context, dropped->pc, kEmptyWay, channel::Reason::kInvalidated});
    return true;
  }
  const Block* block = nullptr;
  const InsnMark* mark = nullptr;
  if (!code_cache.locate(ip, &block, &mark)) return false;
  if (mark->spilled != 0) {
    context.uc_mcontext.gregs[REG_RAX] = static_cast<greg_t>(tls_block.rax);
  }
  // The instruction runs again natively and raises the signal where the program can see it.
  end_window(*thread, {&context, code_cache.pc_of(*block, *mark), code_cache.way_to(*block, *mark),
                       channel::Reason::kFault});
  return true;
}

// Lets the kernel carry out the default action at the program's own position.
void default_action(int signal, siginfo_t& info, ucontext_t& context) {
  KernelAction reset;
  reset.flags = kRestorerFlag;
  reset.restorer = reinterpret_cast<void*>(&auxtrail_restore_rt);
  (void)kernel_sigaction(signal, &reset, nullptr);
  continuous_fatal_signal(signal, reinterpret_cast<uint64_t>(info.si_addr), context);
  const bool raised = info.si_code > 0 && (signal_bit(signal) & kFiveBits) != 0;
  if (raised && signal != SIGTRAP) return;  // the instruction faults again
  (void)set_mask(kAllSignals);
  send_to_this_thread(signal, info);
  signal_mask(context) &= ~signal_bit(signal);
}

// What the interrupted code had blocked. In sigsuspend() that is its temporary mask, while the
// frame has the one that comes after it.
uint64_t interrupted_mask(ucontext_t& context) {
  constexpr uint64_t kFramesOfSigsuspend = 512;  // less than any signal's frame
  const uint64_t depth = tls_block.suspend_rsp - program_register(context, REG_RSP);
  const bool suspended = tls_block.suspend_rsp != 0 && depth < kFramesOfSigsuspend;
  return suspended ? tls_block.suspend_mask : signal_mask(context);
}

// The program's own signal: returns its handler, or null if there is nothing to call.
void* deliver_to_program(int signal, siginfo_t& info, ucontext_t& context) {
  const KernelAction action = program_action[signal];
  if (is_default(action) || (is_ignored(action) && info.si_code > 0)) {
    default_action(signal, info, context);
    return nullptr;
  }
  if (is_ignored(action)) return nullptr;
  if ((action.flags & SA_RESETHAND) != 0) {
    const KernelAction reset;
    exchange_action(signal, &reset, nullptr);
  }
  uint64_t mask = interrupted_mask(context) | action.mask;
  if ((action.flags & SA_NODEFER) == 0) mask |= signal_bit(signal);
  if (keeps_trigger_off(action.flags)) mask |= signal_bit(SIGTRAP);
  (void)set_mask(mask);
  return action.handler;
}

// What comes of a signal: the program's handler for it, or null if there is nothing to call.
void* route(int signal, siginfo_t& info, ucontext_t& context) {
  if (is_trigger(signal, info)) {
    on_overflow(context, {.number = cookie_of(signal, info) - kTriggerCookie,
                          .deferred = was_deferred(info),
                          .address = reinterpret_cast<uint64_t>(info.si_addr)});
    return nullptr;
  }
  if (handle_in_unit(signal, info, context)) return nullptr;
  if (signal == SIGTRAP && tls_block.trap_blocked != 0) {
    // An instruction's own trap while blocked would kill. But the belief may be stale (siglongjmp
    // restores masks without telling us), so it goes to the program's handler, if there is one.
    if (info.si_code <= 0) {
      __builtin_memcpy(tls_block.trap_info, &info, sizeof tls_block.trap_info);
      tls_block.trap_pending = 1;
      return nullptr;
    }
  }
  return deliver_to_program(signal, info, context);
}

}  // namespace

extern "C" __attribute__((visibility("hidden"))) void* auxtrail_route_signal(int signal,
                                                                             siginfo_t* info,
                                                                             ucontext_t* context) {
  ++tls_block.in_route;
  void* const handler = route(signal, *info, *context);
  --tls_block.in_route;
  return handler;
}

bool is_watched_signal(int signal) {
  return signal > 0 && signal <= kSignals && (watched_bits & signal_bit(signal)) != 0;
}

bool handlers_installed() {
  if (!installed) return false;
  if (fork_mark == nullptr || *fork_mark != 0) return true;
  remove_handlers();
  return false;
}

void remove_handlers() {
  installed = false;
  for_each_watched([](int signal) {
    KernelAction now;
    (void)kernel_sigaction(signal, nullptr, &now);
    if (now.handler != reinterpret_cast<void*>(&auxtrail_signal_entry)) return;
    KernelAction action = program_action[signal];
    action.flags |= kRestorerFlag;
    if (action.restorer == nullptr) {
      action.restorer = reinterpret_cast<void*>(&auxtrail_restore_rt);
    }
    (void)kernel_sigaction(signal, &action, nullptr);
  });
  hand_over_trap();
}

bool is_own_process() { return sys::getpid() == owner_pid; }

bool signals_after_fork() {
  if (!installed) return false;
  owner_pid = sys::getpid();
  if (fork_mark != nullptr) *fork_mark = 1;
  __atomic_store_n(&action_lock, 0u, __ATOMIC_RELEASE);
  return true;
}

void replay_held_signals(Thread& thread, uint64_t program_mask) {
  if (thread.held_signals == 0) return;
  (void)set_mask(kAllSignals);
  for (const int signal : kFive) {
    if ((thread.held_signals & signal_bit(signal)) == 0) continue;
    siginfo_t info;
    __builtin_memcpy(&info, thread.held_info[signal - 1], sizeof info);
    send_again(signal, info, (program_mask & signal_bit(signal)) != 0);
  }
  thread.held_signals = 0;
}

int install_handlers() {
  const ActionLock lock;
  for (const int signal : kFive) {
    const long result = kernel_sigaction(signal, nullptr, &program_action[signal]);
    if (sys::is_error(result)) return static_cast<int>(-result);
  }
  for (const int signal : kFive) {
    const KernelAction action = effective(signal, program_action[signal]);
    const long result = kernel_sigaction(signal, &action, nullptr);
    if (sys::is_error(result)) return static_cast<int>(-result);
  }
  owner_pid = sys::getpid();
  fork_mark = map_fork_mark();
  installed = true;
  return 0;
}

void watch_all_signals() {
  if (watched_bits != kFiveBits) return;  // in a forked child
  const ActionLock lock;
  for (int signal = 1; signal <= kSignals; ++signal) {
    if ((signal_bit(signal) & (kFiveBits | kNeverWatched)) != 0) continue;
    if (sys::is_error(kernel_sigaction(signal, nullptr, &program_action[signal]))) continue;
    watched_bits |= signal_bit(signal);
    const KernelAction action = effective(signal, program_action[signal]);
    (void)kernel_sigaction(signal, &action, nullptr);
  }
}

void tell_kernel_again() {
  const ActionLock lock;
  for_each_watched([](int signal) {
    const KernelAction action = effective(signal, program_action[signal]);
    (void)kernel_sigaction(signal, &action, nullptr);
  });
}

void exchange_action(int signal, const KernelAction* action, KernelAction* old) {
  const ActionLock lock;
  KernelAction& mine = program_action[signal];
  if (!is_own_process()) {
    KernelAction before;
    (void)kernel_sigaction(signal, action, &before);
    const bool was_ours = before.handler == reinterpret_cast<void*>(&auxtrail_signal_entry);
    if (old != nullptr) *old = was_ours ? mine : before;
    return;
  }
  if (old != nullptr) *old = mine;
  if (action == nullptr) return;
  mine = as_kernel_keeps(*action);
  if (signal == SIGTRAP && is_ignored(mine)) tls_block.trap_pending = 0;
  const KernelAction told = effective(signal, mine);
  (void)kernel_sigaction(signal, &told, nullptr);
}

bool handlers_in_place() {
  for (const int signal : kFive) {
    // Its handler is what asks, so it is in place (or calls what was there before).
    if (signal == SIGTRAP) continue;
    KernelAction now;
    (void)kernel_sigaction(signal, nullptr, &now);
    const bool ours = now.handler == reinterpret_cast<void*>(&auxtrail_signal_entry);
    if (!ours && !is_ignored(now)) return false;
  }
  return true;
}

}  // namespace auxtrail::unit
