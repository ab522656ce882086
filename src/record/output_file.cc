#include "record/output_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "base/bytes.h"
#include "perfdata/user_records.h"
#include "record/machine.h"

namespace auxtrail::record {
namespace {

// A full disk costs at most what was gathered since the last flush.
constexpr size_t kFlushBytes = size_t{128} << 10;

Status keep_old_file(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) {
    return {};
  }
  const std::string old_path = path + ".old";
  if (std::rename(path.c_str(), old_path.c_str()) != 0) {
    return fail_errno("rename the old file", path + " to " + old_path, errno,
                      "choose another file with -o");
  }
  return {};
}

perfdata::IntelPtInfo intel_pt_info(const SessionPlan& plan) {
  perfdata::IntelPtInfo info;
  info.pmu_type = plan.config.leader.type;
  // perf needs it to see where branches leave the trace.
  info.filter = filters_text(plan.events.leader.filters);
  info.snapshot_mode = plan.config.mode == channel::TraceMode::kSnapshot ? 1 : 0;
  if (plan.config.mode != channel::TraceMode::kSample) {
    info.cap_user_time_zero = 1;  // decoded by time: mappings change during the trace
    return info;
  }
  // With a TSC bit, perf takes a window whose TSC is below the one before it in the same queue for
  // an overlap and drops it silently. Windows of two threads do overlap in time, and all of them
  // share one queue. Without the bit it compares bytes, and TSC packets make all windows differ.
  info.tsc_bit = 0;
  return info;
}

void append_front(ByteWriter& out, const SessionPlan& plan) {
  perfdata::append_intel_pt_info(out, intel_pt_info(plan));
  std::vector<perfdata::IdIndexEntry> ids = {{plan.config.leader_id, 0, -1, -1}};
  for (uint32_t i = 0; i < plan.config.sampler_count; ++i) {
    ids.push_back({plan.config.samplers[i].id, 0, -1, -1});
  }
  perfdata::append_id_index(out, ids);
  std::vector<uint16_t> cpus;
  for (const uint32_t cpu : online_cpus()) cpus.push_back(static_cast<uint16_t>(cpu));
  perfdata::append_cpu_map(out, cpus);
  perfdata::append_finished_init(out);
}

}  // namespace

Result<perfdata::Writer> create_output(const std::string& path, const SessionPlan& plan) {
  AUXTRAIL_TRY(keep_old_file(path));
  perfdata::WriterOptions options;
  options.buffer_bytes = kFlushBytes;
  AUXTRAIL_ASSIGN(perfdata::Writer writer,
                  perfdata::Writer::create(path, file_events(plan), options));
  ByteWriter front;
  append_front(front, plan);
  AUXTRAIL_TRY(writer.append(front.bytes()));
  AUXTRAIL_TRY(writer.flush());
  return writer;
}

}  // namespace auxtrail::record
