// Functions of libc that the unit stands in front of, because they change what it relies on: signal
// dispositions, executable mappings, and new threads. Each does exactly what libc's does and tells
// the unit first (mappings) or keeps the unit's handlers in place (signals). exports.map lists all
// functions that are interposed, here and in the files beside.
#include "unit/interpose.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>

#include "unit/code_cache.h"
#include "unit/entry.h"
#include "unit/export.h"
#include "unit/libc_function.h"
#include "unit/session.h"
#include "unit/signal_set.h"
#include "unit/signals.h"
#include "unit/small_stacks.h"
#include "unit/sys.h"
#include "unit/thread_state.h"
#include "unit/trigger.h"

namespace auxtrail::unit {
namespace {

using SignalFunction = sighandler_t(int, sighandler_t);
using PthreadCreateFunction = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

Real<SigactionFunction> real_sigaction("sigaction");
Real<SignalFunction> real_signal("signal");
Real<SignalFunction> real_sysv_signal("sysv_signal");
Real<int(void*)> real_dlclose("dlclose");
Real<PthreadCreateFunction> real_pthread_create("pthread_create");
Real<long(enum __ptrace_request, ...)> real_ptrace("ptrace");

long with_errno(long result) {
  if (!sys::is_error(result)) return result;
  errno = static_cast<int>(-result);
  return -1;
}

using sys::page_down;
using sys::page_up;

// Holds the cache's lock in the program's normal flow, with all signals blocked: a handler that
// came here too would wait for itself, and one that left by siglongjmp would take the lock along.
class CacheLock {
 public:
  CacheLock() {
    (void)sys::call(SYS_rt_sigprocmask, SIG_SETMASK, sys::arg(&kAllSignals), sys::arg(&old_mask_),
                    8);
    if (is_own_process()) {
      code_cache.lock();
      held_ = true;
      return;
    }
    // A vfork child shares the lock with its parent's threads. After a raw fork the thread that
    // holds it may not exist here, but then nobody else does either.
    constexpr int kPatience = 1000;
    for (int i = 0; i < kPatience && !held_; ++i) {
      held_ = code_cache.try_lock();
      if (!held_) sys::sched_yield();
    }
  }
  ~CacheLock() {
    if (held_) code_cache.unlock();
    (void)sys::call(SYS_rt_sigprocmask, SIG_SETMASK, sys::arg(&old_mask_), 0, 8);
  }
  CacheLock(const CacheLock&) = delete;
  CacheLock& operator=(const CacheLock&) = delete;

 private:
  uint64_t old_mask_ = 0;
  bool held_ = false;
};

// The program is about to replace, remove or write to [start, end).
void drop_translations(uint64_t start, uint64_t end, bool becomes_writable) {
  if (!code_cache.map().overlaps(start, end)) return;
  if (becomes_writable) code_cache.map().mark_patched(start, end);
  code_cache.drop(start, end);
}
void before_change(uint64_t start, uint64_t end, bool becomes_writable) {
  if (!handlers_installed()) return;
  const CacheLock lock;
  drop_translations(start, end, becomes_writable);
}

// A change of mappings: translations go before it, and nothing is looked at anew until it is done.
class MappingChange {
 public:
  MappingChange(void* address, size_t bytes, bool becomes_writable)
      : watched_(handlers_installed()) {
    if (!watched_) return;
    const auto start = reinterpret_cast<uint64_t>(address);
    const CacheLock lock;
    drop_translations(page_down(start), page_up(start + bytes), becomes_writable);
    code_cache.begin_change();
  }
  ~MappingChange() {
    if (!watched_) return;
    const CacheLock lock;
    code_cache.end_change();
  }
  MappingChange(const MappingChange&) = delete;
  MappingChange& operator=(const MappingChange&) = delete;

