// See session.h. Raw system calls only: nothing here may disturb the program's errno or
// descriptors.
#include "unit/session.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>

#include "unit/address_filters.h"
#include "unit/code_cache.h"
#include "unit/signals.h"
#include "unit/sys.h"
#include "unit/thread_state.h"
#include "unit/trigger.h"
#include "unit/window.h"
#include "unit/window_parts.h"

extern "C" __attribute__((weak)) char __libc_single_threaded;  // since glibc 2.32

namespace auxtrail::unit {

Session session;

namespace {

using channel::Declined;
using channel::Hello;
using channel::SessionConfig;

constexpr int kHandshakeSeconds = 5;

int connect_to_recorder(const char* path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  size_t length = 0;
  while (path[length] != 0) ++length;
  if (length == 0 || length >= sizeof address.sun_path) return -1;
  for (size_t i = 0; i < length; ++i) address.sun_path[i] = path[i];
  const long fd = sys::call(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (sys::is_error(fd)) return -1;
  const timeval limit{kHandshakeSeconds, 0};
  (void)sys::call(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, sys::arg(&limit), sizeof limit);
  (void)sys::call(SYS_setsockopt, fd, SOL_SOCKET, SO_SNDTIMEO, sys::arg(&limit), sizeof limit);
  const long result = sys::call(SYS_connect, fd, sys::arg(&address), sizeof address);
  if (sys::is_error(result)) {
    sys::close(static_cast<int>(fd));
    return -1;
  }
  return static_cast<int>(fd);
}

bool is_power_of_two(uint32_t value) { return value != 0 && (value & (value - 1)) == 0; }

bool receive_config(int fd, SessionConfig* config) {
  const long got = sys::call(SYS_recvfrom, fd, sys::arg(config), sizeof *config);
  return got == sizeof *config && config->magic == channel::kMagic &&
         config->version == channel::kVersion && is_power_of_two(config->data_pages) &&
         is_power_of_two(config->aux_pages) && config->sampler_count - 1 < channel::kMaxSamplers &&
         (config->continuous != 0 || config->samplers[0].attr.aux_sample_size != 0);
}

bool file_size_is_limited(size_t bytes) {
  rlimit limit{};  // beyond it the program would get SIGXFSZ for our file
  (void)sys::call(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, sys::arg(&limit));
  return limit.rlim_cur < bytes;
}

// A sealed memfd: the recorder relies on its size staying what it is.
int create_memory(size_t bytes, std::byte** memory) {
  const long fd =
      sys::call(SYS_memfd_create, sys::arg("auxtrail"), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (sys::is_error(fd)) return -1;
  const int memfd = static_cast<int>(fd);
  void* mapped = nullptr;
  if (!sys::is_error(sys::call(SYS_ftruncate, fd, static_cast<long>(bytes))) &&
      !sys::is_error(sys::call(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))) {
    mapped = sys::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd);
  }
  if (mapped == nullptr) {
    sys::close(memfd);
    return -1;
  }
  *memory = static_cast<std::byte*>(mapped);
  return memfd;
}

void initialise_memory(std::byte* memory, const SessionConfig& config) {
  auto* header = new (memory) channel::ProcessHeader();
  header->data_pages = config.data_pages;
  header->aux_pages = config.aux_pages;
  header->pid.store(window_config.pid);
}

bool send_hello(int fd, const Hello& hello, const int* descriptors, size_t count) {
  iovec part{const_cast<Hello*>(&hello), sizeof hello};
  alignas(cmsghdr) char control[CMSG_SPACE(channel::kMaxDescriptors * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (count != 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    auto* slots = reinterpret_cast<int*>(CMSG_DATA(rights));
    for (size_t i = 0; i < count; ++i) slots[i] = descriptors[i];
  }
  return sys::call(SYS_sendmsg, fd, sys::arg(&message), MSG_NOSIGNAL) == sizeof hello;
}

// However rare overflows are, a window's share of the time between them stays short.
void cap_period() {
  constexpr uint64_t kLongestNs = 100000000;
  if (window_config.period_ns > kLongestNs) window_config.period_ns = kLongestNs;
}

bool defers_packets(const SessionConfig& config) {
  for (uint32_t i = 0; i < config.sampler_count; ++i) {
    if (is_counted(config.samplers[i])) return false;
  }
  return config.continuous != 0 && config.mode == channel::TraceMode::kSample &&
         config.filter_bytes == 0 && config.all_packets == 0;
}

void configure_stretches(const SessionConfig& config) {
  constexpr uint64_t kHeaders = 64;
  uint64_t smallest = uint64_t{config.aux_pages} * channel::kPageBytes;
  uint64_t largest = 0;
  for (uint32_t i = 0; i < config.sampler_count; ++i) {
    const uint64_t bytes = config.samplers[i].attr.aux_sample_size;
    if (bytes != 0 && bytes < smallest) smallest = bytes;
    if (bytes > largest) largest = bytes;
  }
  window_config.deferred = defers_packets(config) ? deferred_size(largest) : DeferredSize{0, 0};
  const uint64_t half = smallest / 2;
  window_config.psb_period_bytes = config.psb_period_bytes;
  if (half - kHeaders < window_config.psb_period_bytes) {
    window_config.psb_period_bytes = half > kHeaders ? half - kHeaders : 0;
  }
  const size_t units = half * 6 / kMaxPathBits;
  window_config.stretch_units = units < kMaxStretchUnits ? units : kMaxStretchUnits;
}

void configure_windows(const SessionConfig& config) {
  window_config.pid = static_cast<uint32_t>(sys::getpid());
  window_config.exact_samplers = 0;
  window_config.reads_counts = false;
  for (uint32_t i = 0; i < config.sampler_count; ++i) {
    const channel::Sampler& sampler = config.samplers[i];
    window_config.periods[i] = period_of(sampler.attr);
    const bool exact = config.continuous != 0 && !is_clock(sampler.trigger);
    if (exact) window_config.exact_samplers |= 1u << i;
    if ((sampler.attr.sample_type & PERF_SAMPLE_READ) != 0) window_config.reads_counts = true;
  }
  // Only clocks have a period in time; for anything else a millisecond is the rate windows are
  // sized for.
  const channel::Sampler& first = config.samplers[0];
  window_config.period_ns = is_clock(first.trigger) || first.attr.freq != 0
                                ? window_config.periods[0]
                                : uint64_t{1000000};
  cap_period();
  configure_stretches(config);
  const uint64_t bytes = first.attr.aux_sample_size & ~uint64_t{7};
  const uint64_t area = uint64_t{config.aux_pages} * channel::kPageBytes;
  window_config.sample_bytes = bytes < area ? bytes : area;
}

void send_declined(int fd, Declined why) {
  Hello hello;
  hello.pid = static_cast<uint32_t>(sys::getpid());
  hello.declined = why;
  (void)send_hello(fd, hello, nullptr, 0);
}

void add_descriptor(int fd, int* descriptors, size_t& count) {
  if (fd >= 0) descriptors[count++] = fd;
}

// The event whose place a thread timer can take.
OpenTrigger open_first(Hello& hello, const perf_event_attr& attr, uint64_t cookie) {
  const OpenTrigger trigger = trigger_open(attr, cookie);
  hello.trigger = trigger.kind;
  hello.trigger_errno = trigger.kernel_errno;
  hello.timer_hz = trigger.timer_hz;
  return trigger;
}

void open_triggers(Hello& hello, int* descriptors, size_t& count) {
  const SessionConfig& config = session.config;
  hello.trigger = channel::Trigger::kKernelEvent;
  for (uint32_t i = 0; i < config.sampler_count; ++i) {
    const channel::Sampler& sampler = config.samplers[i];
    if (sampler.kind != channel::Sampler::kKernelEvent) continue;
    if (i != 0) {
      add_descriptor(sampler_event_open(sampler.trigger, i), descriptors, count);
      continue;
    }
    const OpenTrigger trigger = open_first(hello, sampler.trigger, kTriggerCookie);
    if (trigger.timer_hz != 0) {
      window_config.periods[0] = window_config.period_ns = 1000000000 / trigger.timer_hz;
      cap_period();
    }
    add_descriptor(trigger.fd, descriptors, count);
  }
  if (config.continuous == 0) return;
  const bool first_is_kernels = config.samplers[0].kind == channel::Sampler::kKernelEvent;
  // A thread timer in the first event's place makes threads enter, too.
  if (first_is_kernels && hello.trigger != channel::Trigger::kKernelEvent) return;
  const int entry = entry_event_open(config.entry);
  add_descriptor(entry, descriptors, count);
  if (entry < 0 && !first_is_kernels) (void)open_first(hello, config.entry, kEntryCookie);
}

bool start_on(int fd) {
  if (!receive_config(fd, &session.config)) return false;
  if (!address_filters.set(session.config)) return false;
  configure_windows(session.config);
  const size_t bytes = channel::memory_bytes(session.config.data_pages, session.config.aux_pages);
  std::byte* memory = nullptr;
  const bool limited = file_size_is_limited(bytes);
  const int memfd = limited ? -1 : create_memory(bytes, &memory);
  if (memfd < 0) {
    send_declined(fd, limited ? Declined::kFileSizeLimit : Declined::kNoMemory);
    return false;
  }
  initialise_memory(memory, session.config);
  session.memory = memory;
  session.memory_bytes = bytes;

  Hello hello;
  hello.pid = window_config.pid;
  hello.memory_bytes = bytes;
  if (session.config.continuous != 0) watch_all_signals();
  int descriptors[channel::kMaxDescriptors] = {memfd};
  size_t count = 1;
  open_triggers(hello, descriptors, count);
  const bool sent = send_hello(fd, hello, descriptors, count);
  // The recorder holds them now, or nobody does.
  for (size_t i = 0; i < count; ++i) sys::close(descriptors[i]);
  if (!sent) {
    trigger_close();
    session_forget();
  }
  return sent;
}

// Thread, stack and log in one lazily committed mapping.
Thread* map_thread() {
  constexpr size_t kGuard = 4096;
  constexpr size_t kThreadBytes = sys::page_up(sizeof(Thread));
  constexpr size_t kTotal = kGuard + kUnitStackBytes + kThreadBytes + 2 * kLogAlignment;
  auto* at = static_cast<char*>(sys::mmap(nullptr, kTotal, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE));
  if (at == nullptr) return nullptr;
  (void)sys::call(SYS_mprotect, sys::arg(at), kGuard, PROT_NONE);
  char* stack_top = at + kGuard + kUnitStackBytes;
  auto* thread = new (stack_top) Thread();
  thread->stack_top = reinterpret_cast<uint64_t>(stack_top);
  const auto log_area = reinterpret_cast<uint64_t>(stack_top + kThreadBytes);
  thread->log_end = (log_area + 2 * kLogAlignment - kLogOverrunBytes) & ~(kLogAlignment - 1);
  // A sampler of page faults must not see the log's.
  for (uint64_t at_log = thread->log_end - kLogAlignment / 4; at_log < thread->log_end + 256;
       at_log += channel::kPageBytes) {
    *reinterpret_cast<volatile char*>(at_log) = 0;
  }
  return thread;
}

// `bytes` of the shared memory at `at`, mapped twice in a row, so that packets run over the end of
// the area into its beginning; null if that can't be had. The mapping stays: threads that follow
// each other in a slot use the same one.
std::byte* map_twice(std::byte* at, size_t bytes) {
  void* const room =
      sys::mmap(nullptr, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
  if (room == nullptr) return nullptr;
  auto* const start = static_cast<std::byte*>(room);
  for (std::byte* const place : {start, start + bytes}) {
    // With an old size of 0, a shared mapping is not moved but mapped once more.
    const long result = sys::call(SYS_mremap, sys::arg(at), 0, static_cast<long>(bytes),
                                  MREMAP_MAYMOVE | MREMAP_FIXED, sys::arg(place));
    if (!sys::is_error(result)) continue;
    sys::munmap(room, 2 * bytes);
    return nullptr;
  }
  return start;
}

bool prepare_thread(Thread& thread, uint32_t tid, const channel::SlotView& slot) {
  const SessionConfig& config = session.config;
  thread.slot = slot;
  thread.held_signals = 0;
  thread.holds_lock = false;
  thread.leaving = false;
  thread.delivering = false;
  thread.pt.windowed = true;
  thread.pt.unit.caps = abi::kSoftwareUnitCaps;
  thread.history_has_psb = false;
  thread.packet_en = false;
  thread.trace_stopped = false;
  thread.code_changes = code_cache.code_changes();
  thread.choked = false;
  slot.header->aux_written.store(0);
  slot.header->aux_read.store(0);
  slot.header->aux_lost.store(0);
  slot.header->aux_lost_at.store(0);
  thread.gate_rsp = 0;
  thread.samples_due = 0;
  thread.due_address = 0;
  thread.due_weight = 0;
  thread.last_pc = 0;
  thread.stepping = false;
  start_counting(thread, tid);
  thread.log_units = window_config.stretch_units;
  defer_packets(thread, window_config.deferred);
  const uint64_t data_bytes = uint64_t{config.data_pages} * channel::kPageBytes;
  const uint64_t aux_bytes = uint64_t{config.aux_pages} * channel::kPageBytes;
  if (slot.control->data_size != data_bytes) {  // first owner of this slot
    event::DataRing::init_control_page(*slot.control, channel::kPageBytes, data_bytes);
  }
  if (config.continuous != 0 && thread.mirror == nullptr) {
    thread.mirror = map_twice(slot.aux, aux_bytes);
  }
  event::ThreadConfig::Sampler more[channel::kMaxSamplers - 1];
  for (uint32_t i = 1; i < config.sampler_count; ++i) {
    more[i - 1] = {&config.samplers[i].attr, config.samplers[i].id, config.samplers[i].group};
  }
  return thread.engine.init({.leader = &config.leader,
                             .sampler = &config.samplers[0].attr,
                             .leader_id = config.leader_id,
                             .sampler_id = config.samplers[0].id,
                             .sampler_group = config.samplers[0].group,
                             .more_samplers = more,
                             .more_sampler_count = config.sampler_count - 1,
                             .leader_pmu = &pmu::kIntelPt,
                             .leader_context = &thread.pt,
                             .tid = tid,
                             .control = slot.control,
                             .data = slot.data,
                             .data_bytes = data_bytes,
                             .aux = thread.mirror != nullptr ? thread.mirror : slot.aux,
                             .aux_bytes = aux_bytes,
                             .aux_mirrored = thread.mirror != nullptr}) == 0;
}

}  // namespace

bool session_start(const char* socket_path) {
  const int fd = connect_to_recorder(socket_path);
  if (fd < 0) return false;
  const bool started = start_on(fd);
  sys::close(fd);
  return started;
}

void session_decline(const char* socket_path, Declined why) {
  const int fd = connect_to_recorder(socket_path);
  if (fd < 0) return;
  // What is not read would reset the connection under our answer.
  if (receive_config(fd, &session.config)) send_declined(fd, why);
  session.config = {};
  sys::close(fd);
}

void session_stop() {
  if (!handlers_installed()) return;
  if (session.memory == nullptr || session.stopped || !is_own_process()) return;
  session.stopped = true;
  constexpr int kMilliseconds = 100;
  auto& requested = session.header()->stop_requested;
  requested.store(channel::kStopRequested);
  const timespec pause{0, 1000000};
  for (int i = 0; i < kMilliseconds && requested.load() == channel::kStopRequested; ++i) {
    (void)sys::call(SYS_nanosleep, sys::arg(&pause), 0);
  }
  // A timer goes on, and another thread may be in a window yet.
  const bool alone = &__libc_single_threaded != nullptr && __libc_single_threaded != 0;
  if (alone && !trigger_is_timer() && requested.load() == channel::kStopDone) remove_handlers();
}

void session_forget() {
  if (session.memory != nullptr) sys::munmap(session.memory, session.memory_bytes);
  session.memory = nullptr;
  for (Thread*& thread : session.threads) {
    if (thread == nullptr) continue;
    thread->engine.shutdown();
    if (thread->mirror == nullptr) continue;
    sys::munmap(thread->mirror, 2 * uint64_t{session.config.aux_pages} * channel::kPageBytes);
    thread->mirror = nullptr;
  }
}

Thread* claim_thread(uint32_t tid) {
  for (uint32_t i = 0; i < channel::kSlotCount; ++i) {
    const channel::SlotView slot =
        channel::slot_view(session.memory, i, session.config.data_pages, session.config.aux_pages);
    auto expected = channel::SlotState::kFree;
    if (!slot.header->state.compare_exchange_strong(expected, channel::SlotState::kClaimed)) {
      continue;
    }
    slot.header->tid.store(tid);
    slot.header->pid.store(window_config.pid);
    if (session.threads[i] == nullptr) session.threads[i] = map_thread();
    Thread* thread = session.threads[i];
    if (thread != nullptr && prepare_thread(*thread, tid, slot)) return thread;
    slot.header->state.store(channel::SlotState::kFree);
    return nullptr;
  }
  return nullptr;
}

}  // namespace auxtrail::unit
