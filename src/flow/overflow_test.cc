// Where tracing goes on behind an OVF, with and without the errata; the event decoder's other
// errata; and what a decoder can be asked between events. The expectations are libipt 2.2's; those
// of errata stand also in its own textual tests (apl11, apl12, bdm70, skd007, skd010, skz84).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "flow/event_decoder.h"
#include "flow/testing/event_text.h"
#include "flow/testing/packet_bytes.h"

namespace auxtrail::flow {
namespace {

using test::PacketBytes;
using testing::ElementsAre;

PacketBytes on() { return PacketBytes().psb().fup(0x1000).psbend(); }

// All events behind the PSB+'s first one, and how it ends.
std::vector<std::string> run(const PacketBytes& trace, const pt::Errata& errata = {},
                             bool with_time = false, pt::TraceConfig config = {}) {
  config.errata = errata;
  EventDecoder decoder(config, trace.bytes());
  Status status = decoder.sync_forward();
  std::vector<std::string> events;
  Event event;
  while (status == Status::kOk && (status = decoder.next(event)) == Status::kOk) {
    events.push_back(test::text(event) + (with_time ? test::time_text(event) : ""));
  }
  events.push_back(std::string(text(status)));
  if (events.size() > 1) events.erase(events.begin());
  return events;
}

const std::string kEnd(text(Status::kEndOfTrace));
const std::string kBadContext(text(Status::kBadContext));

TEST(Overflow, ResolvesWithTracingOn) {
  EXPECT_THAT(run(on().ovf().cyc(3).fup(0x2000).tnt("T")),
              ElementsAre("overflow ip=2000", "tnt T", kEnd));
}

TEST(Overflow, ResolvesWithTracingOff) {
  EXPECT_THAT(
      run(on().ovf().mode_exec(1).pge(0x2000)),
      ElementsAre("overflow ip=none", "enabled ip=2000", "exec mode ip=2000 mode=64", kEnd));
  EXPECT_THAT(run(on().ovf().pip(0xa000)),
              ElementsAre("overflow ip=none", "paging payload=a000", kEnd));
  EXPECT_THAT(run(on().ovf()), ElementsAre("overflow ip=none", kEnd));
  EXPECT_THAT(run(on().ovf().psb().fup(0x2000).psbend()),
              ElementsAre("overflow ip=none", "enabled ip=2000 status", kEnd));
}

TEST(Overflow, NeedsAnAddressBeforeTheFlowGoesOn) {
  for (const PacketBytes& trace :
       {on().ovf().tnt("T"), on().ovf().tip(0x2000), on().ovf().pgd(0x2000), on().ovf().psbend()}) {
    EXPECT_THAT(run(trace), ElementsAre(kBadContext));
    // The state is gone, so only a PSB helps.
    EventDecoder decoder({}, trace.bytes());
    Event event;
    EXPECT_EQ(decoder.sync_forward(), Status::kOk);
    EXPECT_EQ(decoder.next(event), Status::kOk);
    EXPECT_EQ(decoder.next(event), Status::kBadContext);
    EXPECT_EQ(decoder.offset(), on().size()) << "of the OVF";
    EXPECT_EQ(decoder.next(event), Status::kNoSync);
  }
}

TEST(Overflow, DropsWhatIsPending) {
  EXPECT_THAT(run(on().mwait(1, 0).fup(0x1100).pip(0xa000).ovf().fup(0x2000).tip(0x3000)),
              ElementsAre("overflow ip=2000", "tip ip=3000", kEnd));
  // The mode, too, is forgotten: it may have changed.
  EXPECT_THAT(run(on().mode_exec(1).tip(0x1100).ovf().fup(0x2000).mode_exec(1).tip(0x3000)),
              ElementsAre("tip ip=1100", "exec mode ip=1100 mode=64", "overflow ip=2000",
                          "tip ip=3000", "exec mode ip=3000 mode=64", kEnd));
}

// libipt's tests mwait-pwre-ovf and its kin.
TEST(Overflow, TellsWhatIsPendingWhereNoPlaceBelongsToIt) {
  const PacketBytes off = PacketBytes().psb().psbend();
  PacketBytes trace = off;
  EXPECT_THAT(
      run(trace.mwait(1, 0).pwre(1, 2, false).ovf().fup(0x2000)),
      ElementsAre("mwait ip=none payload=1", "pwre small=1 small2=2", "overflow ip=2000", kEnd));
  trace = off;
  EXPECT_THAT(run(trace.exstop(true).ovf().fup(0x2000)),
              ElementsAre("exstop ip=none", "overflow ip=2000", kEnd));
  EXPECT_THAT(run(on().exstop(true).pwre(1, 2, false).ovf().fup(0x2000)),
              ElementsAre("pwre small=1 small2=2", "overflow ip=2000", kEnd));
}

TEST(Overflow, ForgetsTheLastIp) {
  EXPECT_THAT(run(on().tip(0x12345678).ovf().raw({0x3d, 0x00, 0x20})),
              ElementsAre("tip ip=12345678", "overflow ip=2000", kEnd));
}

TEST(Overflow, HasTheTimeOfTheOvf) {
  EXPECT_THAT(run(on().tsc(0x100).ovf().tsc(0x200).fup(0x2000).tnt("T"), {}, true),
              ElementsAre("overflow ip=2000 tsc=100 lost=0,0", "tnt T tsc=200 lost=0,0", kEnd));
}

TEST(Overflow, KeepsTheCalibrationIfAsked) {
  const PacketBytes trace = on().cbr(2).tsc(0x100).ovf().fup(0x2000).cyc(8).tnt("T");
  pt::TraceConfig config;
  config.nom_freq = 4;
  EXPECT_THAT(run(trace, {}, true, config),
              ElementsAre("cbr small=2 no tsc=0 lost=0,0", "overflow ip=2000 tsc=100 lost=0,0",
                          "tnt T tsc=100 lost=0,1", kEnd));
  config.keep_calibration_on_overflow = true;
  EXPECT_THAT(run(trace, {}, true, config),
              ElementsAre("cbr small=2 no tsc=0 lost=0,0", "overflow ip=2000 tsc=100 lost=0,0",
                          "tnt T tsc=110 lost=0,0", kEnd));
}

constexpr pt::Errata kSkd010{.skd010 = true};
constexpr pt::Errata kApl11{.apl11 = true};
constexpr pt::Errata kApl12{.apl12 = true};
constexpr pt::Errata kBdm70{.bdm70 = true};

TEST(Skd010, FindsAnotherAddress) {
  EXPECT_THAT(run(on().ovf().pip(0xa000).tip(0x2000).tnt("T"), kSkd010),
              ElementsAre("overflow ip=2000", "tnt T", kEnd));
  EXPECT_THAT(run(on().ovf().vmcs(0xa000).fup(0x2000).tip(0x3000), kSkd010),
              ElementsAre("overflow ip=2000", "async branch ip=3000 at=2000", kEnd));
  EXPECT_THAT(run(on().ovf().mode_tsx(1).fup(0x2000).tip(0x3000), kSkd010),
              ElementsAre("overflow ip=2000", "tsx ip=2000 flags=100", "tip ip=3000", kEnd));
  EXPECT_THAT(run(on().ovf().mode_exec(1).pgd(0x2000).pge(0x3000), kSkd010),
              ElementsAre("overflow ip=none", "enabled ip=3000", kEnd));
  EXPECT_THAT(run(on().ovf().psb().fup(0x2000).psbend().tnt("T"), kSkd010),
              ElementsAre("overflow ip=2000", "enabled ip=2000 status", "tnt T", kEnd));
}

TEST(Skd010, KeepsTheTime) {
  EXPECT_THAT(run(on().tsc(1).ovf().pip(0xa000).tsc(2).tip(0x2000).tnt("T"), kSkd010, true),
              ElementsAre("overflow ip=2000 tsc=1 lost=0,0", "tnt T tsc=2 lost=0,0", kEnd));
}

TEST(Skd010, DoesNotApply) {
  EXPECT_THAT(run(on().ovf().pip(0xa000).pge(0x2000), kSkd010),
              ElementsAre("overflow ip=none", "paging payload=a000", "enabled ip=2000", kEnd));
  EXPECT_THAT(run(on().ovf().psb().psbend(), kSkd010),
              ElementsAre("overflow ip=none", "disabled ip=none status", kEnd));
  EXPECT_THAT(run(on().ovf().mode_tsx(0).mode_tsx(1).fup(0x2000), kSkd010),
              ElementsAre("overflow ip=none", "tsx ip=none", "tsx ip=none flags=100", kEnd));
  EXPECT_THAT(run(on().ovf().ptw(1, true).fup(0x2000), kSkd010),
              ElementsAre("overflow ip=none", "ptwrite ip=2000 payload=1 small=8", kEnd));
  // Nobody knows how many branches of a TNT come before the next address.
  EXPECT_THAT(run(on().ovf().tnt("T").tip(0x2000), kSkd010), ElementsAre(kBadContext));
}

TEST(Apl11, TakesTheDisable) {
  const PacketBytes trace = on().tsc(1).ovf().tsc(2).pgd(0x2000).pge(0x3000);
  EXPECT_THAT(run(trace), ElementsAre(kBadContext));
  EXPECT_THAT(run(trace, kApl11, true), ElementsAre("overflow ip=none tsc=1 lost=0,0",
                                                    "enabled ip=3000 tsc=2 lost=0,0", kEnd));
  EXPECT_THAT(run(on().ovf().tip(0x2000), kApl11), ElementsAre(kBadContext));
}

TEST(Apl12, IgnoresTheFup) {
  const PacketBytes enable = on().tsc(1).ovf().tsc(2).fup(0x2000).cyc(1).pge(0x3000);
  EXPECT_THAT(run(enable), ElementsAre("overflow ip=2000", "enabled ip=3000", kEnd));
  EXPECT_THAT(run(enable, kApl12, true), ElementsAre("overflow ip=none tsc=2 lost=0,0",
                                                     "enabled ip=3000 tsc=2 lost=0,1", kEnd));
  EXPECT_THAT(run(on().ovf().fup(0x2000).stop(), kApl12),
              ElementsAre("overflow ip=none", "stop", kEnd));
  EXPECT_THAT(run(on().ovf().fup(0x2000).psb().psbend(), kApl12),
              ElementsAre("overflow ip=none", "disabled ip=none status", kEnd));
}

TEST(Apl12, DoesNotApply) {
  EXPECT_THAT(run(on().ovf().fup(0x2000).tnt("T").pge(0x3000), kApl12),
              ElementsAre("overflow ip=2000", "tnt T", "enabled ip=3000", kEnd));
  EXPECT_THAT(run(on().ovf().fup(0x2000).psb().fup(0x2000).psbend(), kApl12),
              ElementsAre("overflow ip=2000", "enabled ip=2000 status", kEnd));
  EXPECT_THAT(run(on().ovf().fup(0x2000), kApl12), ElementsAre("overflow ip=2000", kEnd));
}

TEST(Bdm70, TheHeadersFupIsWrongBeforeAnEnable) {
  const PacketBytes trace = PacketBytes().pad().psb().fup(0x1000).psbend().cyc(1).pge(0x2000);
  const auto first_event = [&](const pt::Errata& errata, const PacketBytes& bytes) {
    pt::TraceConfig config;
    config.errata = errata;
    EventDecoder decoder(config, bytes.bytes());
    Event event;
    EXPECT_EQ(decoder.sync_forward(), Status::kOk);
    EXPECT_EQ(decoder.next(event), Status::kOk);
    return test::text(event);
  };
  EXPECT_EQ(first_event({}, trace), "enabled ip=1000 status");
  EXPECT_EQ(first_event(kBdm70, trace), "disabled ip=none status");
  EXPECT_EQ(first_event(kBdm70, on()), "enabled ip=1000 status");
  EXPECT_EQ(first_event(kBdm70, on().tnt("T").pge(0x2000)), "enabled ip=1000 status");
}

TEST(Skd007, AnOverflowWithinACyc) {
  const PacketBytes trace = on().raw({0x0f, 0x02, 0xf3}).fup(0x2000);
  EXPECT_THAT(run(trace, {.skd007 = true}), ElementsAre("overflow ip=2000", kEnd));
}

TEST(Skz84, ACorruptTma) {
  const PacketBytes trace = on().raw({0x02, 0x73, 1, 2, 3, 4, 5, 6}).tnt("T");
  EXPECT_THAT(run(trace), ElementsAre(std::string(text(Status::kBadPacket))));
  EXPECT_THAT(run(trace, {.skz84 = true}), ElementsAre("tnt T", kEnd));
  const PacketBytes behind = on().ovf().raw({0x02, 0x73, 1, 2, 3, 4, 5, 6}).fup(0x2000);
  EXPECT_THAT(run(behind, {.skz84 = true}), ElementsAre("overflow ip=2000", kEnd));
}

TEST(Sync, GoesFromPsbToPsb) {
  PacketBytes trace = PacketBytes().raw({1, 2, 3}).psb().psbend();
  const size_t second = trace.size();
  trace.psb().fup(0x2000).psbend();
  EventDecoder decoder({}, trace.bytes());
  Event event;
  EXPECT_EQ(decoder.next(event), Status::kNoSync);
  EXPECT_EQ(decoder.sync_forward(), Status::kOk);
  EXPECT_EQ(decoder.sync_offset(), 3);
  EXPECT_EQ(decoder.sync_forward(), Status::kOk);
  EXPECT_EQ(decoder.sync_offset(), second);
  EXPECT_EQ(decoder.sync_forward(), Status::kEndOfTrace);
  EXPECT_EQ(decoder.sync_set(3), Status::kOk);
  EXPECT_EQ(decoder.next(event), Status::kOk);
  EXPECT_EQ(test::text(event), "disabled ip=none status");
  EXPECT_EQ(decoder.sync_set(0), Status::kNoSync);
  EXPECT_EQ(decoder.sync_set(1000), Status::kEndOfTrace);
}

TEST(Sync, FindsAPsbThatAPacketSwallowed) {
  // A PTW cut by lost bytes takes the first eight bytes of the PSB for its payload.
  PacketBytes trace = PacketBytes().psb().fup(0x1000).psbend().raw({0x02, 0x32});
  const size_t second = trace.size();
  trace.psb().fup(0x2000).psbend();
  EventDecoder decoder({}, trace.bytes());
  EXPECT_EQ(decoder.sync_forward(), Status::kOk);
  Event event;
  EXPECT_EQ(decoder.next(event), Status::kOk);
  EXPECT_EQ(decoder.next(event), Status::kOk);
  EXPECT_EQ(test::text(event), "ptwrite ip=none payload=8202820282028202 small=8");
  EXPECT_EQ(decoder.sync_forward(), Status::kOk);
  EXPECT_EQ(decoder.sync_offset(), second);
}

TEST(Time, IsKnownBetweenEvents) {
  EventDecoder empty({}, {});
  uint64_t tsc = 0;
  uint32_t mtc = 0;
  uint32_t cyc = 0;
  uint32_t ratio = 0;
  EXPECT_FALSE(empty.time(tsc, mtc, cyc));
  EXPECT_FALSE(empty.core_bus_ratio(ratio));
  const PacketBytes trace = PacketBytes().psb().tsc(0x1234).cbr(0x17).fup(0x1000).psbend();
  EventDecoder decoder({}, trace.bytes());
  EXPECT_EQ(decoder.sync_forward(), Status::kOk);
  EXPECT_TRUE(decoder.time(tsc, mtc, cyc));
  EXPECT_EQ(tsc, 0x1234);
  EXPECT_TRUE(decoder.core_bus_ratio(ratio));
  EXPECT_EQ(ratio, 0x17);
}

TEST(FastPath, CleanOnlyWhereThePacketsBelongToNobody) {
  const PacketBytes trace =
      on().tnt("T").fup(0x1100).tip(0x2000).mode_exec(1).tip(0x3000).bbp(1).bip(1, 2).bep(false);
  EventDecoder decoder({}, trace.bytes());
  Event event;
  EXPECT_FALSE(decoder.clean()) << "not synchronised";
  EXPECT_EQ(decoder.sync_forward(), Status::kOk);
  EXPECT_FALSE(decoder.clean()) << "the PSB+ has events";
  const std::vector<bool> clean = {true,    // at the PSBEND, which means nothing more
                                   true,    // behind the TNT
                                   false,   // async branch: at the TIP
                                   false,   // tip: at the TIP
                                   false,   // exec mode: at the TIP
                                   false,   // block item
                                   false};  // block end, and the end of the trace
  std::vector<bool> seen;
  while (decoder.next(event) == Status::kOk) seen.push_back(decoder.clean());
  EXPECT_EQ(seen, clean);
}

// Somebody else takes packets; the decoder goes on as if it had taken them itself.
TEST(FastPath, SkipsWhatAnotherConsumed) {
  const PacketBytes before = on().tnt("T");
  PacketBytes trace = before;
  trace.tsc(0x100).mtc(3).tip(0x12345678).tnt("NN");
  const size_t stop = trace.size();
  trace.tip_16(0x1111).tnt("T");
  EventDecoder whole({}, trace.bytes());
  EventDecoder skipping({}, trace.bytes());
  Event event;
  for (EventDecoder* decoder : {&whole, &skipping}) {
    EXPECT_EQ(decoder->sync_forward(), Status::kOk);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(decoder->next(event), Status::kOk);
  }
  ASSERT_TRUE(skipping.clean());
  EXPECT_EQ(skipping.offset(), before.size());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(whole.next(event), Status::kOk);
  skipping.clock().tsc(0x100);
  skipping.clock().mtc(3);
  skipping.skip_to(stop, 0x12345678);
  EXPECT_EQ(skipping.offset(), whole.offset());
  EXPECT_EQ(skipping.last_ip(), whole.last_ip());
  for (;;) {
    Event other;
    const Status status = whole.next(event);
    EXPECT_EQ(skipping.next(other), status);
    if (status != Status::kOk) break;
    EXPECT_EQ(test::text(other), test::text(event));
    EXPECT_EQ(test::time_text(other), test::time_text(event));
  }
}

TEST(Copies, LookAheadIndependently) {
  const PacketBytes trace = on().fup(0x1100).pip(0xa000).vmcs(0xb000).tip(0x2000).tnt("T");
  EventDecoder decoder({}, trace.bytes());
  EXPECT_EQ(decoder.sync_forward(), Status::kOk);
  std::vector<std::string> whole;
  Event event;
  for (EventDecoder copy = decoder; copy.next(event) == Status::kOk;) {
    whole.push_back(test::text(event));
  }
  ASSERT_EQ(whole.size(), 5);
  for (size_t i = 0; i < whole.size(); ++i) {
    EventDecoder copy = decoder;
    for (size_t ahead = i; ahead < whole.size(); ++ahead) {
      ASSERT_EQ(copy.next(event), Status::kOk);
      EXPECT_EQ(test::text(event), whole[ahead]);
    }
    EXPECT_EQ(decoder.next(event), Status::kOk);
    EXPECT_EQ(test::text(event), whole[i]);
  }
}

// Whatever the bytes, every call ends, and an error either goes on or stays.
TEST(AnyBytes, EndAndAreSafe) {
  std::mt19937_64 random(7);
  const std::vector<int> openers = {0x02, 0x99, 0x59, 0x19, 0x7d, 0x6d,
                                    0x61, 0x71, 0x2d, 0x0c, 0xd9};
  size_t all_events = 0;
  for (int round = 0; round < 3000; ++round) {
    PacketBytes trace = PacketBytes().psb();
    if (round % 2 == 0) trace.fup(0x1000).psbend();
    for (int i = 0; i < 120; ++i) {
      const auto pick = random();
      trace.raw(
          {pick % 3 == 0 ? openers[pick / 3 % openers.size()] : static_cast<int>(pick >> 56)});
      if (pick % 40 == 5) trace.psb().fup(0x2000).psbend();
    }
    pt::TraceConfig config;
    config.mtc_freq = static_cast<uint8_t>(random());
    config.cpuid_0x15_eax = random() % 3 == 0 ? 0 : static_cast<uint32_t>(random());
    config.cpuid_0x15_ebx = static_cast<uint32_t>(random());
    config.nom_freq = static_cast<uint8_t>(random());
    config.interrupt_flag_events = round % 3 == 0;
    if (round % 5 == 0) {
      config.errata = {.bdm70 = true,
                       .skd007 = true,
                       .skd010 = true,
                       .skl168 = true,
                       .skz84 = true,
                       .apl11 = true,
                       .apl12 = true};
    }
    EventDecoder decoder(config, trace.bytes());
    size_t events = 0;
    Event event;
    while (decoder.sync_forward() != Status::kEndOfTrace) {
      while (decoder.next(event) == Status::kOk) ++events;
      ASSERT_LE(decoder.offset(), trace.size());
      for (int again = 0; again < 3; ++again) decoder.next(event);
    }
    ASSERT_LE(events, 20 * trace.size());
    all_events += events;
  }
  EXPECT_GE(all_events, 10'000);
}

}  // namespace
}  // namespace auxtrail::flow
