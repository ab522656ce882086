// See tracee.h.
#include "tracee.h"

#include <elf.h>
#include <fcntl.h>
#include <linux/ptrace.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace auxtrail::lockstep {
namespace {

constexpr int kSyscallStop = SIGTRAP | 0x80;
constexpr int kTrapBreakpoint = 0x80;  // SI_KERNEL: int3
constexpr uint64_t kTrapFlag = 0x100;
constexpr size_t kMaxExtendedBytes = 16384;

template <class Request>
long Ptrace(Request request, pid_t pid, uint64_t address, const void* data) {
  return ptrace(static_cast<__ptrace_request>(request), pid, reinterpret_cast<void*>(address),
                data);
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const auto& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

[[noreturn]] void Exec(const LaunchOptions& options) {
  const auto arguments = Pointers(options.command);
  const auto environment = Pointers(options.environment);
  const int input = open(options.input.empty() ? "/dev/null" : options.input.c_str(), O_RDONLY);
  const int output = open("/dev/null", O_WRONLY);
  (void)dup2(input, 0);
  (void)dup2(output, 1);
  (void)dup2(output, 2);
  if (input > 2) close(input);
  if (output > 2) close(output);
  (void)personality(ADDR_NO_RANDOMIZE);
  (void)Ptrace(PTRACE_TRACEME, 0, 0, nullptr);
  (void)raise(SIGSTOP);
  (void)execve(arguments[0], arguments.data(), environment.data());
  _exit(127);
}

}  // namespace

void Die(const std::string& what) {
  std::fprintf(stderr, "lockstep: %s (errno: %s)\n", what.c_str(), std::strerror(errno));
  std::exit(2);
}

Tracee::Tracee(const LaunchOptions& options) {
  pid_ = fork();
  if (pid_ < 0) Die("fork");
  if (pid_ == 0) Exec(options);
  if (wait().kind != StopKind::kSignal) Die("the child does not stop");
  constexpr uintptr_t kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
  if (Ptrace(PTRACE_SETOPTIONS, pid_, 0, reinterpret_cast<void*>(kOptions)) != 0) {
    Die("PTRACE_SETOPTIONS");
  }
  if (resume(PTRACE_CONT, 0).kind != StopKind::kExec) Die("cannot execute " + options.command[0]);
}

Tracee::~Tracee() {
  if (exited_) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, __WALL) == -1 && errno == EINTR) {
  }
}

Stop Tracee::step() {
  stepped_ = true;
  Stop stop = resume(PTRACE_SINGLESTEP, 0);
  // The kernel tells a step from other debug exceptions by a bit of DR6, which a virtual machine's
  // host may lose when it takes the processor away at that moment. No program here has int1 or
  // hardware breakpoints.
  const bool debug_exception = stop.kind == StopKind::kSignal && stop.signal == SIGTRAP &&
                               (stop.code == TRAP_BRKPT || stop.code == TRAP_HWBKPT);
  if (debug_exception) {
    std::fprintf(stderr, "lockstep: a step told as SIGTRAP with code %d\n", stop.code);
    stop.kind = StopKind::kStep;
  }
  return stop;
}

Stop Tracee::run(int signal) {
  // The kernel takes a TF that popf left behind for the program's own.
  if (stepped_) {
    Registers current = registers();
    if ((current.eflags & kTrapFlag) != 0) {
      current.eflags &= ~kTrapFlag;
      set_registers(current);
    }
    stepped_ = false;
  }
  return resume(PTRACE_SYSCALL, signal);
}

Stop Tracee::step_emulated(uint64_t following) {
  const uint64_t code = word(following);
  set_word(following, (code & ~uint64_t{0xff}) | 0xcc);
  Stop stop = run();
  set_word(following, code);
  Registers current = registers();
  if (stop.kind != StopKind::kBreakpoint || current.rip != following + 1) return stop;
  current.rip = following;
  set_registers(current);
  stop.kind = StopKind::kStep;
  return stop;
}

// Whoever stops all processes for a while means us as well: such a signal is taken away.
Stop Tracee::resume(int request, int signal) {
  for (;;) {
    const auto data = static_cast<uintptr_t>(signal);
    if (Ptrace(request, pid_, 0, reinterpret_cast<void*>(data)) != 0) Die("ptrace: resume");
    const Stop stop = wait();
    if (stop.kind != StopKind::kSignal) return stop;
    if (stop.signal != SIGSTOP && stop.signal != SIGCONT) return stop;
    signal = 0;
  }
}

