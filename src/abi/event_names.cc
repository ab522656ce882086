// Names of generic events. One table per kind serves both directions.
#include <fmt/format.h>
#include <linux/hw_breakpoint.h>

#include <charconv>
#include <iterator>

#include "abi/attr.h"

namespace auxtrail::abi {
namespace {

struct NamedConfig {
  uint64_t config;
  std::string_view name;
  std::string_view alias;  // may be empty
};

constexpr NamedConfig kSoftware[] = {
    {PERF_COUNT_SW_CPU_CLOCK, "cpu-clock", ""},
    {PERF_COUNT_SW_TASK_CLOCK, "task-clock", ""},
    {PERF_COUNT_SW_PAGE_FAULTS, "page-faults", "faults"},
    {PERF_COUNT_SW_CONTEXT_SWITCHES, "context-switches", "cs"},
    {PERF_COUNT_SW_CPU_MIGRATIONS, "cpu-migrations", "migrations"},
    {PERF_COUNT_SW_PAGE_FAULTS_MIN, "minor-faults", ""},
    {PERF_COUNT_SW_PAGE_FAULTS_MAJ, "major-faults", ""},
    {PERF_COUNT_SW_ALIGNMENT_FAULTS, "alignment-faults", ""},
    {PERF_COUNT_SW_EMULATION_FAULTS, "emulation-faults", ""},
    {PERF_COUNT_SW_DUMMY, "dummy", ""},
    {PERF_COUNT_SW_BPF_OUTPUT, "bpf-output", ""},
    {PERF_COUNT_SW_CGROUP_SWITCHES, "cgroup-switches", ""},
};

constexpr NamedConfig kHardware[] = {
    {PERF_COUNT_HW_CPU_CYCLES, "cycles", "cpu-cycles"},
    {PERF_COUNT_HW_INSTRUCTIONS, "instructions", ""},
    {PERF_COUNT_HW_CACHE_REFERENCES, "cache-references", ""},
    {PERF_COUNT_HW_CACHE_MISSES, "cache-misses", ""},
    {PERF_COUNT_HW_BRANCH_INSTRUCTIONS, "branches", "branch-instructions"},
    {PERF_COUNT_HW_BRANCH_MISSES, "branch-misses", ""},
    {PERF_COUNT_HW_BUS_CYCLES, "bus-cycles", ""},
    {PERF_COUNT_HW_STALLED_CYCLES_FRONTEND, "stalled-cycles-frontend", "idle-cycles-frontend"},
    {PERF_COUNT_HW_STALLED_CYCLES_BACKEND, "stalled-cycles-backend", "idle-cycles-backend"},
    {PERF_COUNT_HW_REF_CPU_CYCLES, "ref-cycles", ""},
};

constexpr std::string_view kCaches[] = {"L1-dcache", "L1-icache", "LLC", "dTLB",
                                        "iTLB",      "branch",    "node"};
struct CacheOperation {
  std::string_view one;
  std::string_view many;
};
constexpr CacheOperation kCacheOperations[] = {
    {"load", "loads"}, {"store", "stores"}, {"prefetch", "prefetches"}};

std::string cache_event_name(size_t cache, size_t operation, bool misses) {
  const CacheOperation& names = kCacheOperations[operation];
  return misses ? fmt::format("{}-{}-misses", kCaches[cache], names.one)
                : fmt::format("{}-{}", kCaches[cache], names.many);
}

std::string config_name(std::span<const NamedConfig> table, uint64_t config,
                        std::string_view kind) {
  for (const NamedConfig& entry : table) {
    if (entry.config == config) return std::string(entry.name);
  }
  return fmt::format("unknown-{}-{}", kind, config);
}

std::string cache_name(uint64_t config) {
  const uint64_t cache = config & 0xff;
  const uint64_t operation = (config >> 8) & 0xff;
  const uint64_t result = (config >> 16) & 0xff;
  if (cache >= std::size(kCaches) || operation >= std::size(kCacheOperations) || result > 1) {
    return fmt::format("unknown-cache-{:#x}", config);
  }
  return cache_event_name(cache, operation, result == PERF_COUNT_HW_CACHE_RESULT_MISS);
}

std::string breakpoint_name(const perf_event_attr& attr) {
  std::string access;
  if ((attr.bp_type & HW_BREAKPOINT_R) != 0) access += 'r';
  if ((attr.bp_type & HW_BREAKPOINT_W) != 0) access += 'w';
  if ((attr.bp_type & HW_BREAKPOINT_X) != 0) access += 'x';
  return fmt::format("mem:{:#x}:{}", static_cast<uint64_t>(attr.bp_addr), access);
}

std::string modifiers(const perf_event_attr& attr) {
  std::string letters;
  if (attr.exclude_kernel != 0 || attr.exclude_user != 0 || attr.exclude_hv != 0) {
    if (attr.exclude_kernel == 0) letters += 'k';
    if (attr.exclude_user == 0) letters += 'u';
    if (attr.exclude_hv == 0) letters += 'h';
  }
  letters.append(attr.precise_ip, 'p');
  return letters;
}

// "intel_pt//", or "name/config=0x1/" where the attr says more than the name.
std::string pmu_event_name(const std::string& pmu, const perf_event_attr& attr) {
  if (pmu == "intel_pt" || pmu == "intel_bts") return pmu + "//";
  return fmt::format("{}/config={:#x}/", pmu, static_cast<uint64_t>(attr.config));
}

bool apply_modifiers(std::string_view letters, perf_event_attr& attr) {
  bool kernel = false;
  bool user = false;
  bool hypervisor = false;
  uint32_t precise = 0;
  for (const char letter : letters) {
    switch (letter) {
      case 'k':
        kernel = true;
        break;
      case 'u':
        user = true;
        break;
      case 'h':
        hypervisor = true;
        break;
      case 'p':
        ++precise;
        break;
      default:
        return false;
    }
  }
  if (letters.empty() || precise > 3) return false;
  if (kernel || user || hypervisor) {
    attr.exclude_kernel = kernel ? 0 : 1;
    attr.exclude_user = user ? 0 : 1;
    attr.exclude_hv = hypervisor ? 0 : 1;
  }
  attr.precise_ip = precise & 3;
  return true;
}

bool find_config(std::span<const NamedConfig> table, std::string_view name, uint64_t& config) {
  for (const NamedConfig& entry : table) {
    if (name == entry.name || (!entry.alias.empty() && name == entry.alias)) {
      config = entry.config;
      return true;
    }
  }
  return false;
}

bool find_cache_event(std::string_view name, uint64_t& config) {
  for (uint64_t cache = 0; cache < std::size(kCaches); ++cache) {
    for (uint64_t operation = 0; operation < std::size(kCacheOperations); ++operation) {
      for (const uint64_t result : {uint64_t{0}, uint64_t{1}}) {
        if (name == cache_event_name(cache, operation, result != 0)) {
          config = cache | (operation << 8) | (result << 16);
          return true;
        }
      }
    }
  }
  return false;
}

bool parse_raw(std::string_view name, uint64_t& config) {
  if (name.size() < 2 || name[0] != 'r') return false;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + 1, end, config, 16);
  return parsed.ec == std::errc{} && parsed.ptr == end;
}

bool find_base(std::string_view name, perf_event_attr& attr) {
  uint64_t config = 0;
  if (find_config(kSoftware, name, config)) {
    attr.type = PERF_TYPE_SOFTWARE;
  } else if (find_config(kHardware, name, config)) {
    attr.type = PERF_TYPE_HARDWARE;
  } else if (find_cache_event(name, config)) {
    attr.type = PERF_TYPE_HW_CACHE;
  } else if (parse_raw(name, config)) {
    attr.type = PERF_TYPE_RAW;
  } else {
    return false;
  }
  attr.config = config;
  return true;
}

}  // namespace

