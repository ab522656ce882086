// FlowDecoder against libipt's block decoder on real traces: the same instructions in the same
// order, the same ups and downs of tracing between them, the same errors; with and without
// knowledge of the CPU's errata. And the totals that are known of these traces.
//
// Blocks are joined where one does not end with a branch: libipt 2.0 cuts them at every PSB+, for
// the sake of a MODE.Exec that says nothing new, and later versions (as we) do not.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <intel-pt.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "flow/flow_decoder.h"
#include "flow/flow_instruction.h"
#include "flow/testing/real_traces.h"

namespace auxtrail::flow {
namespace {

using Lines = std::vector<std::string>;

// The flow as lines, blocks joined.
class Script {
 public:
  explicit Script(const CodeMemory& code) : code_(code) {}

  void add_block(const FlowBlock& block) {
    const bool joins = open_ && next_ == block.first_ip && block.speculative == run_.speculative;
    if (!joins) {
      flush();
      run_ = block;
    } else {
      run_.last_ip = block.last_ip;
      run_.instructions += block.instructions;
    }
    uint8_t bytes[15];
    Instruction last;
    const size_t count = code_.read(block.last_ip, bytes, sizeof(bytes));
    open_ = decode_instruction(bytes, count, block.mode, last) && !is_branch(last);
    next_ = block.last_ip + last.length;
    has_run_ = true;
  }
  void add(std::string line) {
    flush();
    lines_.push_back(std::move(line));
  }
  Lines take() {
    flush();
    return std::move(lines_);
  }

 private:
  void flush() {
    if (has_run_) {
      lines_.push_back(fmt::format("{:x}-{:x} {}{}", run_.first_ip, run_.last_ip, run_.instructions,
                                   run_.speculative ? " tsx" : ""));
    }
    has_run_ = open_ = false;
  }

  const CodeMemory& code_;
  Lines lines_;
  FlowBlock run_;
  bool has_run_ = false;
  bool open_ = false;  // the last block may go on
  uint64_t next_ = 0;
};

std::string event_line(std::string_view what, bool suppressed, uint64_t ip, uint64_t at = 0) {
  return suppressed ? fmt::format("[{} {:x} ?]", what, at)
                    : fmt::format("[{} {:x} {:x}]", what, at, ip);
}

// Nothing for an event that libipt 2.0 does not have, or has in other places.
std::optional<std::string> line_of(const Event& event, bool resumed) {
  switch (event.kind) {
    case EventKind::kEnabled:
      return event_line(resumed ? "resumed" : "enabled", false, event.ip);
    case EventKind::kDisabled:
      return event_line("disabled", event.ip_suppressed, event.ip);
    case EventKind::kAsyncDisabled:
      return event_line("stopped", event.ip_suppressed, event.ip, event.at);
    case EventKind::kAsyncBranch:
      return event_line("interrupt", event.ip_suppressed, event.ip, event.at);
    case EventKind::kOverflow:
      return event_line("overflow", event.ip_suppressed, event.ip);
    default:
      return std::nullopt;
  }
}

Lines our_lines(const test::RealTrace& real, const pt::Errata& errata, const CodeMemory& code) {
  pt::TraceConfig config = real.config(false);
  config.errata = errata;
  FlowDecoder flow(config, real.trace, code);
  flow.set_resync(false);  // as libipt 2.0
  Script script(code);
  FlowItem item;
  for (auto kind = flow.next(item); kind != FlowItemKind::kEnd; kind = flow.next(item)) {
    if (kind == FlowItemKind::kBlock) script.add_block(item.block);
    if (kind == FlowItemKind::kError) script.add(fmt::format("error: {}", text(item.error)));
    if (kind != FlowItemKind::kEvent || item.event.status_update) continue;
    if (auto line = line_of(item.event, item.resumed)) script.add(std::move(*line));
  }
  return script.take();
}

class Libipt {
 public:
  Libipt(const test::RealTrace& real, const pt::Errata& errata, const CodeMemory& code)
      : trace_(real.trace), script_(code) {
    pt_config config;
    pt_config_init(&config);
    config.flags.variant.block.end_on_call = 1;
    config.flags.variant.block.end_on_jump = 1;
    config.begin = reinterpret_cast<uint8_t*>(trace_.data());
    config.end = config.begin + trace_.size();
    config.errata.bdm64 = errata.bdm64;
    config.errata.bdm70 = errata.bdm70;
    config.errata.skd007 = errata.skd007;
    config.errata.skd010 = errata.skd010;
    config.errata.skd022 = errata.skd022;
    config.errata.skl014 = errata.skl014;
    config.errata.skl168 = errata.skl168;
    if (real.filter_end != 0) {
      config.addr_filter.config.addr_cfg = 1;
      config.addr_filter.addr0_a = real.filter_start;
      config.addr_filter.addr0_b = real.filter_end;
    }
    decoder_.reset(pt_blk_alloc_decoder(&config));
    for (const test::FileSection& section : real.sections) {
      const int id = pt_iscache_add_file(cache_.get(), section.file.c_str(), section.offset,
                                         section.size_bytes, section.address);
      (void)pt_image_add_cached(pt_blk_get_image(decoder_.get()), cache_.get(), id, nullptr);
    }
  }