 private:
  bool watched_;
};

void before_mprotect(void* address, size_t bytes, int protection) {
  const auto start = reinterpret_cast<uint64_t>(address);
  before_change(page_down(start), page_up(start + bytes), (protection & PROT_WRITE) != 0);
}
void before_munmap(void* address, size_t bytes) {
  const auto start = reinterpret_cast<uint64_t>(address);
  before_change(page_down(start), page_up(start + bytes), false);
}

void* map_pages(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  const auto map = [&] {
    return reinterpret_cast<void*>(with_errno(sys::call(
        SYS_mmap, sys::arg(address), static_cast<long>(bytes), protection, flags, fd, offset)));
  };
  if ((flags & MAP_FIXED) == 0) return map();  // replaces nothing
  const MappingChange change(address, bytes, false);
  return map();
}

KernelAction to_kernel(const struct sigaction& action) {
  KernelAction result;
  result.handler = reinterpret_cast<void*>(action.sa_handler);
  result.flags = static_cast<uint64_t>(static_cast<unsigned>(action.sa_flags)) | kRestorerFlag;
  result.restorer = reinterpret_cast<void*>(&auxtrail_restore_rt);  // libc gives it one too
  result.mask = *reinterpret_cast<const uint64_t*>(&action.sa_mask);
  return result;
}
void from_kernel(const KernelAction& action, struct sigaction* result) {
  result->sa_handler = reinterpret_cast<sighandler_t>(action.handler);
  result->sa_flags = static_cast<int>(action.flags);
  (void)sigemptyset(&result->sa_mask);
  *reinterpret_cast<uint64_t*>(&result->sa_mask) = action.mask;
  result->sa_restorer = reinterpret_cast<void (*)()>(action.restorer);
}

sighandler_t set_simple_handler(int signal, sighandler_t handler, uint64_t flags, uint64_t mask) {
  KernelAction wish;
  wish.handler = reinterpret_cast<void*>(handler);
  wish.flags = flags | kRestorerFlag;
  wish.restorer = reinterpret_cast<void*>(&auxtrail_restore_rt);
  wish.mask = mask;
  KernelAction old;
  exchange_action(signal, &wish, &old);
  return reinterpret_cast<sighandler_t>(old.handler);
}

bool ours(int signal) { return handlers_installed() && is_watched_signal(signal); }

int change_action(int signal, const struct sigaction* action, struct sigaction* old) {
  if (!ours(signal)) {
    return change_other_action(signal, action, old, real_sigaction.get());
  }
  KernelAction wish;
  KernelAction before;
  if (action != nullptr) wish = to_kernel(*action);
  exchange_action(signal, action != nullptr ? &wish : nullptr, &before);
  if (old != nullptr) from_kernel(before, old);
  return 0;
}

sighandler_t bsd_handler(int signal, sighandler_t handler) {
  if (!ours(signal) || handler == SIG_ERR) return real_signal(signal, handler);
  return set_simple_handler(signal, handler, is_interrupting(signal) ? 0 : SA_RESTART,
                            signal_bit(signal));
}
sighandler_t system_v_handler(int signal, sighandler_t handler) {
  if (!ours(signal) || handler == SIG_ERR) return real_sysv_signal(signal, handler);
  return set_simple_handler(signal, handler, uint64_t{SA_RESETHAND} | SA_NODEFER, 0);
}

struct ThreadStart {
  void* (*function)(void*);
  void* argument;
  uint32_t trap_blocked;  // inherited, like the mask it stands for
};

}  // namespace

// Called by entry.S in a new thread.
struct FirstCall {
  void* (*function)(void*);
  void* argument;
  uint64_t enters;
};
extern "C" __attribute__((visibility("hidden"))) const FirstCall* auxtrail_start_thread(
    void* given) {
  static __thread FirstCall call __attribute__((tls_model("initial-exec")));
  const ThreadStart start = *static_cast<ThreadStart*>(given);
  free(given);
  tls_block.trap_blocked = start.trap_blocked;
  trigger_start_thread();
  call = {start.function, start.argument, wants_entry() ? uint64_t{1} : 0};
  return &call;
}

bool forbids_our_calls(int option) {
  constexpr int kSyscallUserDispatch = 59;  // PR_SET_SYSCALL_USER_DISPATCH
  return option == PR_SET_SECCOMP || option == kSyscallUserDispatch;
}

void resolve_interposed() {
  (void)real_sigaction.get();
  (void)real_signal.get();
  (void)real_sysv_signal.get();
  (void)real_dlclose.get();
  (void)real_pthread_create.get();
  (void)real_ptrace.get();
  resolve_interposed_waits();
  resolve_interposed_old_signals();
}

extern "C" __attribute__((visibility("hidden"))) void auxtrail_before_syscall(long number, long a,
                                                                              long b, long c,
                                                                              long d, long e) {
  switch (number) {
    case SYS_mmap:
      if ((d & MAP_FIXED) != 0) before_munmap(reinterpret_cast<void*>(a), static_cast<size_t>(b));
      break;
    case SYS_munmap:
      before_munmap(reinterpret_cast<void*>(a), static_cast<size_t>(b));
      break;
    case SYS_mremap:
      before_munmap(reinterpret_cast<void*>(a), static_cast<size_t>(b));
      if ((d & MREMAP_FIXED) != 0)
        before_munmap(reinterpret_cast<void*>(e), static_cast<size_t>(c));
      break;
    case SYS_seccomp:
      session_stop();
      break;
    case SYS_ptrace:
      if (a == PTRACE_TRACEME) session_stop();
      break;
    case SYS_prctl:
      if (forbids_our_calls(static_cast<int>(a))) session_stop();
      break;
    case SYS_mprotect:
    case SYS_pkey_mprotect:
      before_mprotect(reinterpret_cast<void*>(a), static_cast<size_t>(b), static_cast<int>(c));
      break;
    default:
      break;
  }
}

}  // namespace auxtrail::unit

using namespace auxtrail::unit;  // NOLINT: the exported functions below are libc's names

