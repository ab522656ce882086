// The search for PSBs against a search byte by byte and against libipt.
#include "pt/psb_search.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "pt/testing/libipt_packets.h"
#include "pt/testing/packet_texts.h"
#include "pt/testing/random_trace.h"

namespace auxtrail::pt {
namespace {

using testing::put_psb;
using testing::RandomTrace;
using testing::Trace;

bool is_pair(const Trace& trace, size_t at) {
  return at + 2 <= trace.size() && trace[at] == std::byte{0x02} && trace[at + 1] == std::byte{0x82};
}

// Eight pairs, and no ninth.
std::vector<size_t> psbs_of(const Trace& trace) {
  std::vector<size_t> psbs;
  for (size_t at = 0; at < trace.size(); ++at) {
    size_t pairs = 0;
    while (pairs < 9 && is_pair(trace, at + 2 * pairs)) ++pairs;
    if (pairs == 8) psbs.push_back(at);
  }
  return psbs;
}

// Mostly pairs, so that runs of all lengths and halves of pairs are there.
Trace pairs_and_noise(RandomTrace& random) {
  Trace trace;
  const size_t size = random.number(8);
  while (trace.size() < size) {
    if (random.number(4) == 0) {
      trace.push_back(static_cast<std::byte>(random.number(1) == 0 ? 0x82 : random.number(8)));
    } else {
      trace.push_back(std::byte{0x02});
      trace.push_back(std::byte{0x82});
    }
  }
  return trace;
}

void expect_all_found(const Trace& trace) {
  const auto psbs = psbs_of(trace);
  for (size_t at = 0; at <= trace.size() + 1; ++at) {
    const auto next = std::lower_bound(psbs.begin(), psbs.end(), at);
    const auto found = find_psb(trace, at);
    ASSERT_EQ(found.has_value(), next != psbs.end()) << "from " << at;
    if (found) {
      ASSERT_EQ(*found, *next) << "from " << at;
    }
    const auto back = find_psb_backward(trace, at);
    ASSERT_EQ(back.has_value(), next != psbs.begin()) << "before " << at;
    if (back) {
      ASSERT_EQ(*back, *(next - 1)) << "before " << at;
    }
  }
}

TEST(PsbSearchTest, FindsWhatASearchByteByByteFinds) {
  size_t found = 0;
  for (uint32_t seed = 0; seed < 500; ++seed) {
    RandomTrace random(seed);
    const Trace trace = pairs_and_noise(random);
    expect_all_found(trace);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    found += psbs_of(trace).size();
  }
  EXPECT_GT(found, 500);
}

TEST(PsbSearchTest, FindsAPsbAtEveryPlace) {
  for (size_t before = 0; before < 150; ++before) {
    for (const size_t behind : {0, 1, 15, 16, 17, 100}) {
      Trace trace(before, std::byte{0x6c});
      put_psb(trace);
      trace.resize(trace.size() + behind, std::byte{0x6c});
      ASSERT_EQ(find_psb(trace), before);
      ASSERT_EQ(find_psb_backward(trace, trace.size()), before);
    }
  }
}

// libipt's search backward never leaves a PSB right behind another: there is always something
// between.
Trace apart(RandomTrace& random, size_t packets) {
  Trace trace;
  for (size_t i = 0; i < packets; ++i) {
    const Trace packet = random.make(1);
    trace.insert(trace.end(), packet.begin(), packet.end());
    trace.resize(trace.size() + 16, std::byte{0x06});
  }
  return trace;
}

TEST(PsbSearchTest, FindsWhatLibiptFinds) {
  size_t found = 0;
  for (uint32_t seed = 0; seed < 50; ++seed) {
    RandomTrace random(seed);
    const Trace trace = apart(random, 500);
    std::vector<uint64_t> forward;
    for (auto psb = find_psb(trace); psb; psb = find_psb(trace, *psb + 1)) forward.push_back(*psb);
    EXPECT_EQ(forward, testing::LibiptPackets(trace).psbs_forward()) << "seed " << seed;
    std::vector<uint64_t> backward;
    for (auto psb = find_psb_backward(trace, trace.size()); psb;
         psb = find_psb_backward(trace, *psb)) {
      backward.push_back(*psb);
    }
    EXPECT_EQ(backward, testing::LibiptPackets(trace).psbs_backward()) << "seed " << seed;
    found += forward.size();
  }
  EXPECT_GT(found, 500);
}

// A packet that was cut by a PSB takes its front along. But the PSB that reading began with is not
// found again.
TEST(PsbSearchTest, AfterAnErrorAPsbThatWasSwallowedIsFound) {
  Trace trace;
  put_psb(trace);
  put_psb(trace);
  for (size_t offset = 17; offset <= 31; ++offset) {
    EXPECT_EQ(find_psb_after_error(trace, offset, 0), 16);
  }
  EXPECT_EQ(find_psb_after_error(trace, 31, 16), std::nullopt);
  EXPECT_EQ(find_psb_after_error(trace, 32, 0), std::nullopt);
}

// Linear in the bytes, whatever they are: this would take hours otherwise.
TEST(PsbSearchTest, LongRunsTakeNoLonger) {
  Trace trace(1);
  for (int i = 0; i < 1'000'000; ++i) {
    trace.push_back(std::byte{0x02});
    trace.push_back(std::byte{0x82});
  }
  EXPECT_EQ(find_psb(trace), trace.size() - kPsbBytes);
  EXPECT_EQ(find_psb_backward(trace, trace.size()), trace.size() - kPsbBytes);
  EXPECT_FALSE(find_psb_backward(trace, trace.size() / 2).has_value());
}

}  // namespace
}  // namespace auxtrail::pt
