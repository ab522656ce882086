// What the writer writes, the reader reads; and whatever happens to the recorder, the file stays
// readable.
#include "perfdata/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstring>

#include "abi/side_band.h"
#include "perfdata/reader.h"
#include "perfdata/testing/command.h"
#include "perfdata/testing/synthetic.h"

namespace auxtrail::perfdata {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::byte> sample_bytes(uint64_t ip, uint64_t time_ns, size_t aux_bytes = 0) {
  ByteWriter out;
  append_aux_sample(out, ip, time_ns, std::vector<std::byte>(aux_bytes, std::byte{0x5a}));
  return out.buffer();
}

TEST(WriterTest, WhatIsWrittenIsReadBack) {
  const auto file = intel_pt_file();
  auto reader = Reader::from_bytes(file, "memory");
  ASSERT_TRUE(reader) << reader.error().message();
  ASSERT_EQ(reader->events().size(), 2U);
  const auto written = intel_pt_events();
  for (size_t at = 0; at < 2; ++at) {
    EXPECT_EQ(std::memcmp(&reader->events()[at].attr, &written[at].attr, sizeof(perf_event_attr)),
              0);
    EXPECT_EQ(reader->events()[at].ids, written[at].ids);
    EXPECT_EQ(reader->events()[at].name, written[at].name);
  }
  std::vector<uint64_t> ips;
  std::vector<std::string> paths;
  reader->for_each_ordered([&](const DataRecord& record) {
    abi::Sample sample;
    abi::MmapRecord mmap;
    if (record.record.type == PERF_RECORD_SAMPLE) {
      EXPECT_EQ(record.event, &reader->events()[1]);
      EXPECT_TRUE(reader->parse_sample(record, sample));
      ips.push_back(sample.ip);
      EXPECT_EQ(sample.id.pid, kPid);
      EXPECT_EQ(sample.id.id, kSamplerId);
      EXPECT_TRUE(sample.has_aux);
    } else if (record.record.type == PERF_RECORD_MMAP2) {
      EXPECT_TRUE(reader->parse(record, mmap));
      EXPECT_EQ(mmap.address, 0x401000U);
      EXPECT_TRUE(mmap.executable());
      paths.emplace_back(mmap.path);
    }
    return true;
  });
  EXPECT_THAT(ips, ElementsAre(0x401020, 0x401010, 0x401030));
  EXPECT_THAT(paths, ElementsAre("/usr/bin/tiny"));
  EXPECT_THAT(reader->statistics().messages(), IsEmpty());
  ASSERT_TRUE(reader->auxtrace_info());
  ASSERT_TRUE(reader->auxtrace_info()->intel_pt);
  EXPECT_EQ(reader->auxtrace_info()->intel_pt->noretcomp_bit, 0x800U);
}

TEST(WriterTest, AuxtracePayloadAndIndex) {
  const auto file = intel_pt_file();
  auto reader = Reader::from_bytes(file, "memory");
  ASSERT_TRUE(reader);
  uint64_t offset = 0;
  std::string payload;
  reader->for_each_raw([&](const DataRecord& record) {
    if (record.record.type == abi::kRecordAuxtrace) {
      offset = record.file_offset;
      payload.assign(reinterpret_cast<const char*>(record.payload.data()), record.payload.size());
    }
    return true;
  });
  EXPECT_EQ(payload, std::string("twelve bytes\0\0\0\0", 16));
  ASSERT_EQ(reader->features().auxtrace_index.size(), 1U);
  EXPECT_EQ(reader->features().auxtrace_index[0].file_offset, offset);
  EXPECT_EQ(reader->features().auxtrace_index[0].size_bytes, 48U);
}

TEST(WriterTest, EveryFeatureIsReadBack) {
  const auto file = intel_pt_file();
  auto reader = Reader::from_bytes(file, "memory");
  ASSERT_TRUE(reader);
  const Features& read = reader->features();
  const Features wrote = all_features();
  EXPECT_EQ(read.hostname, wrote.hostname);
  EXPECT_EQ(read.os_release, wrote.os_release);
  EXPECT_EQ(read.version, wrote.version);
  EXPECT_EQ(read.arch, wrote.arch);
  EXPECT_EQ(read.cpu_description, wrote.cpu_description);
  EXPECT_EQ(read.cpuid, wrote.cpuid);
  EXPECT_EQ(read.cpus, wrote.cpus);
  EXPECT_EQ(read.total_memory_kib, wrote.total_memory_kib);
  EXPECT_EQ(read.command_line, wrote.command_line);
  ASSERT_EQ(read.pmus.size(), 2U);
  EXPECT_EQ(read.pmus[1].name, "intel_pt");
  ASSERT_EQ(read.groups.size(), 1U);
  EXPECT_EQ(read.groups[0].members, 2U);
  ASSERT_EQ(read.build_ids.size(), 2U);
  EXPECT_EQ(read.build_ids[0].id.size(), 20U);
  EXPECT_EQ(read.build_ids[1].id.size(), 8U);
  EXPECT_EQ(read.build_ids[1].path, "[vdso]");
  EXPECT_EQ(read.sample_time_ns, wrote.sample_time_ns);
  EXPECT_EQ(read.clock_resolution_ns, wrote.clock_resolution_ns);
  ASSERT_TRUE(read.clock_data);
  EXPECT_EQ(read.clock_data->wall_clock_ns, wrote.clock_data->wall_clock_ns);
  EXPECT_TRUE(read.has(Feature::kAuxtrace));
}

TEST(WriterTest, SampleTimesAreFoundWithoutHelp) {
  const auto file = make_file(intel_pt_events(), {}, [](Writer& writer) {
    ASSERT_TRUE(writer.append(sample_bytes(1, 700)));
    ASSERT_TRUE(writer.append(sample_bytes(1, 300)));
    EXPECT_EQ(writer.sample_count(), 2U);
  });
  auto reader = Reader::from_bytes(file, "memory");
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->features().sample_time_ns, (std::pair<uint64_t, uint64_t>{300, 700}));
}

