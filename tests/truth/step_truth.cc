// The single-step ground truth: what a program did, instruction by instruction, as the CPU's trap
// flag shows it.
//
// Runs a program under ptrace without address randomisation, steps it (PTRACE_SINGLESTEP) and
// writes one line per branch: "FROM TO KIND", addresses in hexadecimal. Kinds are the classes of
// Intel PT:
//   T  conditional branch, taken           N  conditional branch, not taken
//   J  direct jump                         C  direct call
//   I  indirect jump or call               R  near return
//   F  far transfer (system call, far return, interrupt): TO is where the program went on
//   S  a signal was delivered: TO is the handler
// The instructions are decoded by Zydis, which shares nothing with the tracer under test.
//
// Usage: step_truth [--start ADDRESS] [--skip STEPS] [--steps STEPS] [--output FILE] [--all]
// [--counts] [--] CMD...
//   --start    run freely up to this address (a breakpoint), then step; default: the first
//   instruction
//   --skip     after that, steps that are not written
//   --steps    how many steps to write; default: to the end
//   --all      writes a line for each instruction, with the kind "-" for those that are no branches
//   --counts   totals on stderr: steps, branches, system calls
// Exit status: 0, or 1 with a message; the program is killed when the steps are done.
#include <Zydis/Zydis.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "step_truth: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

struct Options {
  uint64_t start = 0;
  uint64_t skip = 0;
  uint64_t steps = std::numeric_limits<uint64_t>::max();
  std::string output = "/dev/stdout";
  bool all = false;
  bool counts = false;
  char** command = nullptr;
};

Options Parse(int argc, char** argv) {
  Options options;
  int at = 1;
  for (; at < argc && std::strncmp(argv[at], "--", 2) == 0; ++at) {
    const std::string name = argv[at];
    if (name == "--") {
      ++at;
      break;
    }
    if (name == "--counts") {
      options.counts = true;
      continue;
    }
    if (name == "--all") {
      options.all = true;
      continue;
    }
    if (++at == argc) break;
    const char* value = argv[at];
    if (name == "--start") options.start = std::strtoull(value, nullptr, 0);
    if (name == "--skip") options.skip = std::strtoull(value, nullptr, 0);
    if (name == "--steps") options.steps = std::strtoull(value, nullptr, 0);
    if (name == "--output") options.output = value;
  }
  options.command = argv + at;
  if (at >= argc) {
    std::fprintf(stderr, "step_truth: no command given\n");
    std::exit(1);
  }
  return options;
}

// One decoded instruction: how long it is and what kind of branch.
struct Instruction {
  uint8_t length = 0;
  bool repeats = false;  // a string instruction that may step to itself
  char kind = 0;         // 0: no branch; 'c' conditional; else as written out
};

char KindOf(const ZydisDecodedInstruction& instruction, const ZydisDecodedOperand* operands) {
  const bool direct = operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE;
  switch (instruction.meta.category) {
    case ZYDIS_CATEGORY_COND_BR:
      return 'c';
    case ZYDIS_CATEGORY_UNCOND_BR:
      if (instruction.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR) return 'F';
      return direct ? 'J' : 'I';
    case ZYDIS_CATEGORY_CALL:
      if (instruction.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR) return 'F';
      return direct ? 'C' : 'I';
    case ZYDIS_CATEGORY_RET:
      return instruction.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR ||
                     instruction.mnemonic != ZYDIS_MNEMONIC_RET
                 ? 'F'
                 : 'R';
    case ZYDIS_CATEGORY_SYSCALL:
    case ZYDIS_CATEGORY_SYSRET:
    case ZYDIS_CATEGORY_INTERRUPT:
      return 'F';
    default:
      return 0;
  }
}

