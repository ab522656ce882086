// Kernel: perf_event_open(2) and what goes with it, played in process on events of the engine.
//
// One object is a whole system: CPUs, users, processes and tasks, PMUs, descriptors, mappings. It
// is deterministic: nothing happens but by a call, time passes when advance() says so, and what
// programs do is told by count() and overflow(). So the behaviour that AUX sampling relies on can
// be tried out step by step, here and on a real kernel side by side (oracle_test.cc), with PMUs
// that this machine does not have.
//
// The system calls return what the system call returns: a descriptor, a size, an address, 0, or a
// negative errno. The caller's structures are those of <linux/perf_event.h>. The thread `caller` is
// the one that makes the call. Not thread-safe.
//
//   tasks, CPUs ─► Context ─► PerfEvent (an event::Event) ─► Buffer ◄─ mappings of processes
//                                  ▲                    (data ring, AUX area)
//                        File ◄── descriptors of processes
//
// What is not played is listed in docs/design/perf-event.md. Reference: perf_event_open(2);
// checklist A, B, D7, E, F.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "event/attr_copy.h"
#include "event/sample.h"
#include "perf_event/buffer.h"
#include "perf_event/pmu_registry.h"
#include "perf_event/process.h"
#include "perf_event/settings.h"

namespace auxtrail::perf_event {

using Tid = uint32_t;

class Kernel {
 public:
  // With the PMUs of software events and of breakpoints (software_pmu.h).
  explicit Kernel(const Settings& settings = {});
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  void add_pmu(const event::Pmu& pmu, PmuContextOf context = {}) {
    pmus_.add(pmu, std::move(context));
  }
  User& add_user(const User& user);

  // -- Tasks. A new one runs nowhere yet.
  Tid start_process(User& user);
  // A new thread of the caller's process, or a child process with copies of its descriptors. Events
  // with attr.inherit follow. Its tid, or a negative errno.
  [[nodiscard]] long clone(Tid caller, bool thread);
  // Ends the thread. It can be looked up (a zombie) until reap(). The last thread of a process
  // closes and unmaps all that the process has.
  void exit(Tid tid);
  void reap(Tid tid);
  // The task runs on `cpu` from here on, in place of whoever ran there.
  void run(Tid tid, int cpu);
  void stop_running(Tid tid);
  void advance(uint64_t ns);

  // -- System calls
  [[nodiscard]] long perf_event_open(Tid caller, void* attr, int pid, int cpu, int group_fd,
                                     uint64_t flags);
  long close(Tid caller, int fd);
  [[nodiscard]] long mmap(Tid caller, uint64_t length, int protection, int flags, int fd,
                          uint64_t offset);
  long munmap(Tid caller, const void* address, uint64_t length);
  // To another size at the same place.
  long mremap(Tid caller, const void* address, uint64_t old_length, uint64_t new_length);
  // `argument` is a number or points to one, as the request wants it.
  long ioctl(Tid caller, int fd, uint64_t request, uint64_t argument);
  long read(Tid caller, int fd, void* to, uint64_t size_bytes);
  // The events of POLLIN, POLLHUP and POLLERR that poll(2) would report at once; POLLNVAL for a bad
  // descriptor.
  short poll(Tid caller, int fd);

  // -- What programs and PMUs do
  // `number` occurrences in user mode, in the thread `tid` where it runs, of the software event
  // `config` or of an access to address `config` (PERF_TYPE_BREAKPOINT). Records take what they
  // need from `data`; who, where and when are filled in.
  void count(Tid tid, uint32_t type, uint64_t config, uint64_t number, event::SampleData data = {});
  // An overflow of an event that is on its PMU.
  event::Outcome overflow(PerfEvent& event, event::SampleData data = {});
  // Part of an object file appears in the memory of the thread's process: address filters that name
  // it now know where it is.
  void map_object(Tid tid, const event::AddrMapping& mapping);
  // What PMUs have put off: to be called after they have been driven by hand.
  void run_pending();

  // The event behind a descriptor, or null. It is gone when the last reference is.
  [[nodiscard]] PerfEvent* event_of(Tid caller, int fd);
  // The event that `tid` has inherited from `parent`, or null.
  [[nodiscard]] PerfEvent* inherited(const PerfEvent& parent, Tid tid);