TEST(WriterTest, RecordsInTwoPiecesAndBadOnes) {
  const auto bytes = sample_bytes(0x1234, 10, 64);
  const std::span<const std::byte> all = bytes;
  const auto file = make_file(intel_pt_events(), {}, [&](Writer& writer) {
    for (size_t cut = 0; cut <= all.size(); ++cut) {
      EXPECT_TRUE(writer.append(all.first(cut), all.subspan(cut)));
    }
    const uint64_t before = writer.data_bytes();
    EXPECT_FALSE(writer.append(all.first(all.size() - 1)));  // not whole
    auto tiny = bytes;
    tiny[6] = std::byte{7};  // header.size below a header's
    tiny[7] = std::byte{0};
    EXPECT_FALSE(writer.append(tiny));
    auto auxtrace = bytes;
    auxtrace[0] = std::byte{71};
    EXPECT_FALSE(writer.append(auxtrace));
    EXPECT_EQ(writer.data_bytes(), before);
    EXPECT_FALSE(writer.failure());
  });
  auto reader = Reader::from_bytes(file, "memory");
  ASSERT_TRUE(reader);
  reader->for_each([](const DataRecord&) { return true; });
  EXPECT_EQ(reader->statistics().samples, all.size() + 1);
  EXPECT_THAT(reader->statistics().messages(), IsEmpty());
}

TEST(WriterTest, UnfitEventsAreRefused) {
  const ScratchDirectory scratch;
  const auto attempt = [&](const std::vector<Event>& events) {
    auto writer = Writer::create(scratch.file("x.data"), events);
    return writer ? std::string() : writer.error().message();
  };
  EXPECT_THAT(attempt({}), HasSubstr("there are none"));
  auto events = intel_pt_events();
  events[1].ids.clear();
  EXPECT_THAT(attempt(events), HasSubstr("no id"));
  events[1].ids = {0};
  EXPECT_THAT(attempt(events), HasSubstr("id is 0"));
  events[1].ids = {kLeaderId};
  EXPECT_THAT(attempt(events), HasSubstr("twice"));
  events = intel_pt_events();
  events[1].attr.sample_type &= ~uint64_t{PERF_SAMPLE_IDENTIFIER};
  EXPECT_THAT(attempt(events), HasSubstr("place of the id"));
  events = intel_pt_events();
  events[0].attr.sample_id_all = 0;
  EXPECT_THAT(attempt(events), HasSubstr("sample_id_all"));
  EXPECT_EQ(::access(scratch.file("x.data").c_str(), F_OK), -1) << "refused before it is created";
}

TEST(WriterTest, UnwritablePathIsAnError) {
  auto writer = Writer::create("/nonexistent/directory/perf.data", intel_pt_events());
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().sys_errno, ENOENT);
}

