#include "record/machine.h"

#include <linux/perf_event.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/unique_fd.h"
#include "channel/kernel_version.h"
#include "channel/layout.h"
#include "record/options.h"
#include "record/tracepoint.h"

namespace auxtrail::record {
namespace {

constexpr char kPmuFolder[] = "/sys/bus/event_source/devices";
constexpr uint32_t kFirstDynamicPmu = 8;
constexpr uint64_t kUnknownRateHz = 1'000'000;
constexpr int64_t kDefaultMlockKib = 516;

std::string cpuinfo_line(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) == 0) return line;
  }
  return "";
}

// What /proc/self/status says behind `key`.
std::string own_status(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) == 0) return line.substr(key.size());
  }
  return "";
}

}  // namespace

std::optional<int64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

IntelPt find_intel_pt() {
  IntelPt found;
  uint32_t highest = kFirstDynamicPmu - 1;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(kPmuFolder, ignored)) {
    const auto type = read_number(entry.path() / "type");
    if (!type) continue;
    highest = std::max(highest, static_cast<uint32_t>(*type));
    if (entry.path().filename() == "intel_pt") {
      found.present = true;
      found.pmu_type = static_cast<uint32_t>(*type);
    }
  }
  if (!found.present) found.pmu_type = highest + 1;
  return found;
}

MachineFacts machine_facts() {
  return {find_intel_pt(), std::min(max_sample_rate_hz(), kMaxUnitRateHz),
          probe_hardware_counter() == 0, kTracefs};
}

uint64_t max_sample_rate_hz() {
  const auto rate = read_number("/proc/sys/kernel/perf_event_max_sample_rate");
  return rate && *rate > 0 ? static_cast<uint64_t>(*rate) : kUnknownRateHz;
}

uint64_t mlock_limit_bytes() {
  const auto kib = read_number("/proc/sys/kernel/perf_event_mlock_kb");
  return static_cast<uint64_t>(kib.value_or(kDefaultMlockKib)) << 10;
}

std::vector<uint32_t> online_cpus() {
  std::ifstream file("/sys/devices/system/cpu/online");
  std::vector<uint32_t> cpus;
  for (std::string range; std::getline(file, range, ',');) {
    const char* end = range.data() + range.size();
    uint32_t first = 0;
    auto parsed = std::from_chars(range.data(), end, first);
    if (parsed.ec != std::errc{}) continue;
    uint32_t last = first;
    if (parsed.ptr != end && *parsed.ptr == '-') std::from_chars(parsed.ptr + 1, end, last);
    for (uint32_t cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  if (!cpus.empty()) return cpus;
  const long count = ::sysconf(_SC_NPROCESSORS_ONLN);
  for (long cpu = 0; cpu < std::max(count, 1L); ++cpu) cpus.push_back(static_cast<uint32_t>(cpu));
  return cpus;
}

int probe_event(const perf_event_attr& attr) {
  perf_event_attr disabled = attr;
  disabled.size = sizeof(disabled);
  disabled.exclude_kernel = 1;
  disabled.exclude_hv = 1;
  disabled.disabled = 1;
  const UniqueFd fd(
      static_cast<int>(::syscall(SYS_perf_event_open, &disabled, 0, -1, -1, PERF_FLAG_FD_CLOEXEC)));
  return fd ? 0 : errno;
}

int probe_sigtrap_trigger() {
  utsname name{};
  if (::uname(&name) != 0 || !channel::waits_for_blocked_sigtrap(name.release)) return EINVAL;
  perf_event_attr attr{};
  attr.type = PERF_TYPE_SOFTWARE;
  attr.config = PERF_COUNT_SW_TASK_CLOCK;
  attr.sample_period = 1'000'000'000;
  attr.sigtrap = 1;
  attr.remove_on_exec = 1;
  attr.inherit = 1;
  attr.inherit_thread = 1;
  return probe_event(attr);
}

int probe_hardware_counter() {
  perf_event_attr attr{};
  attr.type = PERF_TYPE_HARDWARE;
  attr.config = PERF_COUNT_HW_CPU_CYCLES;
  return probe_event(attr);
}

int probe_executable_memory() {
  const UniqueFd fd(::memfd_create("auxtrail-doctor", MFD_CLOEXEC));
  if (!fd || ::ftruncate(fd.get(), channel::kPageBytes) != 0) return errno;
  constexpr size_t kBytes = channel::kPageBytes;
  void* code = ::mmap(nullptr, kBytes, PROT_READ | PROT_EXEC, MAP_SHARED, fd.get(), 0);
  if (code == MAP_FAILED) return errno;
  const Mapping readable(code, kBytes);
  void* plain = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE | PROT_EXEC,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (plain == MAP_FAILED) return errno;
  const Mapping writable(plain, kBytes);
  return 0;
}

bool shadow_stack_enabled() {
  return own_status("x86_Thread_features:").find("shstk") != std::string::npos;
}

bool seccomp_enabled() { return own_status("Seccomp:").find('2') != std::string::npos; }

unsigned seccomp_filters() {
  const std::string text = own_status("Seccomp_filters:");
  return static_cast<unsigned>(std::strtoul(text.c_str(), nullptr, 10));
}

bool cpu_has_flag(const std::string& flag) {
  std::istringstream words(cpuinfo_line("flags"));
  for (std::string word; words >> word;) {
    if (word == flag) return true;
  }
  return false;
}

}  // namespace auxtrail::record
