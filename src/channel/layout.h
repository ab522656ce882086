// The channel between a traced process and the recorder: one shared memory object per process.
//
// The unit (inside the traced program) connects to the recorder's SOCK_SEQPACKET socket, receives a
// SessionConfig, creates a memfd with the layout below, seals it against resizing and sends a Hello
// with the memfd (and the trigger's perf event fd, if any) as SCM_RIGHTS; or a Hello without any,
// if it leaves the process alone, that says why. It then closes its own descriptors: nothing of
// ours stays in the program's descriptor table. From there on both sides only touch memory.
//
//   memfd:  ProcessHeader            kHeaderBytes
//           slot 0                   slot_stride_bytes each
//           slot 1 ...
//   slot:   SlotHeader               kPageBytes        who owns the slot, its counters
//           perf_event_mmap_page     kPageBytes        exactly the kernel's control page
//           data ring                data_pages * kPageBytes      (2^n pages)
//           AUX area                 aux_pages * kPageBytes       (2^n pages)
//
// One thread of the program owns a slot; it claims a free one at its first overflow. The recorder
// drains the data ring as it would the kernel's (data_head with acquire, data_tail with release)
// and frees the slot once the thread is gone. The recorder trusts nothing it reads here: the traced
// program may scribble over all of it. Sizes come from the recorder's own SessionConfig, never from
// the shared memory.
//
// All fields are little endian and naturally aligned. Both sides are the same build (kVersion is
// checked).
#pragma once

#include <linux/perf_event.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace auxtrail::channel {

inline constexpr uint32_t kMagic = 0x4c585541;  // "AUXL"
inline constexpr uint32_t kVersion = 7;
inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kHeaderBytes = kPageBytes;
inline constexpr uint32_t kSlotCount = 64;

// ProcessHeader::stop_requested
inline constexpr uint32_t kStopRequested = 1;  // by the unit: close my trigger
inline constexpr uint32_t kStopDone = 2;       // by the recorder

// The environment variable that names the recorder's socket (a path), set by the recorder.
inline constexpr char kSocketVariable[] = "AUXTRAIL_SOCKET";
// And the one with the number of seccomp filters on the recorder itself (a container's): a process
// with more has put itself into a sandbox and is left alone.
inline constexpr char kFiltersVariable[] = "AUXTRAIL_SECCOMP_FILTERS";

// Why a window ended before its AUX sample was full, or why none was opened. Counted per slot.
// The texts that `record` and `report` print stand in reasons.h, in the same order.
enum class Reason : uint32_t {
  kFull,              // the requested number of AUX bytes was reached: the normal end
  kSyscall,           // a system call comes next: it must not run from the code cache
  kColdCode,          // the window's translation budget is used up
  kTimeBudget,        // the window took its share of the period
  kUntranslatable,    // an instruction that the translator leaves alone (int3, xbegin, popf, far
                      // branch ...)
  kForeignCode,       // code outside watched file mappings: JIT, anonymous or writable memory
  kPatchedCode,       // code whose pages were made writable or changed: never translated again
  kRseq,              // a restartable sequence
  kFault,             // the traced instruction raised a synchronous signal (SIGSEGV, SIGFPE, ...)
  kCacheFull,         // no room left in the code cache
  kCacheBusy,         // another thread held the translator for too long
  kInvalidated,       // mappings changed under the window
  kBusyUnit,          // the overflow arrived while the unit itself was working
  kForeignThread,     // a thread without thread-local storage of its own (raw clone)
  kSingleStep,        // the program is being single-stepped (trap flag)
  kHandlersReplaced,  // the program replaced our fault handlers behind our back
  kAlternateStack,  // a handler on an alternate stack: a signal under the window would use its top
  kInterposed,      // a function of the unit's own, in front of libc's
  kSignal,          // continuous tracing: a signal for the program is due
  kTraceStop,       // an address filter ended the thread's trace for good
  kCount
};
inline constexpr size_t kReasonCount = static_cast<size_t>(Reason::kCount);

enum class Trigger : uint32_t { kNone, kKernelEvent, kThreadTimer };

// Why a process that the unit was loaded into is left alone. The texts stand in reasons.h.
enum class Declined : uint32_t {
  kNo,           // it is sampled
  kDebugged,     // a debugger would be shown the trigger's SIGTRAPs
  kValgrind,     // it takes every signal itself
  kSandboxed,    // its seccomp filter may kill for a system call of ours: never said, only acted on
  kShadowStack,  // translated code pushes and pops in ways that CET forbids
  kMemoryLimit,  // RLIMIT_AS or RLIMIT_DATA: the room is the program's
  kFileSizeLimit,  // RLIMIT_FSIZE is below memory_bytes()
  kNoMemory,       // the kernel refused the shared memory
  kCount
};
inline constexpr size_t kDeclinedCount = static_cast<size_t>(Declined::kCount);

