#include "perfdata/testing/perf_dump.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cctype>

#include "abi/side_band.h"

namespace auxtrail::perfdata::testing {
namespace {

// C's %#lx: no 0x before a zero.
std::string hex(uint64_t value) { return value == 0 ? "0" : fmt::format("{:#x}", value); }

// Cuts perf's line after what our_dump() prints for its kind.
std::string normalize(std::string line) {
  const auto cut_after = [&line](std::string_view mark, size_t more) {
    const size_t at = line.find(mark);
    if (at != std::string::npos) line.resize(std::min(line.size(), at + mark.size() + more));
  };
  if (line.rfind(".....", 0) == 0) {
    cut_after(" cycles ", 4);
    return line;
  }
  const size_t name = line.find("PERF_RECORD_");
  size_t end = name + 12;
  while (end < line.size() &&
         (std::isupper(static_cast<unsigned char>(line[end])) != 0 ||
          std::isdigit(static_cast<unsigned char>(line[end])) != 0 || line[end] == '_')) {
    ++end;
  }
  const std::string type = line.substr(name + 12, end - name - 12);
  const bool in_full = type == "SAMPLE" || type == "MMAP2" || type == "MMAP" || type == "COMM" ||
                       type == "EXIT" || type == "FORK";
  if (!in_full) line.resize(end);
  return line;
}

std::string render_mmap(const abi::MmapRecord& mmap, bool second_form) {
  const auto letter = [&](uint32_t bit, char set) {
    return (mmap.protection & bit) != 0 ? set : '-';
  };
  std::string text = fmt::format(" {}/{}: [{}({}) @ {}", static_cast<int32_t>(mmap.pid),
                                 static_cast<int32_t>(mmap.tid), hex(mmap.address),
                                 hex(mmap.size_bytes), hex(mmap.file_offset));
  if (!second_form) {
    return text + fmt::format("]: {} {}", (mmap.misc & PERF_RECORD_MISC_MMAP_DATA) != 0 ? 'r' : 'x',
                              mmap.path);
  }
  if (!mmap.build_id.empty()) {
    text += " <";
    for (const std::byte byte : mmap.build_id)
      text += fmt::format("{:02x}", static_cast<int>(byte));
    text += ">";
  } else {
    text += fmt::format(" {:02x}:{:02x} {} {}", mmap.device_major, mmap.device_minor, mmap.inode,
                        mmap.inode_generation);
  }
  return text + fmt::format("]: {}{}{}{} {}", letter(PROT_READ, 'r'), letter(PROT_WRITE, 'w'),
                            letter(PROT_EXEC, 'x'), (mmap.flags & MAP_SHARED) != 0 ? 's' : 'p',
                            mmap.path);
}

void render_arrays(const Event& event, const abi::Sample& sample, std::vector<std::string>& out) {
  size_t at = 0;
  for (const uint64_t ip : sample.callchain)
    out.push_back(fmt::format("..... {:2}: {:016x}", at++, ip));
  at = 0;
  for (const abi::BranchEntry branch : sample.branches) {
    out.push_back(fmt::format("..... {:2}: {:016x} -> {:016x} {} cycles {}{}{}{}", at++,
                              branch.from, branch.to, branch.cycles(),
                              branch.mispredicted() ? 'M' : ' ', branch.predicted() ? 'P' : ' ',
                              branch.abort() ? 'A' : ' ', branch.in_transaction() ? 'T' : ' '));
  }
  for (at = 0; at < sample.read.size(); ++at) {
    const abi::ReadValue value = sample.read[at];
    std::string line = fmt::format("..... id {:016x}, value {:016x}", value.id, value.value);
    if ((event.attr.read_format & PERF_FORMAT_LOST) != 0)
      line += fmt::format(", lost {}", value.lost);
    out.push_back(line);
  }
}

std::string render_sample(const Event& event, const abi::Sample& sample) {
  const uint64_t period =
      event.format.has(PERF_SAMPLE_PERIOD) ? sample.period : uint64_t{event.attr.sample_period};
  return fmt::format("(IP, {}): {}/{}: {} period: {} addr: {}", hex(sample.misc),
                     static_cast<int32_t>(sample.id.pid), static_cast<int32_t>(sample.id.tid),
                     hex(sample.ip), period, hex(sample.address));
}

// The fields of a side-band record in perf's words, for the types where perf prints them on the
// line.
std::string render_side_band(Reader& reader, const DataRecord& record) {
  abi::MmapRecord mmap;
  abi::CommRecord comm;
  abi::TaskRecord task;
  switch (record.record.type) {
    case PERF_RECORD_MMAP:
    case PERF_RECORD_MMAP2:
      if (!reader.parse(record, mmap)) return " unparsable";
      return render_mmap(mmap, record.record.type == PERF_RECORD_MMAP2);
    case PERF_RECORD_COMM:
      if (!reader.parse(record, comm)) return " unparsable";
      return fmt::format("{}: {}:{}/{}", comm.exec ? " exec" : "", comm.name, comm.pid, comm.tid);
    case PERF_RECORD_FORK:
    case PERF_RECORD_EXIT:
      if (!reader.parse(record, task)) return " unparsable";
      return fmt::format("({}:{}):({}:{})", task.pid, task.tid, task.parent_pid, task.parent_tid);
    default:
      return "";
  }
}

}  // namespace

Dump perf_dump(const ScratchDirectory& scratch, const std::string& path) {
  const auto outcome = scratch.run(fmt::format(
      "perf script -f -i '{}' -D 2>/dev/null | grep -aE "
      "'^(-?[0-9]+ )?-?[0-9]+ (0x)?[0-9a-f]+ \\[0x[0-9a-f]+\\]: PERF_RECORD_|^\\.\\.\\.\\.\\. '",
      path));
  Dump dump;
  for (const std::string& line : lines_of(outcome.out)) {
    const size_t name = line.find("PERF_RECORD_");
    if (name == std::string::npos) {
      dump.kernel.push_back(normalize(line));
      continue;
    }
    if (line.find("PERF_RECORD_COMPRESSED") != std::string::npos) continue;
    const std::string normal = normalize(line);
    const std::string rest = normal.substr(name + 12);
    uint32_t type = rest == "UNKNOWN" ? 0 : uint32_t{abi::kUserRecordTypeStart};
    for (uint32_t kernel_type = 1; kernel_type < PERF_RECORD_MAX; ++kernel_type) {
      const auto candidate = abi::record_type_name(kernel_type);
      const bool same = rest.rfind(candidate, 0) == 0 &&
                        (rest.size() == candidate.size() ||
                         (std::isupper(static_cast<unsigned char>(rest[candidate.size()])) == 0 &&
                          std::isdigit(static_cast<unsigned char>(rest[candidate.size()])) == 0 &&
                          rest[candidate.size()] != '_'));
      if (same) type = kernel_type;
    }
    if (type == PERF_RECORD_SAMPLE) ++dump.samples;
    (type < abi::kUserRecordTypeStart ? dump.kernel : dump.tools).push_back(normal);
  }
  return dump;
}

Dump our_dump(Reader& reader) {
  uint64_t all_fields = 0;
  for (const Event& event : reader.events()) all_fields |= event.attr.sample_type;
  Dump dump;
  reader.for_each_ordered([&](const DataRecord& record) {
    const std::string place =
        fmt::format("{} [{:#x}]: PERF_RECORD_{}", hex(record.file_offset),
                    record.record.bytes.size(), abi::record_type_name(record.record.type));
    if (record.record.type >= abi::kUserRecordTypeStart) {
      const bool cpu_and_time = (all_fields & PERF_SAMPLE_CPU) != 0;
      dump.tools.push_back((cpu_and_time ? "0 0 " : "0 ") + place);
      return true;
    }
    abi::Sample sample;
    abi::SampleId id;
    std::string rest;
    if (record.record.type == PERF_RECORD_SAMPLE) {
      ++dump.samples;
      if (!reader.parse_sample(record, sample)) rest = " unparsable";
      id = sample.id;
      rest += render_sample(*record.event, sample);
    } else {
      rest = render_side_band(reader, record);
      (void)abi::parse_trailer(record.record, record.event->format, id);
    }
    // A field that this record's event lacks, while another event has it, is -1 to perf.
    const uint32_t cpu = id.has(PERF_SAMPLE_CPU) ? id.cpu : ~uint32_t{0};
    const uint64_t time_ns = id.has(PERF_SAMPLE_TIME) ? id.time_ns : ~uint64_t{0};
    std::string front;
    if ((all_fields & PERF_SAMPLE_CPU) != 0) front += fmt::format("{} ", cpu);
    if ((all_fields & PERF_SAMPLE_TIME) != 0) front += fmt::format("{} ", time_ns);
    dump.kernel.push_back(front + place + rest);
    if (record.record.type == PERF_RECORD_SAMPLE) render_arrays(*record.event, sample, dump.kernel);
    return true;
  });
  return dump;
}

std::string difference(const std::vector<std::string>& theirs,
                       const std::vector<std::string>& ours) {
  for (size_t at = 0; at < std::max(theirs.size(), ours.size()); ++at) {
    const std::string left = at < theirs.size() ? theirs[at] : "(nothing)";
    const std::string right = at < ours.size() ? ours[at] : "(nothing)";
    if (left != right) return fmt::format("line {}:\n perf: {}\n ours: {}", at, left, right);
  }
  return "";
}

}  // namespace auxtrail::perfdata::testing
