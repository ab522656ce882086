// The same system calls to two systems: the running kernel, and the one that is played.
//
// Results are those of the system call: a number, or a negative errno. Descriptors and addresses
// are each system's own.
#pragma once

#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <string>

#include "perf_event/kernel.h"

namespace auxtrail::perf_event::testing {

// Memory that programs write to, so that breakpoints there count.
inline constexpr int kVariables = 4;
alignas(64) inline volatile uint64_t variables[kVariables];
inline uint64_t address_of_variable(int number) {
  return reinterpret_cast<uint64_t>(&variables[number]);
}

class System {
 public:
  virtual ~System() = default;
  virtual long open(perf_event_attr attr, int pid, int cpu, int group_fd, uint64_t flags) = 0;
  virtual long close(int fd) = 0;
  virtual long mmap(uint64_t length, int protection, int flags, int fd, uint64_t offset) = 0;
  virtual long munmap(long address, uint64_t length) = 0;
  virtual long mremap(long address, uint64_t old_length, uint64_t new_length) = 0;
  virtual long ioctl(int fd, uint64_t request, uint64_t argument) = 0;
  virtual long read(int fd, void* to, uint64_t size_bytes) = 0;
  virtual long poll(int fd) = 0;
  // Writes to the variable `times` times.
  virtual void write_variable(int number, int times) = 0;
  // The thread stops running for a moment.
  virtual void pause() = 0;
};

class RealSystem : public System {
 public:
  long open(perf_event_attr attr, int pid, int cpu, int group_fd, uint64_t flags) override {
    return result(syscall(SYS_perf_event_open, &attr, pid, cpu, group_fd, flags));
  }
  long close(int fd) override { return result(::close(fd)); }
  long mmap(uint64_t length, int protection, int flags, int fd, uint64_t offset) override {
    return result(syscall(SYS_mmap, 0, length, protection, flags, fd, offset));
  }
  long munmap(long address, uint64_t length) override {
    return result(syscall(SYS_munmap, address, length));
  }
  long mremap(long address, uint64_t old_length, uint64_t new_length) override {
    return result(syscall(SYS_mremap, address, old_length, new_length, 0));
  }
  long ioctl(int fd, uint64_t request, uint64_t argument) override {
    return result(::ioctl(fd, request, argument));
  }
  long read(int fd, void* to, uint64_t size_bytes) override {
    return result(::read(fd, to, size_bytes));
  }
  long poll(int fd) override {
    pollfd entry{fd, POLLIN, 0};
    (void)::poll(&entry, 1, 0);
    return entry.revents;
  }
  void write_variable(int number, int times) override {
    for (int i = 0; i < times; ++i) variables[number] = variables[number] + 1;
  }
  void pause() override {
    const timespec moment{0, 50000};
    nanosleep(&moment, nullptr);
  }

 private:
  static long result(long value) { return value == -1 ? -errno : value; }
};

class PlayedSystem : public System {
 public:
  explicit PlayedSystem(const Settings& settings, const User& user)
      : kernel(settings), tid(kernel.start_process(kernel.add_user(user))) {
    kernel.run(tid, 0);
  }
  long open(perf_event_attr attr, int pid, int cpu, int group_fd, uint64_t flags) override {
    return kernel.perf_event_open(tid, &attr, pid, cpu, group_fd, flags);
  }
  long close(int fd) override { return kernel.close(tid, fd); }
  long mmap(uint64_t length, int protection, int flags, int fd, uint64_t offset) override {
    return kernel.mmap(tid, length, protection, flags, fd, offset);
  }
  long munmap(long address, uint64_t length) override {
    return kernel.munmap(tid, reinterpret_cast<void*>(address), length);
  }
  long mremap(long address, uint64_t old_length, uint64_t new_length) override {
    return kernel.mremap(tid, reinterpret_cast<void*>(address), old_length, new_length);
  }
  long ioctl(int fd, uint64_t request, uint64_t argument) override {
    return kernel.ioctl(tid, fd, request, argument);
  }
  long read(int fd, void* to, uint64_t size_bytes) override {
    return kernel.read(tid, fd, to, size_bytes);
  }
  long poll(int fd) override { return kernel.poll(tid, fd); }
  void write_variable(int number, int times) override {
    for (int i = 0; i < times; ++i) {
      kernel.count(tid, PERF_TYPE_BREAKPOINT, address_of_variable(number), 1);
    }
  }
  void pause() override {
    kernel.stop_running(tid);
    kernel.run(tid, 0);
  }

  Kernel kernel;
  Tid tid;
};

inline int64_t read_number(const std::string& path, int64_t otherwise) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : otherwise;
}

// What the running kernel is set to.
inline Settings settings_of_this_system() {
  const std::string kernel = "/proc/sys/kernel/perf_event_";
  Settings settings;
  settings.cpus = static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_CONF));
  settings.paranoid = static_cast<int>(read_number(kernel + "paranoid", 2));
  settings.max_sample_rate_hz =
      static_cast<uint64_t>(read_number(kernel + "max_sample_rate", 100000));
  settings.max_stack_frames = static_cast<uint16_t>(read_number(kernel + "max_stack", 127));
  settings.mlock_kib = static_cast<uint64_t>(read_number(kernel + "mlock_kb", 516));
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) settings.memlock_bytes = limit.rlim_cur;
  return settings;
}

inline void stay_on_cpu_0() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(0, &cpus);
  (void)sched_setaffinity(0, sizeof cpus, &cpus);
}

// A write watchpoint on a variable, or an event that never counts.
inline perf_event_attr breakpoint_attr(int variable) {
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = PERF_TYPE_BREAKPOINT;
  attr.bp_type = HW_BREAKPOINT_W;
  attr.bp_addr = address_of_variable(variable);
  attr.bp_len = HW_BREAKPOINT_LEN_8;
  attr.exclude_kernel = attr.exclude_hv = 1;
  return attr;
}
inline perf_event_attr dummy_attr() {
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = PERF_TYPE_SOFTWARE;
  attr.config = PERF_COUNT_SW_DUMMY;
  attr.exclude_kernel = attr.exclude_hv = 1;
  return attr;
}

// Null if the running kernel can be asked, else why not.
inline const char* why_no_oracle() {
  RealSystem real;
  for (const perf_event_attr& attr : {dummy_attr(), breakpoint_attr(0)}) {
    const long fd = real.open(attr, 0, -1, -1, 0);
    if (fd < 0) return "this machine does not open software events and breakpoints";
    uint64_t count = 1;
    if (attr.type == PERF_TYPE_BREAKPOINT) {
      variables[0] = variables[0] + 1;
      (void)real.read(static_cast<int>(fd), &count, sizeof count);
    }
    real.close(static_cast<int>(fd));
    if (count == 0) return "this (virtual) machine takes watchpoints that never fire";
  }
  return nullptr;
}

}  // namespace auxtrail::perf_event::testing