AUXTRAIL_EXPORT int sigaction(int signal, const struct sigaction* action,
                              struct sigaction* old) noexcept {
  return change_action(signal, action, old);
}
AUXTRAIL_EXPORT int __sigaction(int signal, const struct sigaction* action,
                                struct sigaction* old) noexcept {
  return change_action(signal, action, old);
}
AUXTRAIL_EXPORT sighandler_t signal(int signal, sighandler_t handler) noexcept {
  return bsd_handler(signal, handler);
}
AUXTRAIL_EXPORT sighandler_t bsd_signal(int signal, sighandler_t handler) noexcept {
  return bsd_handler(signal, handler);
}
AUXTRAIL_EXPORT sighandler_t ssignal(int signal, sighandler_t handler) noexcept {
  return bsd_handler(signal, handler);
}
AUXTRAIL_EXPORT sighandler_t sysv_signal(int signal, sighandler_t handler) noexcept {
  return system_v_handler(signal, handler);
}
AUXTRAIL_EXPORT sighandler_t __sysv_signal(int signal, sighandler_t handler) noexcept {
  return system_v_handler(signal, handler);
}
AUXTRAIL_EXPORT void* mmap(void* address, size_t bytes, int protection, int flags, int fd,
                           off_t offset) noexcept {
  return map_pages(address, bytes, protection, flags, fd, offset);
}
AUXTRAIL_EXPORT void* mmap64(void* address, size_t bytes, int protection, int flags, int fd,
                             off64_t offset) noexcept {
  return map_pages(address, bytes, protection, flags, fd, offset);
}
AUXTRAIL_EXPORT int munmap(void* address, size_t bytes) noexcept {
  const MappingChange change(address, bytes, false);
  return static_cast<int>(
      with_errno(sys::call(SYS_munmap, sys::arg(address), static_cast<long>(bytes))));
}
AUXTRAIL_EXPORT int mprotect(void* address, size_t bytes, int protection) noexcept {
  const MappingChange change(address, bytes, (protection & PROT_WRITE) != 0);
  return static_cast<int>(
      with_errno(sys::call(SYS_mprotect, sys::arg(address), static_cast<long>(bytes), protection)));
}
AUXTRAIL_EXPORT int pkey_mprotect(void* address, size_t bytes, int protection, int key) noexcept {
  const MappingChange change(address, bytes, (protection & PROT_WRITE) != 0);
  return static_cast<int>(
      with_errno(sys::call(key == -1 ? SYS_mprotect : SYS_pkey_mprotect, sys::arg(address),
                           static_cast<long>(bytes), protection, key)));
}
AUXTRAIL_EXPORT void* mremap(void* address, size_t old_bytes, size_t new_bytes, int flags,
                             ...) noexcept {
  void* target = nullptr;
  if ((flags & MREMAP_FIXED) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    target = va_arg(arguments, void*);
    va_end(arguments);
    before_munmap(target, new_bytes);
  }
  const MappingChange change(address, old_bytes, false);
  return reinterpret_cast<void*>(
      with_errno(sys::call(SYS_mremap, sys::arg(address), static_cast<long>(old_bytes),
                           static_cast<long>(new_bytes), flags, sys::arg(target))));
}

// Which mappings a dlclose will remove nobody knows beforehand (dependencies go too), so all code
// that was loaded later than the unit is forgotten first; what stays is translated anew.
AUXTRAIL_EXPORT int dlclose(void* handle) noexcept {
  if (!handlers_installed()) return real_dlclose(handle);
  {
    const CacheLock lock;
    code_cache.suspend_loaded_code();
  }
  const int result = real_dlclose(handle);
  const CacheLock lock;
  code_cache.resume_loaded_code();
  return result;
}

AUXTRAIL_EXPORT int prctl(int option, ...) noexcept {
  va_list arguments;
  va_start(arguments, option);
  const long a = va_arg(arguments, long);
  const long b = va_arg(arguments, long);
  const long c = va_arg(arguments, long);
  const long d = va_arg(arguments, long);
  va_end(arguments);
  if (forbids_our_calls(option)) session_stop();
  return static_cast<int>(with_errno(sys::call(SYS_prctl, option, a, b, c, d)));
}

// A debugger would see every signal of the unit's.
AUXTRAIL_EXPORT long ptrace(enum __ptrace_request request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  const long a = va_arg(arguments, long);
  const long b = va_arg(arguments, long);
  const long c = va_arg(arguments, long);
  va_end(arguments);
  if (request == PTRACE_TRACEME) session_stop();
  return real_ptrace(request, a, b, c);
}

AUXTRAIL_EXPORT int pthread_create(pthread_t* thread, const pthread_attr_t* attr,
                                   void* (*function)(void*), void* argument) noexcept {
  pthread_attr_t roomier;
  size_t stack_bytes = 0;
  if (handlers_installed() && needs_headroom(attr, &stack_bytes)) {
    roomier = *attr;
    if (pthread_attr_setstacksize(&roomier, stack_bytes) == 0) attr = &roomier;
  }
  if (!trigger_is_timer() && tls_block.trap_blocked == 0 && !wants_entry()) {
    return real_pthread_create(thread, attr, function, argument);
  }
  auto* start = static_cast<ThreadStart*>(malloc(sizeof(ThreadStart)));
  if (start == nullptr) return real_pthread_create(thread, attr, function, argument);
  *start = {function, argument, tls_block.trap_blocked};
  const int result = real_pthread_create(thread, attr, &auxtrail_thread_begin, start);
  if (result != 0) free(start);
  return result;
}
