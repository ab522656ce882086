#include "record/census.h"

#include <algorithm>

namespace auxtrail::record {

void Census::add_root(pid_t pid) {
  root_ = pid;
  add_thread(pid, pid, 0);
  events_.push_back({pid, 0, Step::kFork});
}

void Census::note_fork(const abi::TaskRecord& fork) {
  const auto pid = static_cast<pid_t>(fork.pid);
  add_thread(pid, static_cast<pid_t>(fork.tid), fork.time_ns);
  if (fork.pid != fork.parent_pid) events_.push_back({pid, fork.time_ns, Step::kFork});
}

void Census::note_exit(const abi::TaskRecord& exit) {
  const auto pid = static_cast<pid_t>(exit.pid);
  Thread& thread =
      threads_.try_emplace(static_cast<pid_t>(exit.tid), Thread{pid, 0, 0}).first->second;
  thread.exit_ns = std::max(thread.exit_ns, exit.time_ns);
  if (exit.pid == exit.tid) events_.push_back({pid, exit.time_ns, Step::kExit});
}

void Census::note_comm(const abi::CommRecord& comm) {
  if (!comm.exec) return;
  const auto pid = static_cast<pid_t>(comm.pid);
  add_thread(pid, pid, comm.id.time_ns);  // exec leaves one thread, under the process's number
  events_.push_back({pid, comm.id.time_ns, Step::kExec});
}

void Census::note_connection(pid_t pid, uint64_t time_ns) {
  connections_ns_[pid].push_back(time_ns);
}

Census::ThreadState Census::thread_state(pid_t pid, pid_t tid) const {
  const auto thread = threads_.find(tid);
  if (thread == threads_.end() || thread->second.pid != pid) return ThreadState::kUnknown;
  return thread->second.exited() ? ThreadState::kExited : ThreadState::kAlive;
}

void Census::forget_exited(uint64_t time_ns) {
  std::erase_if(threads_, [time_ns](const auto& entry) {
    return entry.second.exited() && entry.second.exit_ns < time_ns;
  });
}

Census::Coverage Census::coverage(bool only_root) const {
  std::vector<ProcessEvent> events = events_;
  std::sort(events.begin(), events.end(), [](const ProcessEvent& a, const ProcessEvent& b) {
    return a.pid != b.pid ? a.pid < b.pid : a.time_ns < b.time_ns;
  });
  Coverage result;
  for (size_t i = 0; i < events.size(); ++i) {
    const ProcessEvent& start = events[i];
    if (start.step == Step::kExit || (only_root && start.pid != root_)) continue;
    const bool has_end = i + 1 < events.size() && events[i + 1].pid == start.pid;
    const bool replaced = has_end && events[i + 1].step == Step::kExec;
    if (start.step == Step::kFork && replaced) continue;
    ++result.images;
    if (!has_end) ++result.running;
    const uint64_t end_ns = has_end ? events[i + 1].time_ns : UINT64_MAX;
    if (!connected(start.pid, start.time_ns, end_ns)) ++result.missed;
  }
  return result;
}

// The number may have been another thread's before, of another process even.
void Census::add_thread(pid_t pid, pid_t tid, uint64_t time_ns) {
  Thread& thread = threads_.try_emplace(tid, Thread{pid, time_ns, 0}).first->second;
  if (time_ns < thread.start_ns) return;
  thread.pid = pid;
  thread.start_ns = time_ns;
}

bool Census::connected(pid_t pid, uint64_t start_ns, uint64_t end_ns) const {
  const auto found = connections_ns_.find(pid);
  if (found == connections_ns_.end()) return false;
  return std::any_of(found->second.begin(), found->second.end(),
                     [=](uint64_t time_ns) { return time_ns >= start_ns && time_ns < end_ns; });
}

}  // namespace auxtrail::record