Stop Tracee::wait() {
  Stop stop;
  while (waitpid(pid_, &stop.status, __WALL) != pid_) {
    if (errno != EINTR) Die("waitpid");
  }
  if (!WIFSTOPPED(stop.status)) {
    exited_ = true;
    return stop;
  }
  stop.signal = WSTOPSIG(stop.status);
  if (stop.signal == kSyscallStop) {
    ptrace_syscall_info info{};
    if (Ptrace(PTRACE_GET_SYSCALL_INFO, pid_, sizeof info, &info) <= 0) Die("syscall info");
    const bool entry = info.op == PTRACE_SYSCALL_INFO_ENTRY;
    stop.kind = entry ? StopKind::kSyscallEntry : StopKind::kSyscallExit;
    stop.number = entry ? info.entry.nr : 0;
    stop.ip = info.instruction_pointer;
    stop.signal = 0;
    return stop;
  }
  if (stop.status >> 16 == PTRACE_EVENT_EXEC) {
    stop.kind = StopKind::kExec;
    stop.signal = 0;
    return stop;
  }
  stop.kind = StopKind::kSignal;
  if (stop.signal != SIGTRAP) return stop;
  siginfo_t info{};
  if (Ptrace(PTRACE_GETSIGINFO, pid_, 0, &info) != 0) return stop;
  stop.code = info.si_code;
  if (info.si_code == TRAP_TRACE) stop.kind = StopKind::kStep;
  if (info.si_code == kTrapBreakpoint) stop.kind = StopKind::kBreakpoint;
  return stop;
}

Registers Tracee::registers() const {
  Registers registers;
  if (Ptrace(PTRACE_GETREGS, pid_, 0, &registers) != 0) Die("PTRACE_GETREGS");
  return registers;
}

void Tracee::set_registers(const Registers& registers) {
  if (Ptrace(PTRACE_SETREGS, pid_, 0, &registers) != 0) Die("PTRACE_SETREGS");
}

uint64_t Tracee::ip() const {
  errno = 0;
  const long value = Ptrace(PTRACE_PEEKUSER, pid_, offsetof(user_regs_struct, rip), nullptr);
  if (value == -1 && errno != 0) Die("PTRACE_PEEKUSER");
  return static_cast<uint64_t>(value);
}

std::vector<std::byte> Tracee::extended_state() const {
  std::vector<std::byte> state(kMaxExtendedBytes);
  iovec part{state.data(), state.size()};
  if (Ptrace(PTRACE_GETREGSET, pid_, NT_X86_XSTATE, &part) != 0) Die("NT_X86_XSTATE");
  state.resize(part.iov_len);
  return state;
}

void Tracee::set_extended_state(std::vector<std::byte> state) {
  iovec part{state.data(), state.size()};
  if (Ptrace(PTRACE_SETREGSET, pid_, NT_X86_XSTATE, &part) != 0) Die("set NT_X86_XSTATE");
}

uint64_t Tracee::signal_mask() const {
  uint64_t mask = 0;
  if (Ptrace(PTRACE_GETSIGMASK, pid_, sizeof mask, &mask) != 0) Die("PTRACE_GETSIGMASK");
  return mask;
}

void Tracee::provoke_signal(int signal) {
  if (syscall(SYS_tgkill, pid_, pid_, signal) != 0) Die("tgkill");
  const Stop stop = run();
  if (stop.kind != StopKind::kSignal || stop.signal != signal) Die("the signal does not arrive");
}

void Tracee::set_signal_info(const siginfo_t& info) {
  if (Ptrace(PTRACE_SETSIGINFO, pid_, 0, &info) != 0) Die("PTRACE_SETSIGINFO");
}

size_t Tracee::read(uint64_t address, std::span<std::byte> bytes) const {
  const iovec local{bytes.data(), bytes.size()};
  const iovec remote{reinterpret_cast<void*>(address), bytes.size()};
  const ssize_t got = process_vm_readv(pid_, &local, 1, &remote, 1, 0);
  return got < 0 ? 0 : static_cast<size_t>(got);
}

size_t Tracee::write(uint64_t address, std::span<const std::byte> bytes) {
  const iovec local{const_cast<std::byte*>(bytes.data()), bytes.size()};
  const iovec remote{reinterpret_cast<void*>(address), bytes.size()};
  const ssize_t put = process_vm_writev(pid_, &local, 1, &remote, 1, 0);
  return put < 0 ? 0 : static_cast<size_t>(put);
}

uint64_t Tracee::word(uint64_t address) const {
  errno = 0;
  const long value = Ptrace(PTRACE_PEEKDATA, pid_, address, nullptr);
  if (value == -1 && errno != 0) Die("PTRACE_PEEKDATA");
  return static_cast<uint64_t>(value);
}

void Tracee::set_word(uint64_t address, uint64_t value) {
  if (Ptrace(PTRACE_POKEDATA, pid_, address, reinterpret_cast<void*>(value)) != 0) {
    Die("PTRACE_POKEDATA");
  }
}

std::vector<MapLine> Tracee::maps() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/maps");
  std::vector<MapLine> lines;
  for (std::string text; std::getline(file, text);) {
    std::istringstream fields(text);
    MapLine line;
    char dash = 0;
    std::string device;
    std::string inode;
    fields >> std::hex >> line.start >> dash >> line.end >> line.permissions >> line.offset >>
        device >> inode;
    fields >> std::ws;
    std::getline(fields, line.path);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace auxtrail::lockstep
