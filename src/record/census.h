// Census: the processes and threads of the traced tree, as the side-band tells it.
//
// Answers two questions. Is this thread one of that process (so that a sample cannot claim to be
// another's)? And which program images ran without ever connecting to the recorder, because the
// trace unit could not be preloaded into them (static, set-user-id, cleared environment)?
//
// An image is the time from a fork or exec of a process to its next exec or its end. A forked image
// that is replaced by exec is not counted as missed: it is the moment inside system() or
// posix_spawn().
//
// The records come from one ring per CPU, so a fork may be told after the exit of the same thread:
// everything here goes by the records' times, not by their order of arrival.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "abi/side_band.h"

namespace auxtrail::record {

class Census {
 public:
  // The session's first process, before it executes anything.
  void add_root(pid_t pid);

  void note_fork(const abi::TaskRecord& fork);
  void note_exit(const abi::TaskRecord& exit);
  void note_comm(const abi::CommRecord& comm);
  // A trace unit connected from this process at this time (taken before it may run on).
  void note_connection(pid_t pid, uint64_t time_ns);

  enum class ThreadState : uint8_t { kUnknown, kAlive, kExited };
  // What is known of the thread `tid` as a member of process `pid`.
  [[nodiscard]] ThreadState thread_state(pid_t pid, pid_t tid) const;

  // Forgets threads that ended before `time_ns`.
  void forget_exited(uint64_t time_ns);

  struct Coverage {
    uint64_t images = 0;   // program images seen
    uint64_t missed = 0;   // of these, never connected
    uint64_t running = 0;  // processes that have not ended
  };
  // `only_root` counts the images of the first process alone (--no-inherit).
  [[nodiscard]] Coverage coverage(bool only_root) const;

 private:
  struct Thread {
    pid_t pid = 0;
    uint64_t start_ns = 0;
    uint64_t exit_ns = 0;  // of the latest thread of this number that is known to have ended
    [[nodiscard]] bool exited() const { return exit_ns > start_ns; }
  };
  enum class Step : uint8_t { kFork, kExec, kExit };
  struct ProcessEvent {
    pid_t pid = 0;
    uint64_t time_ns = 0;
    Step step = Step::kFork;
  };
  void add_thread(pid_t pid, pid_t tid, uint64_t time_ns);
  [[nodiscard]] bool connected(pid_t pid, uint64_t start_ns, uint64_t end_ns) const;

  pid_t root_ = 0;
  std::unordered_map<pid_t, Thread> threads_;
  std::vector<ProcessEvent> events_;
  std::unordered_map<pid_t, std::vector<uint64_t>> connections_ns_;
};

}  // namespace auxtrail::record
