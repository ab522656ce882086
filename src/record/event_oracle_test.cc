// Linux perf as oracle of -e: for the same text the same events with the same attrs, or a refusal
// by both. Random lists of events, groups, terms and modifiers, whole and damaged.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <vector>

#include "perfdata/reader.h"
#include "perfdata/testing/command.h"
#include "record/event_choice.h"
#include "record/tracepoint.h"

namespace auxtrail::record {
namespace {

using perfdata::testing::have_perf;
using perfdata::testing::ScratchDirectory;

// perf's own frequency where neither option nor term gives one.
constexpr uint64_t kPerfFrequencyHz = 4000;

// One line per event: what both must agree on. The privilege is not compared but for exclude_user:
// that user space alone is traced is ours.
std::string line(const perf_event_attr& attr, uint64_t default_hz) {
  const bool rate_by_default = attr.freq == 1 && attr.sample_freq == default_hz;
  const bool read = (attr.sample_type & PERF_SAMPLE_READ) != 0;
  std::string text =
      fmt::format("type {} config {:#x} rate {} precise {} idle {} read {} inherit {}",
                  static_cast<uint32_t>(attr.type), static_cast<uint64_t>(attr.config),
                  rate_by_default ? "default"
                                  : fmt::format("{}{}", attr.freq == 1 ? "F" : "c",
                                                static_cast<uint64_t>(attr.sample_freq)),
                  static_cast<unsigned>(attr.precise_ip), static_cast<unsigned>(attr.exclude_idle),
                  read ? (attr.read_format & PERF_FORMAT_GROUP) != 0 ? "group" : "alone" : "no",
                  static_cast<unsigned>(attr.inherit));
  if (attr.type == PERF_TYPE_BREAKPOINT) {
    text += fmt::format(" bp {:#x} {} {}", static_cast<uint64_t>(attr.bp_addr),
                        static_cast<uint64_t>(attr.bp_len), static_cast<uint32_t>(attr.bp_type));
  }
  return text + "\n";
}

std::string ours(const std::string& text) {
  RecordOptions options;
  options.event = text;
  const auto choice = choose_events(options, {{false, 10}, kMaxUnitRateHz, false, kTracefs});
  if (!choice) return "refused";
  std::string lines;
  for (const Sampler& sampler : choice->samplers) {
    lines += line(sampler.attr, kDefaultFrequencyHz);
  }
  return lines;
}

// What perf makes of each text. It runs for all of them at once: most of its time it waits for the
// kernel.
std::vector<std::string> perfs(const ScratchDirectory& scratch,
                               const std::vector<std::string>& texts) {
  std::string script;
  for (size_t i = 0; i < texts.size(); ++i) {
    script += fmt::format("(perf record -o {0}.data -e '{1}' -- true || rm -f {0}.data) &\n", i,
                          texts[i]);
    if (i % 16 == 15) script += "wait\n";
  }
  (void)scratch.run(fmt::format("({}wait) > /dev/null 2>&1", script));
  std::vector<std::string> results;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string path = scratch.file(fmt::format("{}.data", i));
    const auto reader = perfdata::Reader::open(path);
    results.emplace_back(reader ? "" : "refused");
    if (!reader) continue;
    for (const perfdata::Event& event : reader->events()) {
      results.back() += line(event.attr, kPerfFrequencyHz);
    }
    std::filesystem::remove(path);
  }
  return results;
}

class EventOracle : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!have_perf()) GTEST_SKIP() << "Linux perf is not installed (package linux-perf)";
    if (perfs(scratch_, {"task-clock:u"}).front() == "refused") {
      GTEST_SKIP() << "perf can't record here";
    }
  }
  void compare(const std::vector<std::string>& texts) {
    const auto theirs = perfs(scratch_, texts);
    for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(ours(texts[i]), theirs[i]) << texts[i];
  }

  ScratchDirectory scratch_;
};

constexpr const char* kTaken[] = {"task-clock",
                                  "cpu-clock:u",
                                  "page-faults:u",
                                  "faults",
                                  "minor-faults,major-faults",
                                  "context-switches",
                                  "cs",
                                  "cpu-migrations",
                                  "migrations:uk",
                                  "alignment-faults:upp",
                                  "cpu-clock/period=1000000/u",
                                  "cpu-clock/freq=99/",
                                  "cpu-clock/freq=99,period=70000/",
                                  "cpu-clock/period=70000,freq=99/",
                                  "faults/period/",
                                  "faults/period=0x10/",
                                  "cpu-clock//u",
                                  "cpu-clock/ freq = 99 /u",
                                  "cpu-clock/name=foo/u",
                                  "{faults:u,cpu-clock:u}",
                                  "{faults,cpu-clock}:u",
                                  "{faults,cpu-clock}:S",
                                  "{faults:p,cpu-clock:p}:pu",
                                  "faults:S",
                                  "{faults}:S",
                                  "group{faults,cs},cpu-clock",
                                  "{faults},{cs}",
                                  " faults ",
                                  "mem:0x404040",
                                  "mem:0x404040:w",
                                  "mem:0x404040/8:w:u",
                                  "mem:0x404040:wu",
                                  "mem:0x404040:u",
                                  "mem:0x404040/8:x",
                                  "mem:0x404040:x",
                                  "mem:0x404040:wr",
                                  "mem:0x404040/0:w",
                                  "mem:4210752:rw",
                                  "{faults,mem:0x404040/1:rw}:u",
                                  "faults:",
                                  "mem:0x404040:",
                                  "mem:0x404040/8:w:"};

