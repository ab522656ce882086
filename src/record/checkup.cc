#include "record/checkup.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "perfdata/elf_build_id.h"
#include "record/machine.h"
#include "record/options.h"
#include "record/unit_library.h"

namespace auxtrail::record {
namespace {

using State = Finding::State;

constexpr char kSysctl[] = "/proc/sys/kernel/";

Finding software_unit() {
  const char* topic = "trace unit: software";
  const auto library = find_unit_library();
  if (!library) return {topic, State::kShortfall, library.error().message(), library.error().fix};
  const int sys_errno = probe_executable_memory();
  if (sys_errno != 0) {
    return {topic, State::kShortfall,
            fmt::format("memory for the code cache is refused: {}", std::strerror(sys_errno)),
            "allow executable memory (SELinux: setsebool -P deny_execmem 0)"};
  }
  return {topic, State::kOk,
          fmt::format("works: {}{}", *library,
                      cpu_has_flag("bmi2") ? "; the CPU has BMI2" : "; no BMI2, a little slower"),
          ""};
}

Finding shadow_stack() {
  const char* topic = "shadow stack";
  if (!shadow_stack_enabled()) return {topic, State::kOk, "off: translated code may run", ""};
  return {topic, State::kShortfall, "on: threads with it are left alone by the software trace unit",
          "export GLIBC_TUNABLES=glibc.cpu.x86_shstk=off"};
}

Finding sandbox() {
  const char* topic = "sandbox";
  if (!seccomp_enabled()) return {topic, State::kOk, "none (no seccomp filter)", ""};
  return {topic, State::kShortfall,
          "a seccomp filter is on: what it denies the trace unit goes without",
          "run the container with --security-opt seccomp=unconfined"};
}

Finding intel_pt_unit() {
  const char* topic = "trace unit: Intel PT";
  if (find_intel_pt().present) {
    return {topic, State::kNote, "there, but this version records with the software unit only", ""};
  }
  return {topic, State::kNote,
          cpu_has_flag("intel_pt") ? "the CPU has it, the kernel offers no PMU intel_pt"
                                   : "none: this CPU, or the hypervisor, does not offer it",
          ""};
}

Finding trigger() {
  const char* topic = "trigger: kernel event";
  const int sys_errno = probe_sigtrap_trigger();
  if (sys_errno == 0) return {topic, State::kOk, "perf_event_open with sigtrap works", ""};
  std::string text =
      fmt::format("perf_event_open: {}; thread timers are used instead", std::strerror(sys_errno));
  if (sys_errno == EINVAL) {
    return {topic, State::kShortfall, text,
            "use Linux 5.19 or newer (events with attr.sigtrap that wait while it is blocked)"};
  }
  return {topic, State::kShortfall, text,
          "sudo sysctl kernel.perf_event_paranoid=2; in a container allow the system call "
          "perf_event_open (--cap-add PERFMON)"};
}

Finding hardware_counters() {
  const char* topic = "hardware counters";
  const int sys_errno = probe_hardware_counter();
  if (sys_errno == 0) return {topic, State::kOk, "work: -e cycles, instructions, ...", ""};
  if (sys_errno == EACCES || sys_errno == EPERM) {
    return {topic, State::kShortfall, std::strerror(sys_errno),
            "sudo sysctl kernel.perf_event_paranoid=2"};
  }
  return {topic, State::kNote,
          fmt::format("none ({}): use clock and fault events", std::strerror(sys_errno)), ""};
}

Finding paranoid() {
  const char* topic = "perf_event_paranoid";
  const auto level = read_number(std::string(kSysctl) + topic);
  if (!level) {
    return {topic, State::kShortfall, "the kernel has no perf events",
            "use a kernel with CONFIG_PERF_EVENTS"};
  }
  if (*level <= 2)
    return {topic, State::kOk, fmt::format("{}: user space may be recorded", *level), ""};
  return {topic, State::kShortfall, fmt::format("{}: only root may use perf events", *level),
          "sudo sysctl kernel.perf_event_paranoid=2"};
}

Finding locked_memory() {
  const char* topic = "perf_event_mlock_kb";
  const uint64_t kib = mlock_limit_bytes() >> 10;
  if (kib >= 516) return {topic, State::kOk, fmt::format("{}: enough for the side-band", kib), ""};
  return {topic, State::kShortfall, fmt::format("{}: side-band records may be lost", kib),
          "sudo sysctl kernel.perf_event_mlock_kb=516"};
}

Finding sample_rate() {
  const char* topic = "perf_event_max_sample_rate";
  const uint64_t hz = max_sample_rate_hz();
  if (hz >= kDefaultFrequencyHz) return {topic, State::kOk, fmt::format("{} Hz", hz), ""};
  return {topic, State::kShortfall, fmt::format("{} Hz is below the default rate", hz),
          fmt::format("sudo sysctl kernel.{}=10000", topic)};
}

Finding kernel_pointers() {
  const auto level = read_number(std::string(kSysctl) + "kptr_restrict");
  return {"kptr_restrict", State::kOk,
          fmt::format("{}: does not matter, user space only is traced", level.value_or(0)), ""};
}

Finding ptrace_scope() {
  const char* topic = "ptrace_scope";
  const auto level = read_number(std::string(kSysctl) + "yama/ptrace_scope");
  if (!level) return {topic, State::kOk, "not restricted (no Yama)", ""};
  if (*level < 3)
    return {topic, State::kOk, fmt::format("{}: own processes may be read", *level), ""};
  return {topic, State::kNote, "3: only matters to gdb; recording does not use ptrace", ""};
}

// The path of the C library of this process.
std::string libc_path() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path != std::string::npos && line.find("/libc.so.6", path) != std::string::npos) {
      return line.substr(path);
    }
  }
  return "";
}

Finding debug_info() {
  const char* topic = "debug info of libc";
  const auto build_id = perfdata::elf_build_id(libc_path());
  if (!build_id) return {topic, State::kNote, "the C library has no build id", ""};
  std::string hex;
  for (const std::byte byte : *build_id) hex += fmt::format("{:02x}", static_cast<unsigned>(byte));
  const std::string file =
      "/usr/lib/debug/.build-id/" + hex.substr(0, 2) + "/" + hex.substr(2) + ".debug";
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored)) return {topic, State::kOk, file, ""};
  const char* servers = std::getenv("DEBUGINFOD_URLS");
  if (servers != nullptr && *servers != '\0') {
    return {topic, State::kOk, fmt::format("from debuginfod ({})", servers), ""};
  }
  return {topic, State::kShortfall, "none: lines and inlined functions of libc stay unknown",
          "sudo apt install libc6-dbg, or export DEBUGINFOD_URLS=https://debuginfod.debian.net"};
}

Finding open_files() {
  const char* topic = "open files";
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::string text = fmt::format("{} (3 per traced process)", limit.rlim_max);
  if (limit.rlim_max >= 4096) return {topic, State::kOk, text, ""};
  return {topic, State::kShortfall, text, "ulimit -Hn 65536"};
}

}  // namespace

std::vector<Finding> examine_machine() {
  return {software_unit(),     shadow_stack(), sandbox(),       intel_pt_unit(), trigger(),
          hardware_counters(), paranoid(),     locked_memory(), sample_rate(),   kernel_pointers(),
          ptrace_scope(),      open_files(),   debug_info()};
}

}  // namespace auxtrail::record
