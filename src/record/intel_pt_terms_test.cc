#include "record/intel_pt_terms.h"

#include <gmock/gmock.h>

namespace auxtrail::record {
namespace {

using ::testing::HasSubstr;

Result<IntelPtTerms> read(const std::string& text) {
  const auto groups = read_event_text(text);
  if (!groups) return tl::unexpected<Error>(groups.error());
  return read_intel_pt_terms(groups->front().events.front(), kTracePsbPeriod);
}

std::string refusal(const std::string& text) {
  const auto terms = read(text);
  return terms ? "accepted" : terms.error().message();
}

TEST(IntelPtTerms, DefaultsAndPsbPeriod) {
  EXPECT_EQ(read("intel_pt//u")->config, 0x3002401U);
  EXPECT_EQ(read("intel_pt//u")->name, "intel_pt//u");
  EXPECT_EQ(read("intel_pt/psb_period=0/u")->config, 0x2401U);
  EXPECT_EQ(read("intel_pt/psb_period=15,noretcomp,tsc=1,branch,pt/u")->config, 0xf002c01U);
  EXPECT_EQ(read("intel_pt/noretcomp=0/u")->config, 0x3002401U);
  EXPECT_EQ(read("intel_pt/config=0x2c01/u")->config, 0x2c01U);
  EXPECT_EQ(read("intel_pt/name=pt/u")->name, "pt");
  EXPECT_EQ(psb_period_bytes(0x2c01), 2048U);
  EXPECT_EQ(psb_period_bytes(0x3002c01), 16384U);
}

TEST(IntelPtTerms, WhatTheSoftwareUnitCantDoIsSaid) {
  EXPECT_THAT(refusal("intel_pt/mtc/u"), HasSubstr("no MTC packets"));
  EXPECT_THAT(refusal("intel_pt/cyc=1/u"), HasSubstr("no CYC packets"));
  EXPECT_THAT(refusal("intel_pt/ptw/u"), HasSubstr("PTWRITE"));
  EXPECT_THAT(refusal("intel_pt/tsc=0/u"), HasSubstr("can't do tsc=0"));
  EXPECT_THAT(refusal("intel_pt/branch=0/u"), HasSubstr("can't do branch=0"));
  EXPECT_THAT(refusal("intel_pt/config=0x402/u"), HasSubstr("can't do pt=0"));
  EXPECT_THAT(refusal("intel_pt/config=0x102c01/u"), HasSubstr("cyc_thresh"));
  EXPECT_THAT(refusal("intel_pt/config=0x10002c01/u"), HasSubstr("without a meaning"));
}

TEST(IntelPtTerms, WrongTermsAreRefused) {
  EXPECT_THAT(refusal("intel_pt/psb_period=16/u"), HasSubstr("at most 15"));
  EXPECT_THAT(refusal("intel_pt/nosuch/u"), HasSubstr("psb_period"));
  EXPECT_THAT(refusal("intel_pt/psb_period=x/u"), HasSubstr("no number"));
  EXPECT_THAT(refusal("intel_pt/period=3/u"), HasSubstr("takes no samples"));
}

}  // namespace
}  // namespace auxtrail::record
