#include "record/census.h"

#include <algorithm>

namespace auxtrail::record {

void Census::add_root(pid_t pid) {
  root_ = pid;
  add_thread(pid, pid, 0);
  events_.push_back({.pid = pid, .step = Step::kFork});
}

void Census::note_fork(const abi::TaskRecord& fork) {
  const auto pid = static_cast<pid_t>(fork.pid);
  add_thread(pid, static_cast<pid_t>(fork.tid), fork.time_ns);
  if (fork.pid == fork.parent_pid) return;
  events_.push_back({.pid = pid,
                     .step = Step::kFork,
                     .parent = static_cast<pid_t>(fork.parent_pid),
                     .time_ns = fork.time_ns});
}

void Census::note_exit(const abi::TaskRecord& exit) {
  const auto pid = static_cast<pid_t>(exit.pid);
  Thread& thread =
      threads_.try_emplace(static_cast<pid_t>(exit.tid), Thread{pid, 0, 0}).first->second;
  thread.exit_ns = std::max(thread.exit_ns, exit.time_ns);
  if (exit.pid == exit.tid) {
    events_.push_back({.pid = pid, .step = Step::kExit, .time_ns = exit.time_ns});
  }
}

void Census::note_comm(const abi::CommRecord& comm) {
  if (!comm.exec) return;
  const auto pid = static_cast<pid_t>(comm.pid);
  add_thread(pid, pid, comm.id.time_ns);  // exec leaves one thread, under the process's number
  awaiting_program_.insert(pid);
  events_.push_back({.pid = pid,
                     .step = Step::kExec,
                     .time_ns = comm.id.time_ns,
                     .text = std::string(comm.name)});
}

void Census::note_mapping(const abi::MmapRecord& mapping) {
  const auto pid = static_cast<pid_t>(mapping.pid);
  if (!mapping.executable() || awaiting_program_.erase(pid) == 0) return;
  events_.push_back({.pid = pid,
                     .step = Step::kMapping,
                     .time_ns = mapping.id.time_ns,
                     .text = std::string(mapping.path)});
}

void Census::note_connection(pid_t pid, uint64_t time_ns, channel::Declined declined) {
  events_.push_back(
      {.pid = pid, .step = Step::kConnection, .declined = declined, .time_ns = time_ns});
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
  std::stable_sort(events.begin(), events.end(), [](const ProcessEvent& a, const ProcessEvent& b) {
    return a.time_ns < b.time_ns;
  });
  Coverage result;
  const auto count = [&](pid_t pid, const Image& image) {
    if (only_root && pid != root_) return;
    ++result.images;
    if (!image.sampled) result.missed.push_back(image.facts);
  };
  std::unordered_map<pid_t, Image> images;
  for (const ProcessEvent& event : events) {
    const auto image = images.find(event.pid);
    if (image != images.end() && (event.step == Step::kExec || event.step == Step::kExit)) {
      if (event.step == Step::kExit || !image->second.is_fork) count(event.pid, image->second);
    }
    follow(event, images);
  }
  for (const auto& [pid, image] : images) {
    count(pid, image);
    if (!only_root || pid == root_) ++result.running;
  }
  return result;
}

void Census::follow(const ProcessEvent& event, std::unordered_map<pid_t, Image>& images) {
  const auto image = images.find(event.pid);
  switch (event.step) {
    case Step::kFork: {
      const auto parent = images.find(event.parent);
      images[event.pid] = {.facts = parent != images.end() ? parent->second.facts : Missed{},
                           .is_fork = true};
      break;
    }
    case Step::kExec:
      images[event.pid] = {.facts = {.name = event.text}};
      break;
    case Step::kMapping:
      if (image != images.end()) image->second.facts.path = event.text;
      break;
    case Step::kConnection:
      if (image == images.end()) break;
      image->second.sampled |= event.declined == channel::Declined::kNo;
      image->second.facts.declined = event.declined;
      break;
    case Step::kExit:
      images.erase(event.pid);
      break;
  }
}

// The number may have been another thread's before, of another process even.
void Census::add_thread(pid_t pid, pid_t tid, uint64_t time_ns) {
  Thread& thread = threads_.try_emplace(tid, Thread{pid, time_ns, 0}).first->second;
  if (time_ns < thread.start_ns) return;
  thread.pid = pid;
  thread.start_ns = time_ns;
}

}  // namespace auxtrail::record
