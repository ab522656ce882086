#include "decode/testing/real_traces.h"

#include <algorithm>
#include <array>

#include "decode/test_support.h"
#include "pt/psb_search.h"

namespace auxtrail::decode::testing {
namespace {

using test::page_dump;
using test::read_file;

struct PageTrace {
  const char* trace;
  const char* pages;
  uint64_t filter_start;
  uint64_t filter_end;
};
constexpr std::array kPageTraces = {
    PageTrace{"kvm_pt/Unzip/trace", "kvm_pt/Unzip/data", 0x400000, 0x427000},
    PageTrace{"kvm_pt/foo/trace", "kvm_pt/foo/data", 0x7ffff7819000, 0x7ffff79ca000},
    PageTrace{"kvm_pt/avscript_32/failed_trace_12709_1", "kvm_pt/avscript_32/page_cache", 0x1000,
              0x7ffffffff000},
    PageTrace{"kvm_pt/dyn_test/sample_raw_0", "kvm_pt/dyn_test/page_cache", 0x1000, 0x7ffffffff000},
};

struct FileTrace {
  const char* trace;
  const char* file;
  uint64_t address;
};
constexpr std::array kFileTraces = {
    FileTrace{"perf_pt/intelpt-trace/3842849.trace", "perf_pt/intelpt-trace/a.out", 0x400000},
    FileTrace{"perf_pt/intelpt-trace-multi-file/multi-file.trace",
              "perf_pt/intelpt-trace-multi-file/a.out", 0x400000},
};

void add(std::vector<RealTrace>& traces, RealTrace trace, const std::filesystem::path& path) {
  trace.title = path.string();
  trace.bytes = read_file(path);
  trace.code.id = traces.size() + 1;  // programs' ids are large and random
  for (auto psb = pt::find_psb(trace.bytes); psb;
       psb = pt::find_psb(trace.bytes, *psb + pt::kPsbBytes)) {
    trace.psbs.push_back(*psb);
  }
  if (!trace.psbs.empty() && !trace.code.sections.empty()) traces.push_back(std::move(trace));
}

}  // namespace

std::vector<RealTrace> read_real_traces(const std::filesystem::path& directory) {
  std::vector<RealTrace> traces;
  TraceConfig skylake;
  skylake.intel_cpu = true;
  skylake.family = 6;
  skylake.model = 94;
  for (const PageTrace& entry : kPageTraces) {
    RealTrace trace;
    trace.config = skylake;
    trace.config.filter_start = entry.filter_start;
    trace.config.filter_end = entry.filter_end;
    trace.code = page_dump(directory / entry.pages);
    add(traces, std::move(trace), directory / entry.trace);
  }
  for (const FileTrace& entry : kFileTraces) {
    RealTrace trace;
    trace.config = skylake;
    trace.config.model = 79;
    std::error_code error;
    const auto size = std::filesystem::file_size(directory / entry.file, error);
    if (!error) {
      trace.code.sections.push_back({(directory / entry.file).string(), 0, size, entry.address});
    }
    add(traces, std::move(trace), directory / entry.trace);
  }
  return traces;
}

}  // namespace auxtrail::decode::testing