  Lines lines() {
    while (true) {
      int status = pt_blk_sync_forward(decoder_.get());
      if (status == -pte_eos) return script_.take();
      while (status >= 0) {
        status = drain(status);
        if (status < 0) break;
        if ((status & pts_eos) != 0) return script_.take();
        pt_block block{};
        status = pt_blk_next(decoder_.get(), &block, sizeof(block));
        if (block.ninsn != 0) {
          script_.add_block({block.ip,
                             block.end_ip,
                             block.ninsn,
                             mode_of(block.mode),
                             block.speculative != 0,
                             {}});
        }
      }
      if (status == -pte_eos) return script_.take();
      script_.add(fmt::format("error: {}", pt_errstr(pt_errcode(status))));
    }
  }

 private:
  int drain(int status) {
    while (status >= 0 && (status & pts_event_pending) != 0) {
      pt_event event;
      status = pt_blk_event(decoder_.get(), &event, sizeof(event));
      if (status >= 0 && event.status_update == 0) add(event);
    }
    return status;
  }

  void add(const pt_event& event) {
    const bool suppressed = event.ip_suppressed != 0;
    const auto& variant = event.variant;
    switch (event.type) {
      case ptev_enabled:
        script_.add(event_line(variant.enabled.resumed != 0 ? "resumed" : "enabled", false,
                               variant.enabled.ip));
        break;
      case ptev_disabled:
        script_.add(event_line("disabled", suppressed, variant.disabled.ip));
        break;
      case ptev_async_disabled:
        script_.add(event_line("stopped", suppressed, variant.async_disabled.ip,
                               variant.async_disabled.at));
        break;
      case ptev_async_branch:
        script_.add(event_line("interrupt", suppressed, variant.async_branch.to,
                               variant.async_branch.from));
        break;
      case ptev_overflow:
        script_.add(event_line("overflow", suppressed, variant.overflow.ip));
        break;
      default:
        break;
    }
  }

  static ExecMode mode_of(pt_exec_mode mode) {
    return mode == ptem_64bit ? ExecMode::k64 : mode == ptem_32bit ? ExecMode::k32 : ExecMode::k16;
  }

