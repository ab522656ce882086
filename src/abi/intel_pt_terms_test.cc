// Config terms: bits as the kernel's format/ files have them, perf's defaults, what a unit refuses.
#include "abi/intel_pt_terms.h"

#include <gtest/gtest.h>

#include <fstream>

namespace auxtrail::abi {
namespace {

// A Skylake-like unit (CPUID 0x14 of a Core i7-6700) and a newer one.
constexpr PtCaps kSkylake = pt_caps_from_cpuid({1, 0x0f, 0x07, 0}, {0x02490002, 0x003f3fff, 0, 0});
constexpr PtCaps kAlderLake =
    pt_caps_from_cpuid({1, 0x1ff, 0x80000007, 0}, {0x02490002, 0x003f3fff, 0, 0});

uint64_t config_of(std::string_view terms, uint64_t base = 0) {
  const Result<PtTerms> parsed = parse_pt_terms(terms, base);
  EXPECT_TRUE(parsed) << parsed.error().message();
  return parsed ? parsed->config : ~uint64_t{0};
}

TEST(PtCapsTest, ComeFromCpuid) {
  EXPECT_TRUE(kSkylake.cr3_filtering && kSkylake.psb_cyc && kSkylake.ip_filtering && kSkylake.mtc);
  EXPECT_FALSE(kSkylake.ptwrite || kSkylake.power_event_trace || kSkylake.event_trace);
  EXPECT_TRUE(kSkylake.topa_output && kSkylake.topa_multiple_entries);
  EXPECT_TRUE(kSkylake.single_range_output);
  EXPECT_FALSE(kSkylake.output_subsys || kSkylake.payloads_lip);
  EXPECT_EQ(kSkylake.num_address_ranges, 2);
  EXPECT_EQ(kSkylake.mtc_periods, 0x249);
  EXPECT_EQ(kSkylake.cycle_thresholds, 0x3fff);
  EXPECT_EQ(kSkylake.psb_periods, 0x3f);
  EXPECT_TRUE(kAlderLake.ptwrite && kAlderLake.event_trace && kAlderLake.tnt_disable);
  EXPECT_TRUE(kAlderLake.payloads_lip);
  constexpr PtCaps no_second = pt_caps_from_cpuid({0, 0x0f, 0x07, 0}, {~0u, ~0u, 0, 0});
  EXPECT_EQ(no_second.num_address_ranges + no_second.mtc_periods + no_second.psb_periods, 0);
}

TEST(PtTermsTest, FormatsAreThoseOfSysfs) {
  const std::pair<const char*, const char*> formats[] = {{"pt", "config:0"},
                                                         {"cyc", "config:1"},
                                                         {"pwr_evt", "config:4"},
                                                         {"fup_on_ptw", "config:5"},
                                                         {"mtc", "config:9"},
                                                         {"tsc", "config:10"},
                                                         {"noretcomp", "config:11"},
                                                         {"ptw", "config:12"},
                                                         {"branch", "config:13"},
                                                         {"event", "config:31"},
                                                         {"mtc_period", "config:14-17"},
                                                         {"cyc_thresh", "config:19-22"},
                                                         {"psb_period", "config:24-27"},
                                                         {"notnt", "config:55"}};
  for (const auto& [name, format] : formats) {
    EXPECT_EQ(pt_term_format(name), format) << name;
    std::ifstream file(std::string("/sys/bus/event_source/devices/intel_pt/format/") + name);
    std::string of_kernel;
    if (file >> of_kernel) {
      EXPECT_EQ(of_kernel, format) << name;
    }
  }
  EXPECT_EQ(pt_term_format("tnt"), "");
}

TEST(PtTermsTest, NamesSetBitsAndFields) {
  EXPECT_EQ(config_of(""), 0u);
  EXPECT_EQ(config_of("tsc,noretcomp,pt,branch"), 0x2c01u);  // what our recorder asks for
  EXPECT_EQ(config_of("cyc,cyc_thresh=2"), 2u | 2u << 19);
  EXPECT_EQ(config_of("psb_period=0x0a"), 10u << 24);
  EXPECT_EQ(config_of("event,notnt"), uint64_t{1} << 31 | uint64_t{1} << 55);
  EXPECT_EQ(config_of("tsc=0,ptw,fup_on_ptw,pwr_evt", 0x2c01), 0x2801u | 0x1030u);
  EXPECT_EQ(config_of("mtc_period=3,mtc_period=9"), 9u << 14);  // the last one counts
  EXPECT_EQ(parse_pt_terms("mtc,psb_period=2", 0x2c01)->user_bits, uint64_t{0xf} << 24 | 1u << 9);
}

TEST(PtTermsTest, TextAndTermsAreInverse) {
  for (uint64_t config : {uint64_t{0}, uint64_t{0x2c01}, pt_config::kAll,
                          uint64_t{3} << 14 | 1u << 9, pt_default_config(kSkylake)}) {
    EXPECT_EQ(config_of(pt_terms_text(config)), config);
  }
  EXPECT_EQ(pt_terms_text(0x2c01), "pt,tsc,noretcomp,branch");
}

TEST(PtTermsTest, BadTermsSayWhy) {
  for (const char* bad : {"tnt", "tsc=2", "psb_period=16", "mtc_period=", "cyc_thresh=-1", "tsc,",
                          ",tsc", "psb_period=3x", "cyc_thresh=99999999999999999999", "tsc tsc"}) {
    const Result<PtTerms> parsed = parse_pt_terms(bad, 0);
    ASSERT_FALSE(parsed) << bad;
    EXPECT_FALSE(parsed.error().why.empty()) << bad;
    EXPECT_EQ(parsed.error().sys_errno, EINVAL);
  }
}

TEST(PtTermsTest, DefaultsArePerfs) {
  // perf record -e intel_pt// on these machines: tsc,mtc,mtc_period=3,psb_period=3,pt,branch
  EXPECT_EQ(pt_terms_text(pt_default_config(kSkylake)),
            "pt,mtc,tsc,branch,mtc_period=3,psb_period=3");
  EXPECT_EQ(pt_terms_text(pt_default_config({})), "pt,tsc,branch");
  PtCaps odd = kSkylake;
  odd.mtc_periods = 0x40;  // 6 alone: the first above 3
  odd.psb_periods = 0x05;  // 0 and 2: the nearest below 3
  EXPECT_EQ(pt_terms_text(pt_default_config(odd)), "pt,mtc,tsc,branch,mtc_period=6,psb_period=2");
  odd.mtc = false;  // and then perf leaves psb_period alone too
  EXPECT_EQ(pt_terms_text(pt_default_config(odd)), "pt,tsc,branch");
}

TEST(PtTermsTest, SamplingWantsPsbsOftenUnlessItsUserChose) {
  const uint64_t base = pt_default_config(kSkylake);
  EXPECT_EQ(pt_config_for_sampling(*parse_pt_terms("cyc", base)),
            (base | pt_config::kCyc) & ~pt_config::kPsbPeriod);
  EXPECT_EQ(pt_config_for_sampling(*parse_pt_terms("psb_period=3", base)), base);
}

struct Case {
  const char* terms;
  PtConfigFault on_skylake;
  PtConfigFault on_alder_lake;
  PtConfigFault on_least;  // the software unit
};

TEST(PtConfigTest, UnitsRefuseWhatTheyCannot) {
  using enum PtConfigFault;
  const Case cases[] = {
      {"", kNone, kNone, kNone},
      {"pt,branch,tsc,noretcomp", kNone, kNone, kNone},
      {"pt", kNone, kNone, kNone},
      {"branch", kBranchWithoutPt, kBranchWithoutPt, kBranchWithoutPt},
      {"cyc", kNone, kNone, kNoPsbCyc},
      {"cyc_thresh=13", kNone, kNone, kNoPsbCyc},
      {"cyc,cyc_thresh=14", kNoSuchCycThresh, kNoSuchCycThresh, kNoPsbCyc},
      {"psb_period=5", kNone, kNone, kNoPsbCyc},
      {"psb_period=6", kNoSuchPsbPeriod, kNoSuchPsbPeriod, kNoPsbCyc},
      {"mtc", kNone, kNone, kNoMtc},
      {"mtc_period=9", kNone, kNone, kNoMtc},
      {"mtc,mtc_period=1", kNoSuchMtcPeriod, kNoSuchMtcPeriod, kNoMtc},
      {"pwr_evt", kNoPowerEvents, kNone, kNoPowerEvents},
      {"ptw", kNoPtwrite, kNone, kNoPtwrite},
      {"fup_on_ptw", kNoPtwrite, kFupWithoutPtw, kNoPtwrite},
      {"ptw,fup_on_ptw", kNoPtwrite, kNone, kNoPtwrite},
      {"event", kNoEventTrace, kNone, kNoEventTrace},
      {"notnt", kNoTntDisable, kNone, kNoTntDisable},
  };
  for (const Case& c : cases) {
    const uint64_t config = config_of(c.terms);
    EXPECT_EQ(check_pt_config(config, kSkylake), c.on_skylake) << c.terms;
    EXPECT_EQ(check_pt_config(config, kAlderLake), c.on_alder_lake) << c.terms;
    EXPECT_EQ(check_pt_config(config, {}), c.on_least) << c.terms;
    const Status accepted = accept_pt_config(config, kSkylake);
    EXPECT_EQ(accepted.has_value(), c.on_skylake == kNone) << c.terms;
    if (!accepted) {
      EXPECT_FALSE(accepted.error().fix.empty()) << c.terms;
    }
  }
  for (uint32_t bit = 0; bit < 64; ++bit) {
    const uint64_t config = uint64_t{1} << bit;
    if ((config & pt_config::kAll) == 0) {
      EXPECT_EQ(check_pt_config(config, kAlderLake), kUnknownBits) << bit;
    }
  }
  PtCaps broadwell = kSkylake;
  broadwell.branch_always_on = true;
  EXPECT_EQ(check_pt_config(pt_config::kPt, broadwell), kBranchNeeded);
  EXPECT_EQ(check_pt_config(pt_config::kPt | pt_config::kBranch, broadwell), kNone);
  PtCaps liar = kSkylake;
  liar.mtc = false;  // periods without the capability
  EXPECT_EQ(check_pt_config(pt_config::kMtc, liar), kNoMtc);
}

}  // namespace
}  // namespace auxtrail::abi