std::string event_name(const perf_event_attr& attr, const PmuNames& pmus) {
  const std::string suffix = modifiers(attr);
  std::string base;
  switch (attr.type) {
    case PERF_TYPE_HARDWARE:
      base = config_name(kHardware, attr.config, "hardware");
      break;
    case PERF_TYPE_SOFTWARE:
      base = config_name(kSoftware, attr.config, "software");
      break;
    case PERF_TYPE_TRACEPOINT:
      base = fmt::format("tracepoint-{}", static_cast<uint64_t>(attr.config));
      break;
    case PERF_TYPE_HW_CACHE:
      base = cache_name(attr.config);
      break;
    case PERF_TYPE_RAW:
      base = fmt::format("r{:x}", static_cast<uint64_t>(attr.config));
      break;
    case PERF_TYPE_BREAKPOINT:
      base = breakpoint_name(attr);
      break;
    default: {
      const auto pmu = pmus.find(attr.type);
      if (pmu != pmus.end()) return pmu_event_name(pmu->second, attr) + suffix;
      base = fmt::format("unknown-attr-type-{}", static_cast<uint32_t>(attr.type));
    }
  }
  return suffix.empty() ? base : base + ":" + suffix;
}

std::optional<perf_event_attr> find_event(std::string_view name) {
  perf_event_attr attr{};
  attr.size = sizeof(attr);
  const size_t colon = name.rfind(':');
  if (colon != std::string_view::npos && !apply_modifiers(name.substr(colon + 1), attr)) {
    return std::nullopt;
  }
  if (!find_base(name.substr(0, colon), attr)) return std::nullopt;
  return attr;
}

std::vector<std::string_view> generic_event_names() {
  std::vector<std::string_view> names;
  for (const NamedConfig& entry : kSoftware) names.push_back(entry.name);
  for (const NamedConfig& entry : kHardware) names.push_back(entry.name);
  return names;
}

}  // namespace auxtrail::abi