  std::vector<std::byte> trace_;
  std::unique_ptr<pt_image_section_cache, decltype(&pt_iscache_free)> cache_{
      pt_iscache_alloc(nullptr), &pt_iscache_free};
  std::unique_ptr<pt_block_decoder, decltype(&pt_blk_free_decoder)> decoder_{nullptr,
                                                                             &pt_blk_free_decoder};
  Script script_;
};

const std::string kNoMapLine = "error: no memory mapped at this address";

bool is_subsequence(const Lines& part, const Lines& whole) {
  auto at = part.begin();
  for (const std::string& line : whole) {
    if (at != part.end() && *at == line) ++at;
  }
  return at == part.end();
}

class RealTraces : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    real_ = name.starts_with("intelpt") ? test::perf_trace(name) : test::kvm_trace(name);
    if (!real_.obstacle.empty()) GTEST_SKIP() << real_.obstacle;
  }
  void compare(const pt::Errata& errata) {
    std::deque<std::vector<uint8_t>> storage;
    const CodeMemory code = real_.code(storage);
    const Lines ours = our_lines(real_, errata, code);
    const Lines theirs = Libipt(real_, errata, code).lines();
    ASSERT_GT(theirs.size(), 10);
    const auto [our, their] = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end());
    if (our == ours.end() && their == theirs.end()) return;
    // After an error libipt goes on at the next PSB that its packet layer has not read yet, and
    // loses the ones that wait in its event queue.
    const bool has_errors = std::find(ours.begin(), our, kNoMapLine) != our;
    if (has_errors && is_subsequence(theirs, ours)) return;
    ADD_FAILURE() << "line " << our - ours.begin() << " of " << theirs.size() << ": ours "
                  << (our == ours.end() ? "is at its end" : *our) << ", libipt's "
                  << (their == theirs.end() ? "is at its end" : *their) << ", before it "
                  << (our == ours.begin() ? "nothing" : our[-1]);
  }
  test::RealTrace real_;
};

TEST_P(RealTraces, SameFlowAsLibiptWithErrata) { compare(real_.config(true).errata); }

// BDM70 stays: all of these CPUs have it, and without it libipt 2.0 begins at addresses that later
// versions find to contradict the TIP.PGE behind them.
TEST_P(RealTraces, SameFlowAsLibiptWithBdm70Only) { compare({.bdm70 = true}); }

INSTANTIATE_TEST_SUITE_P(All, RealTraces,
                         testing::Values("Unzip", "foo", "avscript_32", "dyn_test", "intelpt-trace",
                                         "intelpt-trace-multi-file"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

struct Totals {
  const char* title;
  uint64_t conditional;  // TNT bits: return compression is off
  uint64_t branches;
  uint64_t instructions;
};

class KvmTotals : public testing::TestWithParam<Totals> {};

TEST_P(KvmTotals, AreTheKnownOnes) {
  const auto real = test::kvm_trace(GetParam().title);
  if (!real.obstacle.empty()) GTEST_SKIP() << real.obstacle;
  std::deque<std::vector<uint8_t>> storage;
  const CodeMemory code = real.code(storage);
  FlowDecoder flow(real.config(true), real.trace, code);
  Totals totals{GetParam().title, 0, 0, 0};
  FlowItem item;
  for (auto kind = flow.next(item); kind != FlowItemKind::kEnd; kind = flow.next(item)) {
    ASSERT_NE(kind, FlowItemKind::kError) << text(item.error) << " at " << item.offset;
    if (kind != FlowItemKind::kBlock) continue;
    totals.instructions += item.block.instructions;
    totals.branches += is_branch(item.block.last);
    totals.conditional += item.block.last.cls == InsnClass::kCondJump;
  }
  EXPECT_EQ(totals.conditional, GetParam().conditional);
  EXPECT_EQ(totals.branches, GetParam().branches);
  EXPECT_EQ(totals.instructions, GetParam().instructions);
}

INSTANTIATE_TEST_SUITE_P(All, KvmTotals,
                         testing::Values(Totals{"Unzip", 45'985, 46'761, 149'576},
                                         Totals{"foo", 22'298, 29'225, 117'967},
                                         Totals{"avscript_32", 234'320, 316'133, 1'114'194}),
                         [](const auto& instance) { return std::string(instance.param.title); });

}  // namespace
}  // namespace auxtrail::flow