// The stepped process: its registers, memory and signals.
class Stepped {
 public:
  explicit Stepped(char** command) : pid_(fork()) {
    if (pid_ < 0) Die("fork");
    if (pid_ == 0) {
      personality(ADDR_NO_RANDOMIZE);
      ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
      execvp(command[0], command);
      _exit(127);
    }
    int status = 0;
    if (waitpid(pid_, &status, 0) != pid_ || !WIFSTOPPED(status)) Die(command[0]);
    ptrace(PTRACE_SETOPTIONS, pid_, nullptr, PTRACE_O_EXITKILL);
    if (ZYAN_FAILED(
            ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64))) {
      Die("ZydisDecoderInit");
    }
  }
  ~Stepped() {
    if (!ended_) kill(pid_, SIGKILL);
  }
  Stepped(const Stepped&) = delete;
  Stepped& operator=(const Stepped&) = delete;

  [[nodiscard]] uint64_t Ip() const {
    errno = 0;
    const auto ip = static_cast<uint64_t>(
        ptrace(PTRACE_PEEKUSER, pid_, offsetof(user_regs_struct, rip), nullptr));
    if (errno != 0) Die("read the instruction pointer");
    return ip;
  }

  // Runs freely to `address`.
  void RunTo(uint64_t address) {
    errno = 0;
    const long word = ptrace(PTRACE_PEEKTEXT, pid_, address, nullptr);
    if (errno != 0) Die("read the code at --start");
    ptrace(PTRACE_POKETEXT, pid_, address, (word & ~0xffL) | 0xcc);
    int deliver = 0;
    while (true) {
      deliver = Resume(PTRACE_CONT, deliver);
      if (ended_) Die("the program ended before --start");
      if (deliver == SIGTRAP && Ip() == address + 1) break;
    }
    ptrace(PTRACE_POKETEXT, pid_, address, word);
    ptrace(PTRACE_POKEUSER, pid_, offsetof(user_regs_struct, rip), address);
  }

  // One step. False: the program has ended. `signal` is the one that stopped it instead of the
  // step's trap.
  bool Step(int* signal) {
    const int stopped_by = Resume(PTRACE_SINGLESTEP, *signal);
    *signal = stopped_by == SIGTRAP ? 0 : stopped_by;
    return !ended_;
  }

  // The instruction at `ip`, from a cache: code that changes while it is stepped is not supported.
  const Instruction& At(uint64_t ip) {
    Instruction& known = instructions_[ip];
    if (known.length == 0) known = Decode(ip);
    return known;
  }

 private:
  int Resume(__ptrace_request how, int signal) {
    if (ptrace(how, pid_, nullptr, signal) != 0) Die("ptrace");
    int status = 0;
    if (waitpid(pid_, &status, 0) != pid_) Die("waitpid");
    ended_ = !WIFSTOPPED(status);
    return ended_ ? 0 : WSTOPSIG(status);
  }

  Instruction Decode(uint64_t ip) {
    unsigned char bytes[15] = {};
    iovec local{bytes, sizeof bytes};
    iovec remote{reinterpret_cast<void*>(ip), sizeof bytes};
    ssize_t got = process_vm_readv(pid_, &local, 1, &remote, 1, 0);
    if (got < static_cast<ssize_t>(sizeof bytes)) {  // the code ends at a page's end
      remote.iov_len = 4096 - (ip & 4095);
      got = process_vm_readv(pid_, &local, 1, &remote, 1, 0);
    }
    ZydisDecodedInstruction instruction;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    if (got <= 0 || ZYAN_FAILED(ZydisDecoderDecodeFull(
                        &decoder_, bytes, static_cast<ZyanUSize>(got), &instruction, operands))) {
      Die("decode the instruction at " + std::to_string(ip));
    }
    constexpr ZydisInstructionAttributes kRepeats =
        ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE;
    return {instruction.length, (instruction.attributes & kRepeats) != 0,
            KindOf(instruction, operands)};
  }

  pid_t pid_;
  bool ended_ = false;
  ZydisDecoder decoder_{};
  std::unordered_map<uint64_t, Instruction> instructions_;
};

struct Totals {
  uint64_t steps = 0;
  uint64_t by_kind[128] = {};
};

// The letter for the step from `ip` to `next`, 0 for none.
char Classify(const Instruction& instruction, uint64_t ip, uint64_t next) {
  const uint64_t following = ip + instruction.length;
  if (instruction.kind == 'c') return next == following ? 'N' : 'T';
  if (instruction.kind != 0) return instruction.kind;
  if (next == following || (instruction.repeats && next == ip)) return 0;
  return 'F';  // the kernel moved it: a restarted system call, a restartable sequence
}

Totals Walk(Stepped& program, const Options& options, FILE* out) {
  Totals totals;
  int signal = 0;
  uint64_t ip = program.Ip();
  for (uint64_t step = 0; step < options.skip; ++step) {
    if (!program.Step(&signal)) return totals;
    ip = program.Ip();
  }
  while (totals.steps < options.steps) {
    const Instruction instruction = program.At(ip);
    const bool delivers = signal != 0;
    if (!program.Step(&signal)) break;
    const uint64_t next = program.Ip();
    if (signal != 0 && next == ip) continue;  // stopped before the instruction, with a signal
    ++totals.steps;
    const char kind = delivers ? 'S' : Classify(instruction, ip, next);
    if (kind != 0) {
      std::fprintf(out, "%" PRIx64 " %" PRIx64 " %c\n", ip, next, kind);
      ++totals.by_kind[static_cast<size_t>(kind)];
    } else if (options.all && !(instruction.repeats && next == ip)) {
      std::fprintf(out, "%" PRIx64 " %" PRIx64 " -\n", ip, next);
    }
    ip = next;
  }
  return totals;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  FILE* out = std::fopen(options.output.c_str(), "w");
  if (out == nullptr) Die(options.output);
  Stepped program(options.command);
  if (options.start != 0) program.RunTo(options.start);
  const Totals totals = Walk(program, options, out);
  if (std::fclose(out) != 0) Die(options.output);
  if (options.counts) {
    std::fprintf(stderr, "steps %" PRIu64, totals.steps);
    for (const char kind : std::string("TNJCIRFS")) {
      std::fprintf(stderr, " %c %" PRIu64, kind, totals.by_kind[static_cast<size_t>(kind)]);
    }
    std::fprintf(stderr, "\n");
  }
  return 0;
}
