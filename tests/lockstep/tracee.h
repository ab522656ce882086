// Tracee: one process under ptrace, as the lockstep tests drive it.
//
// A thin layer over ptrace(2): resume it and learn why it stopped, read and write its registers and
// memory, list its mappings. Nothing here knows of windows. Failures of ptrace itself are fatal
// (Die): the tests can't go on without it.
#pragma once

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/user.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace auxtrail::lockstep {

using Registers = user_regs_struct;

// Ends the test with a message: the harness, not the unit, has a problem.
[[noreturn]] void Die(const std::string& what);

enum class StopKind : uint8_t {
  kStep,          // one instruction was executed
  kBreakpoint,    // an int3
  kSyscallEntry,  // before a system call
  kSyscallExit,   // behind it
  kExec,
  kSignal,  // another signal is about to be delivered
  kExited,
};

struct Stop {
  StopKind kind = StopKind::kExited;
  int code = 0;         // si_code of a SIGTRAP
  int signal = 0;       // of kStep, kBreakpoint and kSignal: pass it on to deliver it
  int status = 0;       // of kExited: what waitpid said
  uint64_t number = 0;  // of the system call, at its entry
  uint64_t ip = 0;      // of the system call stops: behind the instruction
};

// One line of /proc/PID/maps.
struct MapLine {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t offset = 0;
  std::string permissions;
  std::string path;

  [[nodiscard]] bool contains(uint64_t address) const { return start <= address && address < end; }
  [[nodiscard]] bool readable() const { return permissions[0] == 'r'; }
  [[nodiscard]] bool writable() const { return permissions[1] == 'w'; }
  [[nodiscard]] bool executable() const { return permissions[2] == 'x'; }
  [[nodiscard]] bool is_private() const { return permissions[3] == 'p'; }
};

struct LaunchOptions {
  std::vector<std::string> command;      // command[0] is a path
  std::vector<std::string> environment;  // all of it, "NAME=VALUE"
  std::string input;                     // stdin; empty: /dev/null
};

class Tracee {
 public:
  // Starts the program, without address randomisation and with its output thrown away; it stops
  // behind execve.
  explicit Tracee(const LaunchOptions& options);
  ~Tracee();
  Tracee(const Tracee&) = delete;
  Tracee& operator=(const Tracee&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool exited() const { return exited_; }

  Stop step();
  // The same for an instruction that a virtual machine's host executes (cpuid): hosts forget the
  // single step's trap and stop one instruction late. `following` is the address behind it.
  Stop step_emulated(uint64_t following);
  // To the next system call stop or signal; `signal` is delivered first if it is not 0.
  Stop run(int signal = 0);

  [[nodiscard]] Registers registers() const;
  void set_registers(const Registers& registers);
  [[nodiscard]] uint64_t ip() const;
  [[nodiscard]] std::vector<std::byte> extended_state() const;  // the XSAVE area
  void set_extended_state(std::vector<std::byte> state);
  [[nodiscard]] uint64_t signal_mask() const;
  // Stops with `signal`, not delivered yet, before another instruction of the program runs.
  void provoke_signal(int signal);
  void set_signal_info(const siginfo_t& info);

  // Bytes read: less than asked if the rest is not mapped.
  size_t read(uint64_t address, std::span<std::byte> bytes) const;
  size_t write(uint64_t address, std::span<const std::byte> bytes);
  [[nodiscard]] uint64_t word(uint64_t address) const;
  void set_word(uint64_t address, uint64_t value);  // through ptrace: read-only pages too
  [[nodiscard]] std::vector<MapLine> maps() const;

 private:
  Stop resume(int request, int signal);
  Stop wait();

  pid_t pid_ = 0;
  bool exited_ = false;
  bool stepped_ = false;
};

}  // namespace auxtrail::lockstep
