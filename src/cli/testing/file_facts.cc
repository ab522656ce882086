#include "cli/testing/file_facts.h"

#include "perfdata/reader.h"

namespace auxtrail::cli::testing {
namespace {

void note_sample(const abi::Sample& sample, uint64_t& last_time_ns, FileFacts& facts) {
  ++facts.samples;
  ++facts.samples_of_pid[sample.id.pid];
  facts.sample_tids.insert(sample.id.tid);
  facts.aux_bytes += sample.aux.size();
  if (sample.id.time_ns < last_time_ns) ++facts.out_of_order;
  last_time_ns = sample.id.time_ns;
}

void note_record(perfdata::Reader& reader, const perfdata::DataRecord& record,
                 uint64_t& last_time_ns, FileFacts& facts) {
  abi::Sample sample;
  abi::CommRecord comm;
  abi::MmapRecord mapping;
  switch (record.record.type) {
    case PERF_RECORD_SAMPLE:
      if (reader.parse_sample(record, sample)) note_sample(sample, last_time_ns, facts);
      break;
    case PERF_RECORD_COMM:
      if (reader.parse(record, comm)) facts.names.emplace(comm.name);
      break;
    case PERF_RECORD_MMAP2:
      if (reader.parse(record, mapping)) facts.code.emplace(mapping.path);
      break;
    case PERF_RECORD_FORK:
      ++facts.forks;
      break;
    case PERF_RECORD_EXIT:
      ++facts.exits;
      break;
    default:
      break;
  }
}

}  // namespace

FileFacts read_facts(const std::string& path) {
  FileFacts facts;
  auto reader = perfdata::Reader::open(path);
  if (!reader) {
    facts.error = reader.error().message();
    return facts;
  }
  facts.readable = true;
  uint64_t last_time_ns = 0;
  reader->for_each([&](const perfdata::DataRecord& record) {
    note_record(*reader, record, last_time_ns, facts);
    return true;
  });
  for (const auto& build_id : reader->features().build_ids) {
    facts.build_id_paths.push_back(build_id.path);
  }
  facts.command_line = reader->features().command_line;
  facts.messages = reader->statistics().messages();
  return facts;
}

}  // namespace auxtrail::cli::testing