constexpr const char* kRefused[] = {"faults,",
                                    ",faults",
                                    "{}",
                                    "{{faults}}",
                                    "g:{faults}",
                                    "faults/",
                                    "{faults}:",
                                    "faults//:u",
                                    "faults/period=1,/",
                                    "faults/period=-1/",
                                    "faults/period=1K/",
                                    "faults/nosuch=1/",
                                    "faults/period=99999999999999999999/",
                                    "faults/name=:x/",
                                    "faults:uu",
                                    "faults:upppp",
                                    "faults:u:",
                                    "faults:u:p",
                                    "FAULTS",
                                    "faults-x",
                                    "mem:",
                                    "mem:0x404040:uw",
                                    "mem:0x404040:ww",
                                    "mem:0x404040:rwx",
                                    "mem:0x404040:r",
                                    "mem:0x404040/3:w",
                                    "mem:0x404041/4:w",
                                    "mem:0x404040/16:w",
                                    "mem:0x404040//u",
                                    "mem:0x404040/8:w/period=2/",
                                    "sched:nothing",
                                    "sched:sched_switch:ux",
                                    "nothing:sched_switch"};

TEST_F(EventOracle, EventsTermsAndGroups) { compare({std::begin(kTaken), std::end(kTaken)}); }

TEST_F(EventOracle, Refusals) {
  const std::vector<std::string> texts{std::begin(kRefused), std::end(kRefused)};
  const auto theirs = perfs(scratch_, texts);
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(ours(texts[i]), "refused") << texts[i];
    EXPECT_EQ(theirs[i], "refused") << texts[i];
  }
}

TEST_F(EventOracle, Tracepoints) {
  if (!std::filesystem::exists(std::string(kTracefs) + "/events/sched/sched_switch/id")) {
    GTEST_SKIP() << "tracefs is not mounted, or closed to this user";
  }
  compare({"sched:sched_switch", "sched:sched_switch:k", "{sched:sched_switch,faults:u}",
           "faults,sched:sched_process_exit"});
}

// ---- random texts ----

class TextMaker {
 public:
  explicit TextMaker(unsigned seed) : random_(seed) {}

  std::string list() {
    std::string text;
    for (unsigned i = 0, count = 1 + below(3); i < count; ++i) {
      text += (i == 0 ? "" : ",") + (below(3) == 0 ? group() : event());
    }
    return text;
  }
  std::string damaged(std::string text) {
    constexpr std::string_view kLetters = ",:/{}=u8m";
    const size_t at = below(static_cast<unsigned>(text.size()));
    const std::string letter(1, kLetters[below(kLetters.size())]);
    switch (below(3)) {
      case 0:
        return text.erase(at, 1);
      case 1:
        return text.insert(at, letter);
      default:
        return text.replace(at, 1, letter);
    }
  }

 private:
  unsigned below(unsigned limit) { return static_cast<unsigned>(random_() % limit); }
  template <size_t N>
  std::string one_of(const char* const (&texts)[N]) {
    return texts[below(N)];
  }
  std::string event() {
    static constexpr const char* kNames[] = {"cpu-clock",   "task-clock",   "faults",
                                             "page-faults", "minor-faults", "major-faults",
                                             "cs",          "migrations"};
    static constexpr const char* kBreakpoints[] = {"mem:0x404040", "mem:0x404040/8:w",
                                                   "mem:0x404040:x", "mem:4210752/2:rw:u"};
    static constexpr const char* kTerms[] = {"period=70000", "freq=99", "name=foo", "freq=7",
                                             "period=0x100000"};
    static constexpr const char* kLetters[] = {"", "uk", "p", "pp", "I", "ukp", "", "H"};
    if (below(6) == 0) return one_of(kBreakpoints);
    std::string text = one_of(kNames);
    if (below(3) == 0) {
      text += "/";
      for (unsigned i = 0, count = below(3); i < count; ++i) {
        text += (i == 0 ? "" : ",") + one_of(kTerms);
      }
      return text + "/" + one_of(kLetters);
    }
    const std::string letters = one_of(kLetters);
    return letters.empty() ? text : text + ":" + letters;
  }
  std::string group() {
    static constexpr const char* kEnds[] = {"}", "}", "}:S", "}:uk", "}:p"};
    std::string text = below(4) == 0 ? "g{" : "{";
    for (unsigned i = 0, count = 1 + below(3); i < count; ++i) {
      text += (i == 0 ? "" : ",") + event();
    }
    return text + one_of(kEnds);
  }

  std::mt19937 random_;
};

TEST_F(EventOracle, RandomLists) {
  TextMaker maker(1);
  std::vector<std::string> texts(80);
  std::generate(texts.begin(), texts.end(), [&] { return maker.list(); });
  compare(texts);
}

// perf's scanner lets some slips pass ("faultsuk", "/faults") that are errors here; never the other
// way round.
TEST_F(EventOracle, DamagedLists) {
  TextMaker maker(2);
  std::vector<std::string> texts(80);
  std::generate(texts.begin(), texts.end(), [&] { return maker.damaged(maker.list()); });
  const auto theirs = perfs(scratch_, texts);
  size_t refused_by_both = 0;
  size_t refused_here = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string own = ours(texts[i]);
    refused_here += own == "refused" ? 1 : 0;
    refused_by_both += own == "refused" && theirs[i] == "refused" ? 1 : 0;
    if (own != "refused") {
      EXPECT_EQ(own, theirs[i]) << texts[i];
    }
  }
  EXPECT_GT(refused_by_both, texts.size() / 4);
  EXPECT_LT(refused_here - refused_by_both, texts.size() / 8);
}

}  // namespace
}  // namespace auxtrail::record
