// libauxtrail-unit.so's beginning: a constructor (entry.S) that turns the process into a sampled
// one.
//
// Preloaded by `auxtrail record`. Without the recorder's variable in the environment, or if
// anything is missing, the library does nothing at all and the program runs as if it were not
// there.
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "unit/code_cache.h"
#include "unit/entry.h"
#include "unit/interpose.h"
#include "unit/memory_limit.h"
#include "unit/session.h"
#include "unit/signals.h"
#include "unit/sys.h"
#include "unit/thread_state.h"
#include "unit/trigger.h"

namespace auxtrail::unit {
namespace {

using channel::Declined;

char socket_path[108];

constexpr long kArchShadowStackStatus = 0x5005;  // ARCH_SHSTK_STATUS

// Translated code pushes and pops return addresses in ways a hardware shadow stack forbids.
bool shadow_stack_on() {
  uint64_t features = 0;
  const long result = sys::call(SYS_arch_prctl, kArchShadowStackStatus, sys::arg(&features));
  return !sys::is_error(result) && (features & 1) != 0;
}

struct ProcessStatus {
  bool traced = false;  // by a debugger or strace, which would be shown our trigger's SIGTRAPs
  bool sandboxed =
      false;  // by a seccomp filter of its own, which may kill for a system call of ours
};

// The number behind "NAME:\t" in /proc/self/status, 0 if it is not there.
unsigned long status_field(const char* text, const char* name) {
  const char* field = strstr(text, name);
  return field == nullptr ? 0 : strtoul(field + strlen(name), nullptr, 10);
}

unsigned long recorder_filters = 0;  // the recorder's own, from its variable

bool is_sandboxed(const char* status) {
  if (status_field(status, "Seccomp:\t") == 0) return false;
  return status_field(status, "Seccomp_filters:\t") != recorder_filters || recorder_filters == 0;
}

ProcessStatus read_status() {
  char text[4096];
  const long fd =
      sys::call(SYS_openat, AT_FDCWD, sys::arg("/proc/self/status"), O_RDONLY | O_CLOEXEC);
  if (sys::is_error(fd)) return {};
  const long got = sys::call(SYS_read, fd, sys::arg(text), sizeof text - 1);
  sys::close(static_cast<int>(fd));
  text[got > 0 ? got : 0] = 0;
  return {status_field(text, "TracerPid:\t") != 0, is_sandboxed(text)};
}

// Valgrind takes every signal itself and does not know the trigger's. The sequence is its
// documented question RUNNING_ON_VALGRIND; on a real processor it does nothing.
bool runs_on_valgrind() {
  volatile uint64_t question[6] = {0x1001, 0, 0, 0, 0, 0};
  uint64_t answer = 0;
  asm volatile(
      "rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi; xchgq %%rbx, %%rbx"
      : "+d"(answer)
      : "a"(&question[0])
      : "cc", "memory");
  return answer != 0;
}

// AUXTRAIL_WHEN_TRACED=sample (set by the lockstep tests, which play the debugger themselves) asks
// for sampling under a debugger all the same.
Declined why_not_sample() {
  if (runs_on_valgrind()) return Declined::kValgrind;
  const ProcessStatus status = read_status();
  if (status.sandboxed) return Declined::kSandboxed;
  if (shadow_stack_on()) return Declined::kShadowStack;
  if (address_space_is_limited()) return Declined::kMemoryLimit;
  if (!status.traced) return Declined::kNo;
  const char* wish = getenv("AUXTRAIL_WHEN_TRACED");
  return wish != nullptr && strcmp(wish, "sample") == 0 ? Declined::kNo : Declined::kDebugged;
}

void decline(Declined why) {
  if (why != Declined::kSandboxed) session_decline(socket_path, why);
}

bool remember_socket_path() {
  const char* path = getenv(channel::kSocketVariable);
  if (path == nullptr) return false;
  for (size_t i = 0; i < sizeof socket_path; ++i) {
    socket_path[i] = path[i];
    if (path[i] == 0) return i != 0;
  }
  return false;
}

void after_fork_in_child() {
  if (!signals_after_fork()) return;
  const uint32_t trap_blocked = tls_block.trap_blocked;  // the child inherits the mask
  const bool follow = session.config.inherit_children != 0 && session.config.magic != 0;
  tls_block = {};
  tls_block.trap_blocked = trap_blocked;
  code_cache.after_fork();
  trigger_close();  // timers are not inherited
  session_forget();
  if (session.stopped) return;  // in a sandbox, with no call of ours
  const Declined why = follow ? why_not_sample() : Declined::kNo;
  if (why != Declined::kNo) decline(why);
  if (!follow || why != Declined::kNo || !session_start(socket_path)) remove_handlers();
}

int note_module(dl_phdr_info* module, size_t, void*) {
  for (int i = 0; i < module->dlpi_phnum; ++i) {
    const Elf64_Phdr& segment = module->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    const uint64_t start = module->dlpi_addr + segment.p_vaddr;
    code_cache.map().note_initial(sys::page_down(start), start + segment.p_memsz);
  }
  return 0;
}

void start() {
  if (!remember_socket_path()) return;
  if (const char* filters = getenv(channel::kFiltersVariable); filters != nullptr) {
    recorder_filters = strtoul(filters, nullptr, 10);
  }
  const Declined why = why_not_sample();
  if (why != Declined::kNo) return decline(why);
  (void)SignalReturn::note_processor();
  resolve_interposed();
  (void)dl_iterate_phdr(&note_module, nullptr);
  if (install_handlers() != 0) return;
  (void)pthread_atfork(nullptr, nullptr, &auxtrail_forked_child);
  if (!session_start(socket_path)) remove_handlers();
}

}  // namespace
}  // namespace auxtrail::unit

// Called by entry.S; they return whether the program is to be entered.
extern "C" __attribute__((visibility("hidden"))) int auxtrail_start_process() {
  auxtrail::unit::start();
  return auxtrail::unit::wants_entry() ? 1 : 0;
}
extern "C" __attribute__((visibility("hidden"))) int auxtrail_start_child() {
  auxtrail::unit::after_fork_in_child();
  return auxtrail::unit::wants_entry() ? 1 : 0;
}