TEST(WriterTest, TheFileIsPrivate) {
  const ScratchDirectory scratch;
  auto writer = Writer::create(scratch.file("x.data"), intel_pt_events());
  ASSERT_TRUE(writer);
  struct stat info {};
  ASSERT_EQ(::stat(scratch.file("x.data").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

// Opens the file and counts its samples; every one must be whole and in order, with no complaint.
uint64_t count_samples(const std::string& path) {
  auto reader = Reader::open(path);
  if (!reader) {
    ADD_FAILURE() << reader.error().message();
    return 0;
  }
  uint64_t expected_ip = 1;
  reader->for_each([&](const DataRecord& record) {
    abi::Sample sample;
    if (record.record.type == PERF_RECORD_SAMPLE) {
      EXPECT_TRUE(reader->parse_sample(record, sample));
      EXPECT_EQ(sample.ip, expected_ip++);
    }
    return true;
  });
  EXPECT_THAT(reader->statistics().messages(), IsEmpty());
  EXPECT_TRUE(reader->features().has(Feature::kAuxtrace));
  return reader->statistics().samples;
}

TEST(WriterTest, EveryFlushLeavesAWholeFile) {
  const ScratchDirectory scratch;
  const std::string path = scratch.file("x.data");
  auto writer = Writer::create(path, intel_pt_events());
  ASSERT_TRUE(writer);
  EXPECT_EQ(count_samples(path), 0U);
  for (uint64_t at = 1; at <= 20; ++at) {
    ASSERT_TRUE(writer->append(sample_bytes(at, at, 100)));
    EXPECT_EQ(count_samples(path), at - 1);
    ASSERT_TRUE(writer->flush());
    EXPECT_EQ(count_samples(path), at);
  }
}

// Until the file has so many bytes; whatever the machine's load, some of a recording is there then.
void wait_for_size(const std::string& path, off_t size_bytes) {
  struct stat info {};
  for (int tries = 0; tries < 100000; ++tries) {
    if (::stat(path.c_str(), &info) == 0 && info.st_size >= size_bytes) return;
    ::usleep(100);
  }
}

// A recorder that dies at any moment: the file holds all that was flushed, whole and readable.
TEST(WriterTest, KilledRecorderLeavesAReadableFile) {
  const ScratchDirectory scratch;
  const std::string path = scratch.file("x.data");
  uint64_t most = 0;
  for (int round = 0; round < 30; ++round) {
    ::unlink(path.c_str());
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      WriterOptions options;
      options.buffer_bytes = 16 << 10;
      auto writer = Writer::create(path, intel_pt_events(), options);
      if (!writer) ::_exit(1);
      for (uint64_t at = 1;; ++at) {
        if (!writer->append(sample_bytes(at, at, 4096))) ::_exit(1);
      }
    }
    wait_for_size(path, 20000 + 31000 * round);
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    struct stat info {};
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    auto reader = Reader::open(path);
    ASSERT_TRUE(reader) << reader.error().message();
    reader->for_each([](const DataRecord&) { return true; });
    EXPECT_THAT(reader->statistics().messages(), IsEmpty());
    EXPECT_EQ(reader->statistics().bad_features, 0U);
    most = std::max(most, reader->statistics().samples);
    // All but what sat in the buffer or was being written is there.
    const uint64_t missing =
        static_cast<uint64_t>(info.st_size) - (reader->data_offset() + reader->data_bytes());
    EXPECT_LE(missing, uint64_t{(16 << 10) + 2 * 4200});
  }
  EXPECT_GT(most, 100U);
}

// A disk that fills up, played by a limit on the file's size: an error, and a file with all
// complete flushes.
TEST(WriterTest, FullDiskLeavesAConsistentFile) {
  const ScratchDirectory scratch;
  const std::string path = scratch.file("x.data");
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  for (const rlim_t limit : {rlim_t{70000}, rlim_t{100001}, rlim_t{131072}, rlim_t{200007}}) {
    rlimit small = before;
    small.rlim_cur = limit;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    WriterOptions options;
    options.buffer_bytes = 16 << 10;
    auto writer = Writer::create(path, intel_pt_events(), options);
    Status status;
    uint64_t appended = 0;
    for (uint64_t at = 1; at < 1000 && status; ++at) {
      status = writer->append(sample_bytes(at, at, 1000));
      if (status) appended = at;
    }
    const Status refused = writer->append(sample_bytes(1, 1));
    const Status closed = writer->write_features_and_close(all_features());
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().sys_errno, EFBIG);
    EXPECT_FALSE(refused);
    ASSERT_FALSE(closed) << "the loss is told again at the end";
    EXPECT_EQ(closed.error().message(), status.error().message());
    const uint64_t kept = count_samples(path);
    EXPECT_GE(kept, 45U);
    EXPECT_GE(kept + 17, appended);  // one buffer is lost
  }
}

}  // namespace
}  // namespace auxtrail::perfdata
