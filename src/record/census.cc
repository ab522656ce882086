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
  events_.push_back({.pid = pid,
                     .step = Step::kExec,
                     .time_ns = comm.id.time_ns,
                     .text = std::string(comm.name)});
}

void Census::note_mapping(const abi::MmapRecord& mapping) {
  if (!mapping.executable() || !mapping.path.starts_with('/')) return;
  if (mapping.path.starts_with("//")) return;  // "//anon"
  events_.push_back({.pid = static_cast<pid_t>(mapping.pid),
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

uint64_t Census::Coverage::missed_count() const {
  uint64_t count = 0;
  for (const auto& [program, times] : missed) count += times;
  return count;
}

void Census::settle(uint64_t time_ns) {
  const auto later = std::stable_partition(
      events_.begin(), events_.end(),
      [time_ns](const ProcessEvent& event) { return event.time_ns < time_ns; });
  std::stable_sort(events_.begin(), later, [](const ProcessEvent& a, const ProcessEvent& b) {
    return a.time_ns < b.time_ns;
  });
  for (auto event = events_.begin(); event != later; ++event) follow(*event);
  events_.erase(events_.begin(), later);
}

Census::Coverage Census::coverage(bool only_root) const {
  Census all = *this;
  all.settle(UINT64_MAX);
  const std::unordered_map<pid_t, Image> living = std::move(all.images_);
  for (const auto& [pid, image] : living) all.count(pid, image);
  Coverage result = only_root ? all.ended_root_ : all.ended_;
  result.running = only_root ? living.count(root_) : living.size();
  return result;
}

void Census::count(pid_t pid, const Image& image) {
  const auto add = [&image](Coverage& coverage) {
    ++coverage.images;
    if (!image.sampled) ++coverage.missed[image.facts];
  };
  add(ended_);
  if (pid == root_) add(ended_root_);
}

void Census::follow(const ProcessEvent& event) {
  const auto image = images_.find(event.pid);
  const bool exists = image != images_.end();
  switch (event.step) {
    case Step::kFork: {
      Image forked{.is_fork = true};
      if (const auto parent = images_.find(event.parent); parent != images_.end()) {
        forked.facts = parent->second.facts;
        forked.facts.forked = forked.facts.forked || parent->second.sampled;
      }
      images_[event.pid] = std::move(forked);
      break;
    }
    case Step::kExec:
      if (exists && !image->second.is_fork) count(event.pid, image->second);
      images_[event.pid] = {.facts = {.name = event.text}};
      break;
    case Step::kMapping:
      if (exists && !image->second.is_fork && image->second.facts.path.empty()) {
        image->second.facts.path = event.text;
      }
      break;
    case Step::kConnection:
      if (!exists) break;
      image->second.sampled |= event.declined == channel::Declined::kNo;
      image->second.facts.declined = event.declined;
      break;
    case Step::kExit:
      if (exists) count(event.pid, image->second);
      images_.erase(event.pid);
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