  // Nothing is left: no events, no references, no locked pages, no exclusive PMU in use.
  [[nodiscard]] bool nothing_left() const;
  [[nodiscard]] size_t event_count() const { return events_.size(); }

 private:
  struct OpenRequest;
  class Call;

  [[nodiscard]] Task& task_of(Tid tid) { return *tasks_.at(tid); }
  [[nodiscard]] Task* find_task(Tid tid);
  [[nodiscard]] event::AttrPolicy policy_of(const User& user) const;
  [[nodiscard]] File* file_of(const Process& process, int fd) const;
  [[nodiscard]] int free_descriptor(Process& process) const;
  void put_file(File& file);

  // open.cc
  [[nodiscard]] int resolve_group(OpenRequest& request) const;
  [[nodiscard]] int resolve_task(OpenRequest& request);
  [[nodiscard]] int allocate(PerfEvent& event, const OpenRequest& request);
  [[nodiscard]] int check_event(PerfEvent& event, const OpenRequest& request);
  [[nodiscard]] int check_place(const OpenRequest& request) const;
  [[nodiscard]] int breakpoint_slot(uint32_t tid, int cpu) const;
  PerfEvent& add_event();

  // release.cc
  void release(PerfEvent& event);
  void remove_child(PerfEvent& child);
  void put(PerfEvent& event);
  void exit_event(PerfEvent& event);

  // clone.cc
  [[nodiscard]] int inherit_group(PerfEvent& leader, Task& child);
  [[nodiscard]] int inherit_event(PerfEvent& event, PerfEvent* leader, Task& child,
                                  PerfEvent*& inherited);

  // mmap.cc
  [[nodiscard]] int map_data(PerfEvent& event, Process& process, uint64_t pages, bool writable);
  [[nodiscard]] int map_aux(PerfEvent& event, Process& process, uint64_t page_offset,
                            uint64_t pages, bool writable);
  [[nodiscard]] int set_up_aux(PerfEvent& event, uint64_t page_offset, uint64_t pages,
                               bool writable);
  void unmap(const MappedArea& area);
  void tear_down_aux(PerfEvent& event, Buffer& buffer);
  [[nodiscard]] bool lock_pages(Process& process, uint64_t pages, LockedPages& locked) const;
  void unlock_pages(Buffer& buffer, LockedPages& locked);
  // Lets the event write into `buffer` instead of where it wrote before; null: nowhere.
  void attach_buffer(PerfEvent& event, std::shared_ptr<Buffer> buffer);

  // set_output.cc
  [[nodiscard]] int set_output(PerfEvent& event, PerfEvent* output);

  // ioctl.cc
  long enable_and_so_on(PerfEvent& event, uint64_t request, uint64_t argument);
  long refresh(PerfEvent& event, int64_t overflows);
  [[nodiscard]] long set_filter(PerfEvent& event, uint64_t argument);
  long set_period(PerfEvent& event, uint64_t period);

  void fill_in(event::SampleData& data, const PerfEvent& event) const;

  Settings settings_;
  uint64_t now_ns_ = 0;
  uint64_t next_id_ = 1;
  Tid next_tid_ = 1000;
  PmuRegistry pmus_;
  std::vector<std::unique_ptr<User>> users_;
  std::map<Tid, std::unique_ptr<Process>> processes_;  // by pid
  std::map<Tid, std::unique_ptr<Task>> tasks_;
  std::vector<std::unique_ptr<Cpu>> cpus_;
  std::map<File*, std::unique_ptr<File>> files_;
  std::map<PerfEvent*, std::unique_ptr<PerfEvent>> events_;
  // What a call has let go of stays in memory until it returns: PMUs may call back in between.
  std::vector<std::unique_ptr<PerfEvent>> released_;
  int call_depth_ = 0;
};

// Marks a call into the kernel; calls may nest.
class Kernel::Call {
 public:
  explicit Call(Kernel& kernel) : kernel_(kernel) { ++kernel_.call_depth_; }
  ~Call() {
    if (--kernel_.call_depth_ == 0) kernel_.released_.clear();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  Kernel& kernel_;
};

}  // namespace auxtrail::perf_event
