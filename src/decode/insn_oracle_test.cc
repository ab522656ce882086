// Our branches against libipt's other decoder, the one that goes instruction by instruction, on
// real traces: every step that does not go to the next instruction must be a branch of ours, and no
// other.
//
// The perf_pt traces have compressed returns and time packets; where their code is missing (they
// start in ld.so) both decoders must fail alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <intel-pt.h>

#include <filesystem>
#include <unordered_map>

#include "decode/libipt_decoder.h"
#include "decode/test_support.h"

namespace auxtrail::decode {
namespace {

struct InstructionFlow {
  uint64_t instructions = 0;
  std::vector<std::pair<uint64_t, uint64_t>> jumps;  // steps that leave the straight line
  std::unordered_map<uint64_t, uint8_t> sizes;
};

class InstructionDecoder {
 public:
  InstructionDecoder(const image::CodeMap& code, std::vector<std::byte>& trace,
                     const TraceConfig& config) {
    pt_config libipt;
    pt_config_init(&libipt);
    libipt.cpu = {pcv_intel, config.family, config.model, config.stepping};
    EXPECT_GE(pt_cpu_errata(&libipt.errata, &libipt.cpu), 0);
    libipt.begin = reinterpret_cast<uint8_t*>(trace.data());
    libipt.end = libipt.begin + trace.size();
    if (config.filter_end != 0) {
      libipt.addr_filter.config.addr_cfg = 1;
      libipt.addr_filter.addr0_a = config.filter_start;
      libipt.addr_filter.addr0_b = config.filter_end;
    }
    decoder_.reset(pt_insn_alloc_decoder(&libipt));
    pt_image* image = pt_insn_get_image(decoder_.get());
    for (const auto& section : code.sections) {
      EXPECT_GE(pt_image_add_file(image, section.file.c_str(), section.offset, section.size_bytes,
                                  nullptr, section.address),
                0);
    }
  }

  InstructionFlow run() {
    for (int status = 0;;) {
      status = pt_insn_sync_forward(decoder_.get());
      previous_end_ = 0;
      if (status == -pte_eos) return std::move(flow_);
      while (status >= 0) {
        status = drain_events(status);
        if (status < 0 || (status & pts_eos) != 0) break;
        pt_insn insn;
        status = pt_insn_next(decoder_.get(), &insn, sizeof(insn));
        if (insn.iclass != ptic_error) step(insn);
        if (status == -pte_nomap) stop_at(insn.ip);
      }
    }
  }

 private:
  int drain_events(int status) {
    while (status >= 0 && (status & pts_event_pending) != 0) {
      pt_event event;
      status = pt_insn_event(decoder_.get(), &event, sizeof(event));
      if (status >= 0 && event.status_update == 0) on_event(event);
    }
    return status;
  }

  void on_event(const pt_event& event) {
    switch (event.type) {
      case ptev_async_disabled:
        stop_at(event.variant.async_disabled.at);
        break;
      case ptev_async_branch:
        stop_at(event.variant.async_branch.from);
        break;
      case ptev_enabled:
      case ptev_disabled:
      case ptev_overflow:
        previous_end_ = 0;
        break;
      default:
        break;
    }
  }

  // The flow came to `ip` and, as far as this function knows, ends there.
  void stop_at(uint64_t ip) {
    if (previous_end_ != 0 && previous_end_ != ip) flow_.jumps.emplace_back(previous_, ip);
    previous_end_ = 0;
  }

  void step(const pt_insn& insn) {
    ++flow_.instructions;
    flow_.sizes[insn.ip] = insn.size;
    stop_at(insn.ip);
    previous_ = insn.ip;
    previous_end_ = insn.ip + insn.size;
  }

