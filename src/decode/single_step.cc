// ptrace and Zydis behind single_step().
#include "decode/single_step.h"

#include <Zydis/Zydis.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>

namespace auxtrail::decode::test {
namespace {

StepClass branch_class(const ZydisDecodedInstruction& insn, const ZydisDecodedOperand* operands) {
  const bool relative = insn.operand_count > 0 && operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE;
  switch (insn.meta.category) {
    case ZYDIS_CATEGORY_COND_BR:
      return StepClass::kConditional;
    case ZYDIS_CATEGORY_UNCOND_BR:
      return relative ? StepClass::kJump : StepClass::kJumpIndirect;
    case ZYDIS_CATEGORY_CALL:
      return relative ? StepClass::kCall : StepClass::kCallIndirect;
    case ZYDIS_CATEGORY_RET:
      return StepClass::kReturn;
    case ZYDIS_CATEGORY_SYSCALL:
      return StepClass::kSyscall;
    default:
      return StepClass::kOther;
  }
}

StepInsn decode_at(pid_t pid, uint64_t ip) {
  uint8_t bytes[15] = {};
  iovec local{bytes, sizeof(bytes)};
  iovec remote{reinterpret_cast<void*>(ip), sizeof(bytes)};  // NOLINT
  const ssize_t count = ::process_vm_readv(pid, &local, 1, &remote, 1, 0);
  ZydisDecoder decoder;
  ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  ZydisDecodedInstruction insn;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  if (count <= 0 || !ZYAN_SUCCESS(ZydisDecoderDecodeFull(
                        &decoder, bytes, static_cast<ZyanUSize>(count), &insn, operands))) {
    return {};
  }
  constexpr auto kRepeats = ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE;
  const bool repeats = (insn.attributes & kRepeats) != 0;
  return {branch_class(insn, operands), insn.length, repeats};
}

std::vector<MapLine> executable_maps(pid_t pid) {
  std::vector<MapLine> maps;
  std::ifstream file(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    MapLine map;
    char dash = 0;
    std::string protection;
    std::string device;
    uint64_t inode = 0;
    words >> std::hex >> map.start >> dash >> map.end >> protection >> map.file_offset >> device >>
        std::dec >> inode >> map.path;
    if (protection.size() > 2 && protection[2] == 'x') maps.push_back(map);
  }
  return maps;
}

pid_t start(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(null, STDOUT_FILENO);
  ::dup2(null, STDIN_FILENO);
  ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

// In virtual machines the hypervisor executes cpuid, and the trap that single-stepping waits for
// comes one instruction late. Puts the missing one in, if that explains how the flow came to `ip`.
void fill_hole(pid_t pid, uint64_t ip, Steps& steps) {
  if (steps.ips.empty()) return;
  const StepInsn& previous = steps.insns.at(steps.ips.back());
  const uint64_t missing = steps.ips.back() + previous.length;
  if (previous.cls != StepClass::kOther || missing == ip || steps.ips.back() == ip) return;
  const StepInsn insn = decode_at(pid, missing);
  if (insn.cls != StepClass::kOther || missing + insn.length != ip) return;
  steps.insns.try_emplace(missing, insn);
  steps.ips.push_back(missing);
}

}  // namespace

Steps single_step(const std::vector<std::string>& command, size_t skip, size_t count) {
  Steps steps;
  const pid_t pid = start(command);
  int status = 0;
  if (pid < 0 || ::waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
    steps.failure = fmt::format("cannot trace {}: {}", command[0], std::strerror(errno));
    return steps;
  }
  for (size_t taken = 0; taken < skip + count; ++taken) {
    user_regs_struct registers{};
    if (::ptrace(PTRACE_GETREGS, pid, nullptr, &registers) != 0) break;
    const uint64_t ip = registers.rip;
    if (taken >= skip) {
      fill_hole(pid, ip, steps);
      const auto [place, is_new] = steps.insns.try_emplace(ip);
      if (is_new) place->second = decode_at(pid, ip);
      const bool again = !steps.ips.empty() && steps.ips.back() == ip && place->second.repeats;
      if (!again) steps.ips.push_back(ip);
    }
    if (::ptrace(PTRACE_SINGLESTEP, pid, nullptr, nullptr) != 0) break;
    if (::waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) break;
    if (WSTOPSIG(status) != SIGTRAP) break;
  }
  steps.maps = executable_maps(pid);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, &status, 0);
  if (steps.ips.size() < 2) steps.failure = fmt::format("no steps of {}", command[0]);
  return steps;
}

}  // namespace auxtrail::decode::test