// One sampling event of the session.
struct Sampler {
  // What to open for each process, with sigtrap, inherit_thread and remove_on_exec set. Of
  // kFatalSignal nothing is opened: the unit sees for itself that a signal is going to end the
  // process.
  perf_event_attr trigger{};
  // The sampler as the engine sees it: sample_type, aux_sample_size, period or freq.
  perf_event_attr attr{};
  uint64_t id = 0;  // PERF_SAMPLE_IDENTIFIER of the samples
  enum Kind : uint32_t {
    kKernelEvent,
    kFatalSignal,
    kBranches,  // the unit counts them itself; with a period of 0 they are only read
    kInstructions,
    kNone,  // it never overflows: a clock that is only read, or an event of another process
  } kind = kKernelEvent;
  uint32_t group = 0;  // samplers of the same one read each other's counts; 0: of none
};
inline constexpr size_t kMaxSamplers = 32;  // Hello::failed_samplers has a bit for each
// Whether an event's overflows come at times (task-clock, cpu-clock) and not when something
// happens.
constexpr bool is_clock(const perf_event_attr& attr) {
  return attr.type == PERF_TYPE_SOFTWARE &&
         (attr.config == PERF_COUNT_SW_CPU_CLOCK || attr.config == PERF_COUNT_SW_TASK_CLOCK);
}
// Whether the unit counts it itself.
constexpr bool is_counted(const Sampler& sampler) {
  return sampler.kind == Sampler::kBranches || sampler.kind == Sampler::kInstructions;
}

// The leader's address filters, as PERF_EVENT_IOC_SET_FILTER has them (event/addr_filter.h).
inline constexpr size_t kMaxFilterPathBytes = 384;  // the unit reads mappings line by line
inline constexpr size_t kMaxFilterTextBytes = 4 * (kMaxFilterPathBytes + 64);

enum class TraceMode : uint32_t {
  kSample,    // AUX samples
  kFull,      // the recorder takes all AUX data, in order; what finds no room is lost
  kSnapshot,  // the recorder copies the newest when it is asked to
};

// Continuous tracing writes in place, and in full trace goes on only while there is room for more.
inline constexpr uint32_t kMinContinuousAuxPages = 8;

// Recorder -> unit, one message right after accept().
struct SessionConfig {
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  Sampler samplers[kMaxSamplers];  // windows are for the first alone, a kernel event
  uint32_t sampler_count = 1;
  TraceMode mode = TraceMode::kSample;
  // Continuous tracing: interrupts the program now and then, to bring it into the code cache.
  perf_event_attr entry{};
  perf_event_attr leader{};  // the intel_pt-like AUX leader
  uint64_t leader_id = 0;
  uint32_t data_pages = 0;        // per thread, 2^n
  uint32_t aux_pages = 0;         // per thread, 2^n; not below kMinContinuousAuxPages if continuous
  uint32_t inherit_children = 1;  // 0 with --no-inherit: forked processes are left alone
  uint32_t end_by_trap = 0;       // 1: every window, for tests (else where a stub can't end it)
  uint32_t continuous = 0;        // 1: threads are traced all the time, not from each overflow on
  uint32_t psb_period_bytes = 0;  // of continuous tracing
  uint64_t snapshot_bytes = 0;    // the recorder copies so many of the newest; 0: all there are
  uint32_t all_packets = 0;       // 1: those that no sample can hold are written too, for tests
  uint32_t filter_bytes = 0;      // of `filters`; continuous tracing only
  char filters[kMaxFilterTextBytes] = {};
};

// Unit -> recorder, one message, with SCM_RIGHTS {memfd, the triggers' descriptors, the entry
// event's}; without any if declined.
inline constexpr size_t kMaxDescriptors = 2 + kMaxSamplers;
struct Hello {
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t pid = 0;                   // as the process sees it; the recorder takes SO_PEERCRED
  Declined declined = Declined::kNo;  // the rest is for sampled processes only
  Trigger trigger = Trigger::kNone;
  int32_t trigger_errno = 0;  // why perf_event_open was refused, 0 if it was not
  uint32_t timer_hz = 0;      // with kThreadTimer: the rate the timer was set to
  // Samplers, by bit, whose events could not be opened and have no timer in their place, and why
  // the first of them could not.
  uint32_t failed_samplers = 0;
  int32_t failed_errno = 0;
  int32_t entry_errno = 0;  // why timers take the entry event's place, unless trigger_errno says it
  int32_t timer_errno = 0;  // why the first thread has no timer in a clock's place
  uint32_t reserved = 0;
  uint64_t memory_bytes = 0;
};

