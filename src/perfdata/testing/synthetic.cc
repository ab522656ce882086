#include "perfdata/testing/synthetic.h"

#include <sys/mman.h>
#include <unistd.h>
#include <zstd.h>

#include <cstdlib>
#include <cstring>

#include "abi/side_band_build.h"
#include "base/unique_fd.h"

namespace auxtrail::perfdata::testing {
namespace {

constexpr uint64_t kSamplerType = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
                                  PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD | PERF_SAMPLE_IDENTIFIER |
                                  PERF_SAMPLE_AUX;
constexpr uint64_t kLeaderType =
    PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER;

// Test material: an impossible failure ends the test program.
template <class T>
T must(Result<T> result) {
  if (!result) std::abort();
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

void patch_size(ByteWriter& out, size_t start) {
  const auto size = static_cast<uint16_t>(out.size() - start);
  std::memcpy(out.buffer().data() + start + 6, &size, sizeof(size));
}

// A record of raw words with the trailer of the leader's format.
void append_record(ByteWriter& out, uint32_t type, uint16_t misc, std::vector<uint64_t> words,
                   std::string_view text, const abi::SampleFormat& format,
                   const abi::SampleId& id) {
  const size_t start = out.size();
  out.write(perf_event_header{type, misc, 0});
  for (const uint64_t word : words) out.u64(word);
  if (!text.empty()) out.text(text);
  if (type < abi::kUserRecordTypeStart) abi::append_trailer(out, format, id);
  patch_size(out, start);
}

abi::SampleId trailer_id(uint64_t time_ns) {
  abi::SampleId id;
  id.pid = kPid;
  id.tid = kPid;
  id.time_ns = time_ns;
  id.id = kLeaderId;
  return id;
}

}  // namespace

std::vector<Event> intel_pt_events() {
  Event leader;
  leader.attr.type = 8;
  leader.attr.size = sizeof(perf_event_attr);
  leader.attr.config = 0x2c01;  // pt, TSC, noretcomp, branch
  leader.attr.sample_period = 1;
  leader.attr.sample_type = kLeaderType;
  leader.attr.exclude_kernel = 1;
  leader.attr.exclude_hv = 1;
  leader.attr.sample_id_all = 1;
  leader.attr.mmap = leader.attr.mmap2 = leader.attr.comm = leader.attr.comm_exec = 1;
  leader.attr.task = 1;
  leader.attr.use_clockid = 1;
  leader.attr.clockid = CLOCK_MONOTONIC;
  leader.ids = {kLeaderId};
  leader.name = "intel_pt//u";

  Event sampler;
  sampler.attr.type = PERF_TYPE_SOFTWARE;
  sampler.attr.size = sizeof(perf_event_attr);
  sampler.attr.config = PERF_COUNT_SW_CPU_CLOCK;
  sampler.attr.sample_period = 1000000;
  sampler.attr.sample_type = kSamplerType;
  sampler.attr.exclude_kernel = 1;
  sampler.attr.exclude_hv = 1;
  sampler.attr.sample_id_all = 1;
  sampler.attr.use_clockid = 1;
  sampler.attr.clockid = CLOCK_MONOTONIC;
  sampler.attr.aux_sample_size = 4096;
  sampler.ids = {kSamplerId, kSamplerId + 1};
  sampler.name = "cpu-clock:u";
  return {leader, sampler};
}

Features all_features() {
  Features features;
  features.hostname = "testhost";
  features.os_release = "6.1.0-test";
  features.version = "auxtrail-test";
  features.arch = "x86_64";
  features.cpu_description = "A processor";
  features.cpuid = "GenuineIntel,6,92,2";
  features.cpus = {4, 2};
  features.total_memory_kib = 1234567;
  features.command_line = {"auxtrail", "record", "--", "true", ""};
  features.pmus = {{1, "software"}, {8, "intel_pt"}};
  features.groups = {{"intel_pt", 0, 2}};
  features.build_ids = {{std::vector<std::byte>(20, std::byte{0xab}), "/usr/bin/true", -1, 2},
                        {std::vector<std::byte>(8, std::byte{0xcd}), "[vdso]", -1, 2}};
  features.sample_time_ns = {1000000000, 2000000000};
  features.clock_resolution_ns = 1;
  features.clock_data = ClockData{CLOCK_MONOTONIC, 1700000000000000000, 1000000000};
  return features;
}

void append_aux_sample(ByteWriter& out, uint64_t ip, uint64_t time_ns,
                       std::span<const std::byte> aux, uint32_t tid) {
  const size_t start = out.size();
  out.write(perf_event_header{PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER, 0});
  out.u64(kSamplerId);
  out.u64(ip);
  out.u32(kPid);
  out.u32(tid);
  out.u64(time_ns);
  out.u32(1);
  out.u32(0);
  out.u64(1000000);
  const size_t padded = (aux.size() + 7) / 8 * 8;
  out.u64(padded);
  out.append(aux);
  for (size_t at = aux.size(); at < padded; ++at) out.u8(0);
  patch_size(out, start);
}

std::vector<std::byte> make_file(std::vector<Event> events, const Features& features,
                                 const std::function<void(Writer&)>& fill, WriterOptions options) {
  UniqueFd fd(::memfd_create("perf.data", MFD_CLOEXEC));
  const UniqueFd copy(::dup(fd.get()));
  auto writer = must(Writer::create(std::move(fd), "memory", std::move(events), options));
  fill(writer);
  must(writer.write_features_and_close(features));
  std::vector<std::byte> bytes(static_cast<size_t>(::lseek(copy.get(), 0, SEEK_END)));
  if (::pread(copy.get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    std::abort();
  }
  return bytes;
}

std::vector<std::byte> intel_pt_file() {
  return make_file(intel_pt_events(), all_features(), [](Writer& writer) {
    const auto format = abi::SampleFormat::from_attr(writer.events().front().attr);
    ByteWriter out;
    const IdIndexEntry index[] = {{kLeaderId, 0, -1, kPid}, {kSamplerId, 0, -1, kPid}};
    append_id_index(out, index);
    append_intel_pt_info(out, {});
    append_time_conv(out, {});
    abi::CommRecord comm;
    comm.id = trailer_id(0);
    comm.pid = comm.tid = kPid;
    comm.exec = true;
    comm.name = "tiny";
    abi::append_comm(out, format, comm);
    abi::MmapRecord mmap;
    mmap.id = trailer_id(0);
    mmap.misc = PERF_RECORD_MISC_USER;
    mmap.pid = mmap.tid = kPid;
    mmap.address = 0x401000;
    mmap.size_bytes = 0x1000;
    mmap.file_offset = 0x1000;
    mmap.protection = PROT_READ | PROT_EXEC;
    mmap.path = "/usr/bin/tiny";
    abi::append_mmap2(out, format, mmap);
    const std::vector<std::byte> aux(48, std::byte{0});
    append_aux_sample(out, 0x401010, 3000, aux);
    append_aux_sample(out, 0x401020, 2000, aux);
    must(writer.append(out.bytes()));
    must(writer.finished_round());
    ByteWriter later;
    append_aux_sample(later, 0x401030, 4000, {});
    must(writer.append(later.bytes()));
    must(writer.append_auxtrace({0, 0, 1, 0, kPid, 0}, bytes_of("twelve bytes")));
    must(writer.finished_round());
  });
}

std::vector<std::byte> full_trace_file() {
  return make_file(intel_pt_events(), {}, [](Writer& writer) {
    const auto format = abi::SampleFormat::from_attr(writer.events().front().attr);
    IntelPtInfo info;
    info.cap_user_time_zero = 1;
    info.filter = "filter 0x1000/0x80@/usr/bin/tiny";
    ByteWriter out;
    append_intel_pt_info(out, info);
    for (const uint32_t tid : {kPid, kPid + 1}) {
      abi::ItraceStartRecord start;
      start.id = trailer_id(1000);
      start.pid = kPid;
      start.tid = tid;
      abi::append_itrace_start(out, format, start);
    }
    abi::AuxRecord aux;
    aux.id = trailer_id(2000);
    aux.aux_size_bytes = 24;
    abi::append_aux(out, format, aux);
    aux.aux_offset = 24;
    aux.flags = PERF_AUX_FLAG_TRUNCATED | PERF_AUX_FLAG_PARTIAL;
    abi::append_aux(out, format, aux);
    must(writer.append(out.bytes()));
    must(writer.append_auxtrace({0, 0, 1000, 0, kPid, ~uint32_t{0}}, bytes_of("in two "),
                                bytes_of("pieces of a ring")));
    must(writer.append_auxtrace({0, 0, 1000, 1, kPid + 1, ~uint32_t{0}}, bytes_of("eight of")));
    must(writer.finished_round());
    must(writer.append_auxtrace({0, 24, 2000, 0, kPid, ~uint32_t{0}}, bytes_of("more")));
    must(writer.finished_round());
  });
}

Event every_field_event() {
  Event event;
  event.attr.type = PERF_TYPE_SOFTWARE;
  event.attr.size = sizeof(perf_event_attr);
  event.attr.config = PERF_COUNT_SW_CPU_CLOCK;
  event.attr.sample_period = 7;
  event.attr.sample_type = abi::kKnownSampleTypeBits & ~uint64_t{PERF_SAMPLE_WEIGHT};
  event.attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING |
                           PERF_FORMAT_ID | PERF_FORMAT_GROUP | PERF_FORMAT_LOST;
  event.attr.branch_sample_type = PERF_SAMPLE_BRANCH_ANY | PERF_SAMPLE_BRANCH_HW_INDEX;
  event.attr.sample_regs_user = 0x7;
  event.attr.sample_regs_intr = 0x3;
  event.attr.sample_stack_user = 16;
  event.attr.aux_sample_size = 64;
  event.attr.sample_id_all = 1;
  event.ids = {kSamplerId};
  event.name = "cpu-clock";
  return event;
}

std::vector<std::byte> every_field_file() {
  ByteWriter out;
  out.write(perf_event_header{PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER, 0});
  out.u64(kSamplerId);  // IDENTIFIER
  out.u64(0x401234);    // IP
  out.u32(kPid);        // TID
  out.u32(kPid + 1);
  out.u64(5000000123);  // TIME
  out.u64(0xadd0e55);   // ADDR
  out.u64(kSamplerId);  // ID
  out.u64(0x57e4);      // STREAM_ID
  out.u32(3);           // CPU
  out.u32(0);
  out.u64(777);         // PERIOD
  out.u64(1);           // READ: one member
  out.u64(1000);        // enabled
  out.u64(900);         // running
  out.u64(4444);        // value
  out.u64(kSamplerId);  // id
  out.u64(5);           // lost
  out.u64(3);           // CALLCHAIN
  out.u64(PERF_CONTEXT_USER);
  out.u64(0x401234);
  out.u64(0x401567);
  out.u32(12);  // RAW
  out.append(bytes_of("raw raw raw!"));
  out.u64(2);             // BRANCH_STACK
  out.u64(~uint64_t{0});  // hw_idx
  out.u64(0x401100);
  out.u64(0x401200);
  out.u64(0x2 | (17 << 4));  // predicted, 17 cycles
  out.u64(0x401300);
  out.u64(0x401100);
  out.u64(0x1);                      // mispredicted
  out.u64(PERF_SAMPLE_REGS_ABI_64);  // REGS_USER
  for (const uint64_t value : {0xa1, 0xb2, 0xc3}) out.u64(value);
  out.u64(16);  // STACK_USER
  out.append(bytes_of("sixteen bytes..."));
  out.u64(8);                        // dyn_size
  out.u64(0x0003'0002'00000001);     // WEIGHT_STRUCT
  out.u64(0x68100142);               // DATA_SRC
  out.u64(0x2);                      // TRANSACTION
  out.u64(PERF_SAMPLE_REGS_ABI_64);  // REGS_INTR
  out.u64(0xd4);
  out.u64(0xe5);
  out.u64(0xfee1f00d);  // PHYS_ADDR
  out.u64(0xc9);        // CGROUP
  out.u64(0x1000);      // DATA_PAGE_SIZE
  out.u64(0x200000);    // CODE_PAGE_SIZE
  out.u64(8);           // AUX
  out.append(bytes_of("aux aux!"));
  patch_size(out, 0);
  return make_file({every_field_event()}, {},
                   [&](Writer& writer) { must(writer.append(out.bytes())); });
}

std::vector<std::byte> side_band_file() {
  return make_file(intel_pt_events(), {}, [](Writer& writer) {
    const auto format = abi::SampleFormat::from_attr(writer.events().front().attr);
    const uint64_t pid_tid = (uint64_t{kPid} << 32) | kPid;
    uint64_t time_ns = 1000;
    ByteWriter out;
    const auto put = [&](uint32_t type, uint16_t misc, std::vector<uint64_t> words,
                         std::string_view text = {}) {
      append_record(out, type, misc, std::move(words), text, format, trailer_id(time_ns));
      time_ns += 10;
    };
    put(PERF_RECORD_MMAP, PERF_RECORD_MISC_USER, {pid_tid, 0x401000, 0x1000, 0}, "/bin/a");
    put(PERF_RECORD_LOST, 0, {kSamplerId, 5});
    put(PERF_RECORD_COMM, PERF_RECORD_MISC_COMM_EXEC, {pid_tid}, "name");
    put(PERF_RECORD_FORK, 0, {pid_tid, pid_tid, 1234});
    put(PERF_RECORD_EXIT, 0, {pid_tid, pid_tid, 1235});
    put(PERF_RECORD_THROTTLE, 0, {1236, kSamplerId, 1});
    put(PERF_RECORD_UNTHROTTLE, 0, {1237, kSamplerId, 1});
    put(PERF_RECORD_READ, 0, {pid_tid, 99});
    put(PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER,
        {pid_tid, 0x402000, 0x2000, 0x1000, 0x0000000100000008, 77, 1, 0x0000000200000005},
        "/bin/b");
    put(PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER | PERF_RECORD_MISC_MMAP_BUILD_ID,
        {pid_tid, 0x404000, 0x1000, 0, 0x0403020100000014, 0x0c0b0a0908070605, 0x14131211100f0e0d,
         0x0000000200000005},
        "/bin/c");
    put(PERF_RECORD_AUX, 0, {0, 4096, PERF_AUX_FLAG_TRUNCATED | PERF_AUX_FLAG_PARTIAL});
    put(PERF_RECORD_ITRACE_START, 0, {pid_tid});
    put(PERF_RECORD_LOST_SAMPLES, 0, {6});
    put(PERF_RECORD_SWITCH, PERF_RECORD_MISC_SWITCH_OUT, {});
    put(PERF_RECORD_SWITCH_CPU_WIDE, 0, {pid_tid});
    put(PERF_RECORD_NAMESPACES, 0, {pid_tid, 1, 4, 0xf0000001});
    put(PERF_RECORD_KSYMBOL, 0, {0xffffffffc0000000, 0x0000'0001'00000040}, "bpf_prog");
    put(PERF_RECORD_BPF_EVENT, 0, {0x0000002a'0000'0001, 0x1122334455667788});
    put(PERF_RECORD_CGROUP, 0, {0x77}, "/group");
    put(PERF_RECORD_TEXT_POKE, 0, {0xffffffff81000000, 0x0000'cccc'0002'0002});
    put(PERF_RECORD_AUX_OUTPUT_HW_ID, 0, {3});
    put(50, 0, {1, 2, 3});  // a type that nobody knows
    const ThreadMapEntry threads[] = {{kPid, "tiny"}};
    append_thread_map(out, threads);
    const uint16_t cpus[] = {0, 1};
    append_cpu_map(out, cpus);
    append_finished_init(out);
    must(writer.append(out.bytes()));
    must(writer.finished_round());
  });
}

std::vector<std::byte> compressed_file() {
  ByteWriter plain;
  for (uint64_t at = 0; at < 20; ++at) append_aux_sample(plain, 0x401000 + at, 1000 + at, {});
  std::vector<std::byte> packed(ZSTD_compressBound(plain.size()));
  packed.resize(ZSTD_compress(packed.data(), packed.size(), plain.bytes().data(), plain.size(), 1));
  return make_file(intel_pt_events(), {}, [&](Writer& writer) {
    // Two records, so that the stream and the records in it cross a border.
    const std::span<const std::byte> all = packed;
    for (const auto half : {all.first(all.size() / 2), all.subspan(all.size() / 2)}) {
      ByteWriter out;
      out.write(perf_event_header{abi::kRecordCompressed, 0, 0});
      out.append(half);
      patch_size(out, 0);
      must(writer.append(out.bytes()));
    }
  });
}

}  // namespace auxtrail::perfdata::testing
