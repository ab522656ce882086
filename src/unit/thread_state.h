// The per-thread state of the software trace unit.
//
// TlsBlock is what translated code reaches as %fs:offset (initial-exec TLS); it stays small because
// every thread of the program pays for it in static TLS. Everything larger lives in Thread, in
// memory of our own that is mapped when a thread sees its first overflow. Only the owning thread
// touches either, in normal flow, in its signal handlers or in translated code: no locks, but
// signals nest.
#pragma once

#include <cstddef>
#include <cstdint>

#include "channel/layout.h"
#include "event/thread_context.h"
#include "pmu/intel_pt.h"
#include "pt/packet_writer.h"
#include "unit/branch_log.h"
#include "unit/counting.h"
#include "unit/deferred_log.h"
#include "unit/return_stack.h"
#include "unit/signal_return.h"

namespace auxtrail::unit {

struct Thread;

enum class UnitState : uint32_t {
  kIdle,         // the thread runs natively
  kWindow,       // the thread runs translated code
  kTranslating,  // our own code works on behalf of a window or is about to open one
  kSyscall,      // the thread is in a system call of the program's (syscall_gate.h)
};

struct TlsBlock {
  uint64_t rcx;  // the program's rcx and rax while translated code borrows them
  uint64_t rax;
  uint64_t log;      // where the next log entry goes
  uint64_t target;   // target of the indirect branch being taken; an exit's number on its way out
  uint64_t resume;   // code address at which a stub leaves
  uint64_t exit_pc;  // program address at which the exit trap ends the window
  Thread* thread;    // null until the first overflow
  UnitState state;
  uint32_t tid;           // 0 until the first overflow
  uint32_t trap_blocked;  // the program believes SIGTRAP to be blocked (see interpose_mask.cc)
  uint32_t trap_pending;  // and one that somebody sent is waiting
  uint32_t in_trigger;    // on_overflow() is at work
  uint32_t in_route;      // how many auxtrail_route_signal() are at work, one above the other
  uint64_t trap_info[6];  // the beginning of its siginfo
  uint64_t suspend_mask;  // of the sigsuspend() that the thread is in
  uint64_t suspend_rsp;   // of its caller; 0: it is in none
};

extern __thread TlsBlock tls_block __attribute__((tls_model("initial-exec")));

inline constexpr size_t kUnitStackBytes = 32 * 1024;

// Offsets in Thread that the generated stubs and syscall_gate.S use.
inline constexpr int32_t kThreadStackTop = 0;
inline constexpr int32_t kThreadSavedRsp = 8;
inline constexpr int32_t kThreadSavedMask = 16;
inline constexpr int32_t kThreadGateRsp = 24;
inline constexpr int32_t kThreadGateNext = 32;
inline constexpr int32_t kThreadGateRax = 40;

struct Thread {
  uint64_t stack_top;   // of the private stack that stubs and handlers run on
  uint64_t saved_rsp;   // the program's rsp while a stub runs there
  uint64_t saved_mask;  // the program's signal mask during a window
  uint64_t gate_rsp;    // the unit's rsp while the program's system call is made; 0: it is not
  uint64_t gate_next;   // the program's instruction after it
  uint64_t gate_rax;    // what it is called with, then what it returned

  uint64_t log_end;    // kLogAlignment-aligned
  uint64_t log_start;  // what comes before is in packets

  // For the last two instructions of leaving rsp points to its beginning, and a trigger's frame may
  // come below: there is the unit's stack, so no more may stand before it than the red zone covers.
  SignalReturn signal_return;

  pt::PacketWriter writer;
  size_t log_units;  // of continuous trace's logs
  DeferredLogs deferred;
  uint32_t logs_learned_of;  // so far; wraps
  ReturnStack::Slots return_slots;
  ReturnStack returns{return_slots};
  size_t window_limit_bytes;  // what the packets of a window may fill, its end included
  uint64_t window_branches;

  uint64_t window_start_ticks;
  uint64_t window_half_cpu_ns;  // the thread's CPU time after half of the window's limit, or 0
  uint64_t translation_ticks;   // left for translating cold code; may go below zero for a moment
  uint64_t last_tsc;            // TSC packets of one thread grow strictly

  channel::Reason end_reason;  // why the exit trap ends the window
  bool holds_lock;             // the translator lock: a fault while translating must release it
  uint64_t pending_pc;         // where the program goes on if the stub at work has to give up
  bool delivering;             // a record is being written: a fault there breaks the ring
  bool leaving;                // a stub ends the window by signal_return
  uint64_t handler_stack;      // the stack's end where a handler called its function
  uint64_t held_signals;       // watched signals that somebody sent during a window, by bit
  alignas(8) char held_info[11][128];  // by signal - 1; SIGSEGV is the highest of the five
  // Continuous tracing (continuous.h).
  std::byte* mirror;                // the slot's AUX area, mapped twice in a row; or null
  int64_t since_psb;                // bytes behind the last PSB where the writer started
  size_t psb_due_bytes = SIZE_MAX;  // of the writer, when the next PSB is due
  uint64_t poll_ticks;              // when signals were last looked for
  // Samplers, by bit, that are sampled where the program's position is known next.
  uint32_t samples_due;
  uint64_t due_address;  // what an overflow of theirs told
  uint64_t due_weight;
  // Exits that became hot since the log was last emptied.
  uint32_t hot_exits[32];
  uint32_t hot_exit_count;
  bool history_has_psb;   // samples have something to begin with
  bool packet_en;         // packets are written: the SDM's PacketEn
  bool trace_stopped;     // in the range of a TraceStop filter, for good
  bool ring_choked;       // the data ring had no room, and it was waited for in vain
  bool choked;            // full trace: there is no room, and what is written is lost
  uint32_t code_changes;  // that the history does not reach beyond
  uint64_t last_pc;       // where tracing ended last
  bool stepping;          // single-stepping to that place
  Counting counting;
  channel::SlotView slot;
  pmu::PtContext pt;
  event::ThreadContext engine;
};
inline constexpr size_t kRedZoneBytes = 128;
static_assert(offsetof(Thread, signal_return) <= kRedZoneBytes);
static_assert(offsetof(Thread, stack_top) == kThreadStackTop);
static_assert(offsetof(Thread, saved_rsp) == kThreadSavedRsp);
static_assert(offsetof(Thread, saved_mask) == kThreadSavedMask);
static_assert(offsetof(Thread, gate_rsp) == kThreadGateRsp);
static_assert(offsetof(Thread, gate_next) == kThreadGateNext);
static_assert(offsetof(Thread, gate_rax) == kThreadGateRax);

}  // namespace auxtrail::unit