// Counters are written by the owning thread alone with plain relaxed stores; the recorder adds up
// all slots before it frees one.
struct Counters {
  std::atomic<uint64_t> overflows{0};     // trigger signals that arrived
  std::atomic<uint64_t> deferred{0};      // of these, delivered late: SIGTRAP was blocked
  std::atomic<uint64_t> samples{0};       // samples written to the data ring
  std::atomic<uint64_t> lost_samples{0};  // samples that found no room
  std::atomic<uint64_t> aux_bytes{0};     // AUX bytes in written samples
  std::atomic<uint64_t> branches{0};      // in the packets written, conditional and indirect
  // Where the unit counts: all instructions and branches so far, how often the thread left for
  // native code, and its CPU time there, which is not counted.
  std::atomic<uint64_t> counted_insns{0};
  std::atomic<uint64_t> counted_branches{0};
  std::atomic<uint64_t> native_gaps{0};
  std::atomic<uint64_t> native_ns{0};
  std::atomic<uint64_t> blocks_translated{0};
  std::atomic<uint64_t> window_ns{0};              // time spent in windows and handlers
  std::atomic<uint64_t> ended_by[kReasonCount]{};  // windows by the reason of their end
};

enum class SlotState : uint32_t {
  kFree,
  kPreparing,  // taken by a thread: nothing else of the slot is the thread's yet
  kClaimed,    // the thread has set up all of it
};

struct SlotHeader {
  std::atomic<SlotState> state{SlotState::kFree};
  std::atomic<uint32_t> tid{0};
  std::atomic<uint32_t> pid{0};
  uint32_t reserved = 0;
  Counters counters;
  // Continuous tracing: bytes of the AUX area written since the slot was claimed (by the thread),
  // and in full trace, read (by the recorder).
  std::atomic<uint64_t> aux_written{0};
  std::atomic<uint64_t> aux_read{0};
  // Full trace: bytes that found no room, and where in the trace the newest of them are missing.
  // aux_lost_at is set first, aux_written stands still until the loss ends: a reader that loads
  // aux_written before these two finds them at what it has yet to read.
  std::atomic<uint64_t> aux_lost{0};
  std::atomic<uint64_t> aux_lost_at{0};
};
// What a thread may write behind aux_written before it says so.
inline constexpr uint64_t kAuxAheadBytes = 16384;
static_assert(sizeof(SlotHeader) <= kPageBytes);

struct ProcessHeader {
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t slot_count = kSlotCount;
  uint32_t data_pages = 0;
  uint32_t aux_pages = 0;
  uint32_t reserved = 0;
  std::atomic<uint32_t> pid{0};
  std::atomic<uint32_t> stop_requested{
      0};  // the process enters a sandbox and must not overflow any more
  std::atomic<uint32_t> maps_changed{
      0};  // rises with each change of executable mappings the unit saw
  std::atomic<uint64_t> no_slot_overflows{0};  // overflows of threads that found no free slot
  Counters process;                            // counts that belong to no slot (foreign threads)
};
static_assert(sizeof(ProcessHeader) <= kHeaderBytes);

constexpr size_t slot_stride_bytes(uint32_t data_pages, uint32_t aux_pages) {
  return (size_t{2} + data_pages + aux_pages) * kPageBytes;
}
constexpr size_t memory_bytes(uint32_t data_pages, uint32_t aux_pages) {
  return kHeaderBytes + kSlotCount * slot_stride_bytes(data_pages, aux_pages);
}
constexpr size_t slot_offset(uint32_t slot, uint32_t data_pages, uint32_t aux_pages) {
  return kHeaderBytes + slot * slot_stride_bytes(data_pages, aux_pages);
}

// Pointers into one slot of a mapped memfd.
struct SlotView {
  SlotHeader* header;
  perf_event_mmap_page* control;
  std::byte* data;
  std::byte* aux;
};
inline SlotView slot_view(std::byte* memory, uint32_t slot, uint32_t data_pages,
                          uint32_t aux_pages) {
  std::byte* at = memory + slot_offset(slot, data_pages, aux_pages);
  return {reinterpret_cast<SlotHeader*>(at),
          reinterpret_cast<perf_event_mmap_page*>(at + kPageBytes), at + 2 * kPageBytes,
          at + (size_t{2} + data_pages) * kPageBytes};
}

}  // namespace auxtrail::channel
