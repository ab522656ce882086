// What each packet, and each group of packets that belong together, becomes: one test per
// behaviour. The expectations are libipt 2.2's, read from its event decoder; where its older
// brother is installed, event_decoder_oracle_test.cc asks it.
#include "flow/event_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "flow/testing/event_text.h"
#include "flow/testing/packet_bytes.h"

namespace auxtrail::flow {
namespace {

using test::PacketBytes;
using testing::ElementsAre;

struct Outcome {
  std::vector<std::string> events;
  Status end = Status::kOk;
  size_t offset = 0;
};

// All events from the first PSB to the first error, the end of the trace among them.
Outcome decode(const PacketBytes& trace, const pt::TraceConfig& config = {},
               bool with_time = false) {
  EventDecoder decoder(config, trace.bytes());
  Outcome outcome;
  outcome.end = decoder.sync_forward();
  while (outcome.end == Status::kOk) {
    Event event;
    outcome.end = decoder.next(event);
    if (outcome.end != Status::kOk) break;
    outcome.events.push_back(test::text(event) + (with_time ? test::time_text(event) : ""));
  }
  outcome.offset = decoder.offset();
  return outcome;
}

// A PSB+ with tracing on at 0x1000, or off.
PacketBytes on() { return PacketBytes().psb().fup(0x1000).psbend(); }
PacketBytes off() { return PacketBytes().psb().psbend(); }
constexpr const char* kOn = "enabled ip=1000 status";
constexpr const char* kOff = "disabled ip=none status";

// The events behind the PSB+'s, where the trace must end well.
std::vector<std::string> events(const PacketBytes& trace, const pt::TraceConfig& config = {}) {
  Outcome outcome = decode(trace, config);
  EXPECT_EQ(text(outcome.end), text(Status::kEndOfTrace));
  EXPECT_FALSE(outcome.events.empty());
  if (!outcome.events.empty()) outcome.events.erase(outcome.events.begin());
  return outcome.events;
}

void expect_failure(const PacketBytes& trace, Status status, size_t offset,
                    const pt::TraceConfig& config = {}) {
  const Outcome outcome = decode(trace, config);
  EXPECT_EQ(text(outcome.end), text(status));
  EXPECT_EQ(outcome.offset, offset);
}

TEST(PsbHeader, TellsTheStateAsStatusUpdates) {
  const PacketBytes trace = PacketBytes()
                                .psb()
                                .mode_exec(1)
                                .pip(0xa000, true)
                                .vmcs(0xb000)
                                .mode_tsx(1)
                                .mnt(7)
                                .cbr(9)
                                .fup(0x1000)
                                .psbend();
  EXPECT_THAT(decode(trace).events,
              ElementsAre(kOn, "exec mode ip=1000 mode=64 status",
                          "async paging ip=1000 payload=a000 flags=100 status",
                          "async vmcs ip=1000 payload=b000 status", "tsx ip=1000 flags=100 status",
                          "mnt payload=7", "cbr small=9 status"));
}

TEST(PsbHeader, WithoutFupMeansOff) {
  const PacketBytes trace = PacketBytes().psb().mode_exec(2).psbend();
  EXPECT_THAT(decode(trace).events, ElementsAre(kOff, "exec mode ip=none mode=32 status"));
  EXPECT_THAT(decode(PacketBytes().psb().fup_no_ip().psbend()).events, ElementsAre(kOff));
}

TEST(PsbHeader, EndsWithAnOverflow) {
  const PacketBytes known = PacketBytes().psb().fup(0x1000).ovf().fup(0x2000);
  EXPECT_THAT(decode(known).events, ElementsAre(kOn, "overflow ip=2000"));
  // Without a FUP nobody knows whether tracing was on.
  const PacketBytes unknown = PacketBytes().psb().mode_exec(1).ovf().fup(0x2000);
  EXPECT_THAT(decode(unknown).events,
              ElementsAre("exec mode ip=none mode=64 status", "overflow ip=2000"));
}

TEST(PsbHeader, HoldsNothingElse) {
  expect_failure(PacketBytes().psb().tnt("T").psbend(), Status::kBadContext, 16);
  expect_failure(PacketBytes().psb().tip(1).psbend(), Status::kBadContext, 16);
  expect_failure(PacketBytes().psb().bbp(1).psbend(), Status::kBadContext, 16);
  expect_failure(PacketBytes().psb(), Status::kEndOfTrace, 16);
  expect_failure(PacketBytes().psb().raw({0xc9}), Status::kBadOpcode, 16);
}

TEST(PsbHeader, ForgetsTheLastIp) {
  PacketBytes trace = PacketBytes().psb().fup(0x12345678).psbend().psb();
  trace.raw({0x3d, 0x00, 0x10}).psbend();  // FUP with two bytes
  EXPECT_THAT(decode(trace).events, ElementsAre("enabled ip=12345678 status", kOn));
}

TEST(PsbHeader, ContradictsWhatIsKnown) {
  PacketBytes trace = PacketBytes().psb().mode_exec(1).fup(0x1000).psbend();
  const size_t psb_plus = trace.size();
  trace.psb().mode_exec(2).fup(0x1000).psbend();
  expect_failure(trace, Status::kBadStatusUpdate, psb_plus + 16);

  // The interrupt flag only counts if its changes are reported.
  PacketBytes flag = PacketBytes().psb().mode_exec(1).fup(0x1000).psbend();
  flag.psb().mode_exec(5).fup(0x1000).psbend();
  EXPECT_THAT(decode(flag).events, testing::SizeIs(4));
  pt::TraceConfig config;
  config.interrupt_flag_events = true;
  expect_failure(flag, Status::kBadStatusUpdate, psb_plus + 16, config);
}

TEST(PsbHeader, MustNotInterruptACompoundEvent) {
  PacketBytes trace = on().mwait(1, 2);
  const size_t psb = trace.size();
  trace.psb().psbend();
  expect_failure(trace, Status::kBadContext, psb);
}

TEST(Branches, TntAndTip) {
  EXPECT_THAT(events(on().tnt("TNTTN").tip(0x2000).tip_16(0x3333).tip_no_ip()),
              ElementsAre("tnt TNTTN", "tip ip=2000", "tip ip=3333", "tip ip=none"));
  // A packet without an address does not change the last IP.
  EXPECT_THAT(events(on().tip(0x12345678).tip_no_ip().tip_16(0x1111)),
              ElementsAre("tip ip=12345678", "tip ip=none", "tip ip=12341111"));
}

TEST(Branches, NeedTracingOn) {
  expect_failure(off().tnt("T"), Status::kBadContext, off().size());
  expect_failure(off().tip(0x1000), Status::kBadContext, off().size());
}

TEST(Branches, EnableAndDisable) {
  EXPECT_THAT(events(on().pgd(0x2000).pge(0x3000).pgd_no_ip().stop()),
              ElementsAre("disabled ip=2000", "enabled ip=3000", "disabled ip=none", "stop"));
}

TEST(Branches, AsynchronousOnes) {
  EXPECT_THAT(events(on().fup(0x1100).tip(0x2000)), ElementsAre("async branch ip=2000 at=1100"));
  EXPECT_THAT(events(on().fup(0x1100).pgd(0x2000)), ElementsAre("async disabled ip=2000 at=1100"));
  EXPECT_THAT(events(on().fup(0x1100).pgd_no_ip()), ElementsAre("async disabled ip=none at=1100"));
  expect_failure(on().fup_no_ip().tip(0x2000), Status::kIpSuppressed, on().size());
  expect_failure(off().fup_no_ip(), Status::kNoIp, off().size());
}

TEST(Branches, TwoFupsForOneTipAreNonsense) {
  const PacketBytes trace = on().fup(0x1100).fup(0x1200).tip(0x2000);
  const Outcome outcome = decode(trace);
  EXPECT_THAT(outcome.events, ElementsAre(kOn, "async branch ip=2000 at=1100"));
  EXPECT_EQ(text(outcome.end), text(Status::kInternal));
  EXPECT_EQ(outcome.offset, trace.size() - 7);
}

TEST(Context, PagingAndVmcs) {
  EXPECT_THAT(events(on().pip(0xa000).vmcs(0xb000)),
              ElementsAre("paging payload=a000", "vmcs payload=b000"));
  // Between FUP and TIP they belong to the branch; the VMCS comes first in either order.
  const std::array<std::string, 3> both = {"async branch ip=2000 at=1100",
                                           "async vmcs ip=2000 payload=b000",
                                           "async paging ip=2000 payload=a000 flags=100"};
  EXPECT_THAT(events(on().fup(0x1100).pip(0xa000, true).vmcs(0xb000).tip(0x2000)),
              testing::ElementsAreArray(both));
  EXPECT_THAT(events(on().fup(0x1100).vmcs(0xb000).pip(0xa000, true).tip(0x2000)),
              testing::ElementsAreArray(both));
  EXPECT_THAT(events(on().fup(0x1100).pip(0xa000).pgd(0x2000)),
              ElementsAre("async disabled ip=2000 at=1100", "async paging ip=none payload=a000"));
  expect_failure(off().fup(0x1100).pip(0xa000).pge(0x2000), Status::kBadContext,
                 off().size() + 7 + 8);
}

TEST(Context, ExecMode) {
  EXPECT_THAT(events(on().mode_exec(1).tip(0x2000)),
              ElementsAre("tip ip=2000", "exec mode ip=2000 mode=64"));
  EXPECT_THAT(events(off().mode_exec(2).pge(0x2000)),
              ElementsAre("enabled ip=2000", "exec mode ip=2000 mode=32"));
  EXPECT_THAT(events(on().mode_exec(0).fup(0x1100).tip(0x2000)),
              ElementsAre("exec mode ip=1100 mode=16", "tip ip=2000"))
      << "the FUP belongs to MODE.Exec";
  EXPECT_THAT(events(on().fup(0x1100).mode_exec(3).tip(0x2000)),
              ElementsAre("async branch ip=2000 at=1100", "exec mode ip=2000"));
  EXPECT_THAT(events(on().mode_exec(1).pgd(0x2000)),
              ElementsAre("exec mode ip=none mode=64", "disabled ip=2000"));
}

TEST(Context, AnUnchangedExecModeIsNoEventButBinds) {
  const PacketBytes trace =
      on().mode_exec(1).tip(0x2000).mode_exec(1).fup(0x2100).mode_exec(5).tip(0x3000);
  EXPECT_THAT(events(trace),
              ElementsAre("tip ip=2000", "exec mode ip=2000 mode=64", "tip ip=3000"));
  // Also where tracing ends.
  EXPECT_THAT(events(on().mode_exec(1).tip(0x2000).mode_exec(1).pgd(0x3000)),
              ElementsAre("tip ip=2000", "exec mode ip=2000 mode=64", "disabled ip=3000"));
}

TEST(Context, InterruptFlag) {
  pt::TraceConfig config;
  config.interrupt_flag_events = true;
  const PacketBytes trace = PacketBytes().psb().mode_exec(5).psbend().mode_exec(1).fup(0x1100);
  EXPECT_THAT(events(trace, config),
              ElementsAre("exec mode ip=none mode=64 status",
                          "interrupt flag ip=none flags=100 status", "interrupt flag ip=1100"));
  EXPECT_THAT(events(trace), ElementsAre("exec mode ip=none mode=64 status"));
  EXPECT_THAT(
      events(on().mode_exec(6).tip(0x2000), config),
      ElementsAre("tip ip=2000", "exec mode ip=2000 mode=32", "interrupt flag ip=2000 flags=100"));
}

TEST(Context, Transactions) {
  EXPECT_THAT(events(on().mode_tsx(1).fup(0x1100).mode_tsx(0).fup(0x1200)),
              ElementsAre("tsx ip=1100 flags=100", "tsx ip=1200"));
  // An abort is a branch too.
  EXPECT_THAT(events(on().mode_tsx(2).fup(0x1100).tip(0x2000)),
              ElementsAre("tsx ip=1100 flags=010", "async branch ip=2000 at=1100"));
  EXPECT_THAT(events(on().mode_tsx(2).fup(0x1100).pgd(0x2000)),
              ElementsAre("tsx ip=1100 flags=010", "async disabled ip=2000 at=1100"));
  EXPECT_THAT(events(off().mode_tsx(0)), ElementsAre("tsx ip=none"));
}

TEST(Platform, PowerStates) {
  EXPECT_THAT(events(on().mwait(1, 2).exstop(true).fup(0x1100).pwre(1, 2, true).pwrx(3, 4, 5)),
              ElementsAre("mwait ip=1100 payload=1 payload2=2", "exstop ip=1100",
                          "pwre small=1 small2=2 flags=100", "pwrx small=3 small2=4 flags=110"));
  EXPECT_THAT(events(on().mwait(1, 2).exstop(false)),
              ElementsAre("mwait ip=none payload=1 payload2=2", "exstop ip=none"));
  EXPECT_THAT(events(on().exstop(true).fup(0x1100).tip(0x2000)),
              ElementsAre("exstop ip=1100", "tip ip=2000"));
  // A waiting MWAIT is no part of an asynchronous branch.
  EXPECT_THAT(
      events(on().mwait(1, 0).fup(0x1100).tip(0x2000).exstop(false)),
      ElementsAre("async branch ip=2000 at=1100", "mwait ip=none payload=1", "exstop ip=none"));
}

// libipt's tests mwait-pwre-*, ovf-pwre-*, tip_pgd-mwait-*.
TEST(Platform, APwreWaitsForItsPwrx) {
  EXPECT_THAT(events(off().mwait(1, 0).pwre(1, 2, false).exstop(false).pwrx(3, 4, 1)),
              ElementsAre("mwait ip=none payload=1", "exstop ip=none", "pwre small=1 small2=2",
                          "pwrx small=3 small2=4 flags=100"));
  EXPECT_THAT(events(on().mwait(1, 0).pwre(1, 2, false).exstop(true).fup(0x1100).pwrx(3, 4, 1)),
              ElementsAre("mwait ip=1100 payload=1", "exstop ip=1100", "pwre small=1 small2=2",
                          "pwrx small=3 small2=4 flags=100"));
  // Or for whatever shows that none comes.
  const std::string pwre = "pwre small=1 small2=2";
  EXPECT_THAT(events(on().pwre(1, 2, false).cbr(3).pwre(1, 2, false).mnt(1).tnt("T")),
              ElementsAre("cbr small=3", pwre, "mnt payload=1", pwre, "tnt T"));
  EXPECT_THAT(events(on().pwre(1, 2, false).tip(0x2000)), ElementsAre(pwre, "tip ip=2000"));
  EXPECT_THAT(events(on().pwre(1, 2, false).psb().psbend()), ElementsAre(pwre, kOff));
  EXPECT_THAT(events(on().pwre(1, 2, false)), ElementsAre(pwre));
  // Its time is its own.
  const Outcome timed =
      decode(off().tsc(1).pwre(1, 2, false).tsc(2).exstop(false).pwrx(3, 4, 1), {}, true);
  EXPECT_THAT(timed.events, ElementsAre(std::string(kOff) + " no tsc=0 lost=0,0",
                                        "exstop ip=none tsc=2 lost=0,0", pwre + " tsc=1 lost=0,0",
                                        "pwrx small=3 small2=4 flags=100 tsc=2 lost=0,0"));
}

TEST(Platform, Ptwrite) {
  EXPECT_THAT(
      events(on().ptw(0xabcd, true).fup(0x1100).ptw(0xbcde, false)),
      ElementsAre("ptwrite ip=1100 payload=abcd small=8", "ptwrite ip=none payload=bcde small=8"));
}

TEST(Platform, SeveralEventsShareAFup) {
  EXPECT_THAT(
      events(on().ptw(1, true).mode_tsx(1).exstop(true).fup(0x1100).fup(0x1200).tip(0x2000)),
      ElementsAre("ptwrite ip=1100 payload=1 small=8", "tsx ip=1100 flags=100", "exstop ip=1100",
                  "async branch ip=2000 at=1200"));
}

TEST(Platform, MoreThanTheQueueHolds) {
  PacketBytes trace = on();
  for (size_t i = 0; i < PendingEvents::kCapacity; ++i) trace.mwait(1, 0);
  EXPECT_EQ(text(decode(trace).end), text(Status::kEndOfTrace));
  const size_t offset = trace.size();
  expect_failure(trace.mwait(1, 0), Status::kTooManyEvents, offset);
}

TEST(Platform, Triggers) {
  EXPECT_THAT(events(on().trig(5).trig(6, 3).trig(7, 0, true).fup(0x1100)),
              ElementsAre("trigger ip=none small=5", "trigger payload=3 small=6 flags=100",
                          "trigger ip=1100 small=7 flags=100"));
  expect_failure(on().trig(7, 1, true).fup(0x1100), Status::kBadPacket, on().size());
  expect_failure(off().trig(7, 1), Status::kBadPacket, off().size());
  EXPECT_THAT(events(off().trig(7, 0)), ElementsAre("trigger small=7 flags=100"));
}

TEST(Platform, PebsBlocks) {
  EXPECT_THAT(events(on().bbp(4).bip(1, 0xab).bip(2, 0xcd).bep(true).fup(0x1100).tip(0x2000)),
              ElementsAre("block item ip=none payload=ab small=4 small2=1",
                          "block item ip=none payload=cd small=4 small2=2",
                          "block end ip=1100 small=4", "tip ip=2000"));
  EXPECT_THAT(
      events(on().bbp(4).bip(1, 0xab).bep(false)),
      ElementsAre("block item ip=none payload=ab small=4 small2=1", "block end ip=none small=4"));
  // An overflow ends the group: the byte after it is a TNT again.
  EXPECT_THAT(events(on().bbp(4).ovf().fup(0x2000).raw({0x0c})),
              ElementsAre("overflow ip=2000", "tnt TN"));
}

struct CfeCase {
  int type;
  const char* name;
  bool shares_fup;
  bool has_vector;
};

TEST(EventTrace, EveryType) {
  const std::vector<CfeCase> types = {
      {1, "interrupt", true, true},   {2, "iret", false, false},    {3, "smi", true, false},
      {6, "init", true, false},       {7, "vmentry", false, false}, {8, "vmexit", true, false},
      {10, "shutdown", false, false}, {12, "uintr", true, true},    {13, "uiret", false, false},
      {14, "swintr", true, true},     {15, "syscall", true, false}};
  for (const CfeCase& type : types) {
    SCOPED_TRACE(type.name);
    const std::string vector = type.has_vector ? " small=e" : "";
    const std::string title = type.name;
    EXPECT_THAT(events(on().cfe(type.type, 14, true).fup(0x1100)),
                ElementsAre(title + " ip=1100" + vector));
    EXPECT_THAT(events(off().cfe(type.type, 14)), ElementsAre(title + " ip=none" + vector));
    if (type.shares_fup) {
      EXPECT_THAT(events(on().cfe(type.type, 14).fup(0x1100).tip(0x2000)),
                  ElementsAre(title + " ip=1100" + vector, "async branch ip=2000 at=1100"));
    } else {
      EXPECT_THAT(events(on().cfe(type.type, 14)), ElementsAre(title + " ip=none" + vector));
    }
  }
}

TEST(EventTrace, WithoutAddresses) {
  EXPECT_THAT(events(on().cfe(4).fup(0x1100).tip(0x2000)),
              ElementsAre("rsm ip=none", "async branch ip=2000 at=1100"));
  EXPECT_THAT(events(off().cfe(4).cfe(5, 0xce)),
              ElementsAre("rsm ip=none", "sipi ip=none small=ce"));
  expect_failure(on().cfe(4, 0, true), Status::kBadPacket, on().size());
  expect_failure(off().cfe(5, 1, true), Status::kBadPacket, off().size());
}

TEST(EventTrace, MoreData) {
  EXPECT_THAT(events(on().evd(0, 0xf00baa).cfe(1, 14, true).fup(0x1100)),
              ElementsAre("interrupt ip=1100 payload=f00baa small=e flags=100"));
  EXPECT_THAT(events(on().evd(1, 0xf00).evd(2, 0xbaa).cfe(9, 14, true).fup(0x1100)),
              ElementsAre("vmexit ip=1100 payload=baa payload2=f00 small=e flags=111"));
  EXPECT_THAT(events(off().evd(2, 10).cfe(8)), ElementsAre("vmexit ip=none payload=a flags=010"));
  // Unknown types are skipped.
  EXPECT_THAT(events(on().evd(31, 1).cfe(1, 128, true).fup(0x1100)),
              ElementsAre("interrupt ip=1100 small=80"));
}

TEST(EventTrace, DataOfAnotherEvent) {
  const size_t cfe = on().size() + 11;
  expect_failure(on().evd(0, 1).cfe(2), Status::kBadContext, cfe);
  expect_failure(on().evd(1, 1).cfe(1, 14), Status::kBadContext, cfe);
  expect_failure(on().evd(2, 1).cfe(4), Status::kBadContext, cfe);
  expect_failure(on().evd(2, 1).evd(0, 1), Status::kBadContext, cfe);
  expect_failure(on().evd(0, 1).evd(1, 1), Status::kBadContext, cfe);
  expect_failure(on().evd(1, 1).evd(1, 1), Status::kBadContext, cfe);
  expect_failure(on().evd(2, 1).evd(2, 1), Status::kBadContext, cfe);
  expect_failure(on().evd(2, 1).cfe(31), Status::kInternal, cfe);
}

TEST(EventTrace, AnUnknownTypeTakesItsFup) {
  EXPECT_THAT(events(on().cfe(31, 0, true).fup(0x1100).cfe(11).tip(0x2000)),
              ElementsAre("tip ip=2000"));
}

}  // namespace
}  // namespace auxtrail::flow
