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
         (config->continuous == 0 || config->aux_pages >= channel::kMinContinuousAuxPages) &&
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

void send_declined(int fd, Declined why) {
  Hello hello;
  hello.pid = static_cast<uint32_t>(sys::getpid());
  hello.declined = why;
  (void)send_hello(fd, hello, nullptr, 0);
}

void add_descriptor(int fd, int* descriptors, size_t& count) {
  if (fd >= 0) descriptors[count++] = fd;
}

// What is told of the event that says how the process is sampled.
void tell_trigger(Hello& hello, const OpenTrigger& trigger) {
  hello.trigger = trigger.kind;
  hello.trigger_errno = trigger.kernel_errno;
  hello.timer_hz = trigger.timer_hz;
}

void tell_failure(Hello& hello, uint32_t sampler, int error) {
  if (hello.failed_samplers == 0) hello.failed_errno = error;
  hello.failed_samplers |= 1u << sampler;
}

// What interrupts threads that run natively.
void open_entry(Hello& hello, int* descriptors, size_t& count) {
  const SessionConfig& config = session.config;
  const bool first_is_kernels = config.samplers[0].kind == channel::Sampler::kKernelEvent;
  // A thread timer in the first event's place does that, too.
  if (first_is_kernels && hello.trigger != channel::Trigger::kKernelEvent) return;
  const OpenTrigger entry = trigger_open(config.entry, kEntryCookie);
  add_descriptor(entry.fd, descriptors, count);
  hello.timer_errno = entry.timer_errno;
  if (first_is_kernels) {
    hello.entry_errno = entry.kernel_errno;
  } else {
    tell_trigger(hello, entry);
  }
}

void open_triggers(Hello& hello, int* descriptors, size_t& count) {
  const SessionConfig& config = session.config;
  hello.trigger = channel::Trigger::kKernelEvent;
  for (uint32_t i = 0; i < config.sampler_count; ++i) {
    const channel::Sampler& sampler = config.samplers[i];
    if (sampler.kind != channel::Sampler::kKernelEvent) continue;
    // A timer can take the place of a clock, and of nothing else.
    if (i != 0 || !channel::is_clock(sampler.trigger)) {
      const int event = sampler_event_open(sampler.trigger, i);
      add_descriptor(event, descriptors, count);
      if (event < 0) tell_failure(hello, i, -event);
      continue;
    }
    const OpenTrigger trigger = trigger_open(sampler.trigger, kTriggerCookie);
    tell_trigger(hello, trigger);
    hello.timer_errno = trigger.timer_errno;
    if (trigger.timer_hz != 0) set_timer_rate(trigger.timer_hz);
    add_descriptor(trigger.fd, descriptors, count);
  }
  if (config.continuous != 0) open_entry(hello, descriptors, count);
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

}  // namespace auxtrail::unit
