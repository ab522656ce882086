#include "record/census.h"

#include <algorithm>

namespace auxtrail::record {

void Census::add_root(pid_t pid) {
  root_ = pid;
  threads_[pid] = {pid, 0};
  begin_image(pid, 0, false);
}

void Census::note_fork(const abi::TaskRecord& fork) {
  const auto pid = static_cast<pid_t>(fork.pid);
  threads_[static_cast<pid_t>(fork.tid)] = {pid, 0};
  if (fork.pid != fork.parent_pid) begin_image(pid, fork.time_ns, false);
}

void Census::note_exit(const abi::TaskRecord& exit) {
  const auto thread = threads_.find(static_cast<pid_t>(exit.tid));
  if (thread != threads_.end()) thread->second.exit_time_ns = exit.time_ns;
  if (exit.pid == exit.tid) end_image(static_cast<pid_t>(exit.pid), exit.time_ns, false);
}

void Census::note_comm(const abi::CommRecord& comm) {
  if (!comm.exec) return;
  const auto pid = static_cast<pid_t>(comm.pid);
  threads_[pid] = {pid, 0};  // exec leaves one thread, under the process's number
  begin_image(pid, comm.id.time_ns, true);
}

void Census::note_connection(pid_t pid, uint64_t time_ns) {
  connections_ns_[pid].push_back(time_ns);
}

Census::ThreadState Census::thread_state(pid_t pid, pid_t tid) const {
  const auto thread = threads_.find(tid);
  if (thread == threads_.end() || thread->second.pid != pid) return ThreadState::kUnknown;
  return thread->second.exit_time_ns == 0 ? ThreadState::kAlive : ThreadState::kExited;
}

void Census::forget_exited(uint64_t time_ns) {
  std::erase_if(threads_, [time_ns](const auto& entry) {
    const uint64_t exit_time_ns = entry.second.exit_time_ns;
    return exit_time_ns != 0 && exit_time_ns < time_ns;
  });
}

Census::Coverage Census::coverage(bool only_root) const {
  Coverage result;
  for (const Image& image : images_) {
    if (only_root && image.pid != root_) continue;
    if (image.replaced && !image.from_exec) continue;
    ++result.images;
    if (!connected(image)) ++result.missed;
    if (image.end_ns == UINT64_MAX) ++result.running;
  }
  return result;
}

void Census::begin_image(pid_t pid, uint64_t time_ns, bool from_exec) {
  end_image(pid, time_ns, from_exec);
  current_image_[pid] = images_.size();
  images_.push_back({pid, time_ns, UINT64_MAX, from_exec, false});
}

void Census::end_image(pid_t pid, uint64_t time_ns, bool replaced) {
  const auto current = current_image_.find(pid);
  if (current == current_image_.end()) return;
  images_[current->second].end_ns = time_ns;
  images_[current->second].replaced = replaced;
  current_image_.erase(current);
}

bool Census::connected(const Image& image) const {
  const auto found = connections_ns_.find(image.pid);
  if (found == connections_ns_.end()) return false;
  return std::any_of(found->second.begin(), found->second.end(), [&image](uint64_t time_ns) {
    return time_ns >= image.start_ns && time_ns < image.end_ns;
  });
}

}  // namespace auxtrail::record
