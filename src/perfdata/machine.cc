// Features that describe the machine at hand: uname, sysconf, /proc/cpuinfo, sysfs.
#include <cpuid.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string>

#include "perfdata/features.h"

namespace auxtrail::perfdata {
namespace {

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    return colon == std::string::npos ? std::string() : line.substr(colon + 2);
  }
  return {};
}

// "vendor,family,model,stepping", as perf writes it.
std::string cpu_identity() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0) return {};
  std::string vendor;
  for (const unsigned word : {ebx, edx, ecx}) {
    for (unsigned shift = 0; shift < 32; shift += 8) vendor += static_cast<char>(word >> shift);
  }
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return {};
  unsigned family = (eax >> 8) & 0xf;
  unsigned model = (eax >> 4) & 0xf;
  if (family == 6 || family == 15) model += ((eax >> 16) & 0xf) << 4;
  if (family == 15) family += (eax >> 20) & 0xff;
  return fmt::format("{},{},{},{}", vendor, family, model, eax & 0xf);
}

std::vector<PmuMapping> machine_pmus() {
  std::vector<PmuMapping> pmus;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/sys/bus/event_source/devices", error)) {
    const std::string text = first_line(entry.path() / "type");
    PmuMapping pmu;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), pmu.type);
    if (parsed.ec != std::errc{}) continue;
    pmu.name = entry.path().filename().string();
    pmus.push_back(std::move(pmu));
  }
  std::sort(pmus.begin(), pmus.end(),
            [](const PmuMapping& a, const PmuMapping& b) { return a.type < b.type; });
  return pmus;
}

}  // namespace

void describe_this_machine(Features& features) {
  utsname names{};
  if (::uname(&names) == 0) {
    features.hostname = names.nodename;
    features.os_release = names.release;
    features.arch = names.machine;
  }
  const long available = ::sysconf(_SC_NPROCESSORS_CONF);
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  if (available > 0 && online > 0) {
    features.cpus = {static_cast<uint32_t>(available), static_cast<uint32_t>(online)};
  }
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page_bytes = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0) {
    features.total_memory_kib =
        static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes) / 1024;
  }
  features.cpu_description = cpu_model();
  features.cpuid = cpu_identity();
  features.pmus = machine_pmus();
}

}  // namespace auxtrail::perfdata