  std::unique_ptr<pt_insn_decoder, decltype(&pt_insn_free_decoder)> decoder_{nullptr,
                                                                             &pt_insn_free_decoder};
  InstructionFlow flow_;
  uint64_t previous_ = 0;
  uint64_t previous_end_ = 0;
};

// Returns the number of branches compared.
size_t compare(const image::CodeMap& code, std::vector<std::byte> trace,
               const TraceConfig& config) {
  const auto expected = InstructionDecoder(code, trace, config).run();
  test::CountingConsumer consumer;
  const auto summary = make_libipt_decoder(config)->decode(code, trace, consumer);
  EXPECT_EQ(summary.instructions, expected.instructions);
  std::vector<std::pair<uint64_t, uint64_t>> jumps;
  for (const auto& branch : consumer.branches) {
    if (branch.is_marker() || branch.ends_trace || branch.kind == BranchKind::kAsync) continue;
    const auto size = expected.sizes.find(branch.from);
    EXPECT_NE(size, expected.sizes.end());
    if (size != expected.sizes.end() && branch.from + size->second != branch.to) {
      jumps.emplace_back(branch.from, branch.to);
    }
  }
  EXPECT_EQ(jumps.size(), expected.jumps.size());
  const auto differs =
      std::mismatch(jumps.begin(), jumps.end(), expected.jumps.begin(), expected.jumps.end());
  if (differs.first != jumps.end() && differs.second != expected.jumps.end()) {
    ADD_FAILURE() << fmt::format(
        "branch {}: {:#x} -> {:#x}, expected {:#x} -> {:#x}", differs.first - jumps.begin(),
        differs.first->first, differs.first->second, differs.second->first, differs.second->second);
  }
  return jumps.size();
}

TraceConfig cpu(uint8_t model, uint64_t filter_start = 0, uint64_t filter_end = 0) {
  TraceConfig config;
  config.intel_cpu = true;
  config.family = 6;
  config.model = model;
  config.filter_start = filter_start;
  config.filter_end = filter_end;
  return config;
}

class InsnOracle : public testing::Test {
 protected:
  void SetUp() override {
    root_ = test::data_directory();
    if (!std::filesystem::exists(root_)) GTEST_SKIP() << "no traces at " << root_;
  }
  std::filesystem::path root_;
};

TEST_F(InsnOracle, KvmTraces) {
  const auto root = root_ / "kvm_pt";
  EXPECT_GT(compare(test::page_dump(root / "Unzip/data"), test::read_file(root / "Unzip/trace"),
                    cpu(94, 0x400000, 0x427000)),
            10'000);
  EXPECT_GT(compare(test::page_dump(root / "foo/data"), test::read_file(root / "foo/trace"),
                    cpu(94, 0x7ffff7819000, 0x7ffff79ca000)),
            10'000);
  EXPECT_GT(compare(test::page_dump(root / "avscript_32/page_cache"),
                    test::read_file(root / "avscript_32/failed_trace_12709_1"),
                    cpu(94, 0x1000, 0x7ffffffff000)),
            100'000);
  EXPECT_GT(
      compare(test::page_dump(root / "dyn_test/page_cache"),
              test::read_file(root / "dyn_test/sample_raw_0"), cpu(94, 0x1000, 0x7ffffffff000)),
      100);
}

TEST_F(InsnOracle, PerfTraceOfOneProgram) {
  const auto root = root_ / "perf_pt" / "intelpt-trace";
  image::CodeMap code{1, {{(root / "a.out").string(), 0, 0x1000, 0x400000}}};
  EXPECT_GT(compare(code, test::read_file(root / "3842849.trace"), cpu(79)), 3);
}

TEST_F(InsnOracle, PerfTraceOfAProgramWithLibraries) {
  const auto root = root_ / "perf_pt" / "intelpt-trace-multi-file";
  image::CodeMap code{1,
                      {{(root / "a.out").string(), 0, 0x1000, 0x400000},
                       {(root / "libfoo.so").string(), 0, 0x1000, 140737349783552},
                       {(root / "libbar.so").string(), 0, 0x1000, 140737347678208}}};
  EXPECT_GT(compare(code, test::read_file(root / "multi-file.trace"), cpu(79)), 3);
}

// The loop of the LLDB test's own expectation: main's jumps, four times around.
TEST_F(InsnOracle, PerfTraceShowsTheLoopThatLldbShows) {
  const auto root = root_ / "perf_pt" / "intelpt-trace";
  image::CodeMap code{1, {{(root / "a.out").string(), 0, 0x1000, 0x400000}}};
  test::CountingConsumer consumer;
  (void)make_libipt_decoder(cpu(79))->decode(code, test::read_file(root / "3842849.trace"),
                                             consumer);
  std::vector<Branch> in_main;
  for (const auto& branch : consumer.branches) {
    const bool is_in_main = branch.from >= 0x400511 && branch.from <= 0x40052d;
    if (is_in_main && !branch.is_marker()) in_main.push_back(branch);
  }
  const Branch enter{0x40051f, 0x400529, BranchKind::kJump, false};
  const Branch again{0x40052d, 0x400521, BranchKind::kConditional, false};
  ASSERT_GE(in_main.size(), 5);
  EXPECT_THAT(std::span(in_main).first(5), testing::ElementsAre(enter, again, again, again, again));
}

}  // namespace
}  // namespace auxtrail::decode
