// Users, processes, tasks and CPUs of the simulated system: plain data that kernel.h works on.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/unique_fd.h"
#include "perf_event/context.h"
#include "perf_event/perf_event.h"

namespace auxtrail::perf_event {

struct User {
  uint32_t uid = 0;
  bool is_perfmon = true;     // CAP_PERFMON
  bool may_lock = true;       // CAP_IPC_LOCK
  bool may_trace = true;      // CAP_SYS_PTRACE: the tasks of other users
  uint64_t locked_pages = 0;  // of perf buffers
};

// What a descriptor of perf_event_open stands for. Open as long as a descriptor or a mapping is.
struct File {
  PerfEvent* event = nullptr;
  uint32_t references = 0;
};

struct MappedArea {
  Mapping memory;
  uint64_t page_offset = 0;
  File* file = nullptr;
};

struct Process {
  uint32_t pid = 0;
  User* user = nullptr;
  uint32_t threads = 0;              // that have not exited
  std::vector<File*> descriptors;    // by number, with holes
  std::vector<MappedArea> mappings;  // of perf buffers
  uint64_t pinned_pages = 0;         // of perf buffers, beyond what the user may lock
};

struct Task {
  Task(uint32_t tid_, Process& process_, const uint64_t& now)
      : tid(tid_), process(process_), context(now) {}
  uint32_t tid;
  Process& process;
  Context context;
  int cpu = -1;  // where it runs
  bool exited = false;
};

// Something always runs on a CPU: this, where there is no task.
inline constexpr uint32_t kIdleTid = 0x80000000;

struct Cpu {
  explicit Cpu(const uint64_t& now) : context(now) {}
  event::Moment moment;
  Task* current = nullptr;
  Context context;
};

}  // namespace auxtrail::perf_event
