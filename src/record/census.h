// Census: the processes and threads of the traced tree, as the side-band tells it.
//
// Answers two questions. Is this thread one of that process (so that a sample cannot claim to be
// another's)? And which program images ran without being sampled, because their trace unit never
// connected (static, set-user-id, cleared environment) or said that it leaves the process alone?
//
// An image is the time from a fork or exec of a process to its next exec or its end. A forked image
// that is replaced by exec is not counted as missed: it is the moment inside system() or
// posix_spawn().
//
// The records come from one ring per CPU, so a fork may be told after the exit of the same thread:
// everything here goes by the records' times, not by their order of arrival.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "abi/side_band.h"
#include "channel/layout.h"

namespace auxtrail::record {

class Census {
 public:
  // The session's first process, before it executes anything.
  void add_root(pid_t pid);

  void note_fork(const abi::TaskRecord& fork);
  void note_exit(const abi::TaskRecord& exit);
  void note_comm(const abi::CommRecord& comm);
  // Executable memory: the first file after an exec is the program's own.
  void note_mapping(const abi::MmapRecord& mapping);
  // A trace unit connected from this process at this time (taken before it may run on), and sampled
  // it or told why it does not.
  void note_connection(pid_t pid, uint64_t time_ns,
                       channel::Declined declined = channel::Declined::kNo);

  enum class ThreadState : uint8_t { kUnknown, kAlive, kExited };
  // What is known of the thread `tid` as a member of process `pid`.
  [[nodiscard]] ThreadState thread_state(pid_t pid, pid_t tid) const;

  // Forgets threads that ended before `time_ns`.
  void forget_exited(uint64_t time_ns);

  // Everything that happened before `time_ns` has been told: takes it in and forgets the details.
  void settle(uint64_t time_ns);

  // A program image that was not sampled. What is not known is empty.
  struct Missed {
    std::string name{};  // as COMM records have it: at most 15 bytes
    std::string path{};  // of the program file, or of the interpreter of a script
    channel::Declined declined = channel::Declined::kNo;  // kNo: its unit never connected
    bool forked = false;  // from a process that is sampled, by no fork() of libc's
    auto operator<=>(const Missed&) const = default;
  };
  struct Coverage {
    uint64_t images = 0;                // program images seen
    uint64_t running = 0;               // processes that have not ended
    std::map<Missed, uint64_t> missed;  // of the images, those not sampled, and how often
    [[nodiscard]] uint64_t missed_count() const;
  };
  // Of all that was told. `only_root` counts the images of the first process alone (--no-inherit).
  [[nodiscard]] Coverage coverage(bool only_root) const;

 private:
  struct Thread {
    pid_t pid = 0;
    uint64_t start_ns = 0;
    uint64_t exit_ns = 0;  // of the latest thread of this number that is known to have ended
    [[nodiscard]] bool exited() const { return exit_ns > start_ns; }
  };
  enum class Step : uint8_t { kFork, kExec, kMapping, kConnection, kExit };
  struct ProcessEvent {
    pid_t pid = 0;
    Step step = Step::kFork;
    channel::Declined declined = channel::Declined::kNo;  // kConnection
    pid_t parent = 0;                                     // kFork
    uint64_t time_ns = 0;
    std::string text{};  // kExec: the new name; kMapping: the path
  };
  struct Image {
    Missed facts{};
    bool is_fork = false;
    bool sampled = false;
  };
  void add_thread(pid_t pid, pid_t tid, uint64_t time_ns);
  // What an event makes of its process's image.
  void follow(const ProcessEvent& event);
  void count(pid_t pid, const Image& image);

  pid_t root_ = 0;
  std::unordered_map<pid_t, Thread> threads_;
  std::vector<ProcessEvent> events_;         // not settled yet
  std::unordered_map<pid_t, Image> images_;  // of the processes that live
  Coverage ended_;                           // images that are no more, of all processes
  Coverage ended_root_;                      // of the first one
};

}  // namespace auxtrail::record
