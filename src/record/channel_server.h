// ChannelServer: takes in the trace units of the traced processes.
//
// Listens on a SOCK_SEQPACKET socket in a private folder. A thread of its own answers each unit
// with the SessionConfig at once (the traced process waits for it before main() and after fork()),
// takes its Hello, checks the shared memory it sends and queues the connection for the recorder's
// loop. Peers are not trusted: another user's process, a wrong version, a memory object that is of
// the wrong size or could still shrink under us are refused and counted; a silent peer is dropped
// after a while.
//
// Reference: channel/layout.h.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "channel/layout.h"
#include "record/proc_process.h"

namespace auxtrail::record {

// A process whose trace unit said hello. If it declined, only these three are there.
struct Connection {
  pid_t pid = 0;         // from the kernel, in our pid namespace
  uint64_t time_ns = 0;  // when it was accepted: the process has done nothing since
  channel::Hello hello;
  UniqueFd memory_fd;
  Mapping memory;                  // channel::memory_bytes() of the session's page counts
  std::vector<UniqueFd> triggers;  // the triggers' perf events live as long as these are open
  UniqueFd pidfd;  // readable when the process has ended; may be empty on old kernels
  std::optional<ProcProcess> process;  // with ServerOptions::read_processes
};

struct ServerOptions {
  channel::SessionConfig config;
  bool read_processes = false;  // read /proc/PID while the process waits
  pid_t only_pid = 0;           // not 0: leave all other processes alone
  pid_t first_pid = 0;          // the command's: samplers that are not inherited are for it alone
};

class ChannelServer {
 public:
  // Makes the folder (mode 0700, in TMPDIR or /tmp) and the socket. Both vanish with the object.
  static Result<std::unique_ptr<ChannelServer>> create();
  ~ChannelServer();
  ChannelServer(const ChannelServer&) = delete;
  ChannelServer& operator=(const ChannelServer&) = delete;

  // Starts to answer. Until then units wait in the socket's backlog.
  Status start(const ServerOptions& options);
  // Refuses further units and ends the thread. What was taken in can still be had by take().
  void stop();

  // The connections since the last call.
  std::vector<Connection> take();
  [[nodiscard]] const std::string& socket_path() const { return socket_path_; }
  // Peers turned away because of what they sent.
  [[nodiscard]] uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  struct Pending {  // has its SessionConfig, owes its Hello
    UniqueFd socket;
    Connection connection;
  };
  ChannelServer() = default;
  void run();
  void accept_all();
  [[nodiscard]] channel::SessionConfig config_for(pid_t pid) const;
  void greet(UniqueFd socket);
  void receive(int socket);
  void receive_all();
  void drop_silent(uint64_t now_ns);
  Status admit(Connection& connection, std::vector<UniqueFd> descriptors) const;

  ServerOptions options_;
  std::string folder_;
  std::string socket_path_;
  UniqueFd listener_;
  UniqueFd epoll_;
  UniqueFd stop_;
  std::unordered_map<int, Pending> pending_;  // the thread's own
  std::thread thread_;
  std::mutex mutex_;
  std::vector<Connection> accepted_;  // under mutex_
  std::atomic<uint64_t> refused_{0};
};

}  // namespace auxtrail::record
