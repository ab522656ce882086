// FlowDecoder beyond what libipt has a word on: the fast walk's hand-over, code that comes late,
// endless loops, hostile bytes.
#include "flow/flow_decoder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "flow/flow_text.h"
#include "flow/testing/packet_bytes.h"

namespace auxtrail::flow {
namespace {

using test::PacketBytes;
using testing::ElementsAre;

constexpr uint64_t kBase = 0x1000;
constexpr int k64Bit = 1;

PacketBytes start(uint64_t ip) {
  PacketBytes packets;
  packets.psb().fup(ip).mode_exec(k64Bit).psbend();
  return packets;
}

// Code at kBase.
struct Code {
  explicit Code(std::vector<uint8_t> bytes) : storage(std::move(bytes)) {
    memory.add(kBase, storage);
  }
  std::vector<uint8_t> storage;
  CodeMemory memory;
};

// "1000+2" for a block, "enabled" and so on for an event, "! text" for an error.
std::string line(FlowItemKind kind, const FlowItem& item) {
  switch (kind) {
    case FlowItemKind::kBlock:
      return fmt::format("{:x}+{}", item.block.first_ip, item.block.instructions);
    case FlowItemKind::kEvent:
      return text(item.event, item.resumed, {});
    case FlowItemKind::kError:
      return fmt::format("! {} at {:x}", text(item.error), item.ip);
    case FlowItemKind::kEnd:
      return "end";
  }
  return "?";
}

std::vector<std::string> lines(FlowDecoder& flow) {
  std::vector<std::string> all;
  FlowItem item;
  for (auto kind = flow.next(item); kind != FlowItemKind::kEnd; kind = flow.next(item)) {
    const bool repeats = kind == FlowItemKind::kEvent && item.event.status_update;
    if (!repeats) all.push_back(line(kind, item));
  }
  return all;
}

// 1000 jle 1002   1002 nop   1003 jmp 1000
const std::vector<uint8_t> kLoop = {0x7e, 0x00, 0x90, 0xeb, 0xfb};

TEST(FlowDecoder, IsReadyWhereAPacketIsNeededThatNobodyRead) {
  const Code code(kLoop);
  auto packets = start(kBase).tnt("NN").tnt("N").fup(0x1003).pgd_no_ip();
  FlowDecoder flow({}, packets.bytes(), code.memory);
  FlowItem item;
  EXPECT_FALSE(flow.ready()) << "not on the trace yet";
  while (flow.next(item) == FlowItemKind::kEvent) {
  }
  EXPECT_EQ(item.block.last_ip, 0x1000);
  EXPECT_FALSE(flow.ready()) << "one bit is left";
  ASSERT_EQ(flow.next(item), FlowItemKind::kBlock);
  EXPECT_EQ(item.block.last_ip, 0x1003);
  EXPECT_FALSE(flow.ready());
  ASSERT_EQ(flow.next(item), FlowItemKind::kBlock);
  EXPECT_TRUE(flow.ready()) << "the packet is used up, and the next one is nobody's";
  EXPECT_EQ(flow.ip(), 0x1002);
  ASSERT_EQ(flow.next(item), FlowItemKind::kBlock);
  EXPECT_EQ(item.block.last_ip, 0x1003) << "the next TNT packet had to be read for it";
  EXPECT_FALSE(flow.ready());
  EXPECT_THAT(lines(flow), ElementsAre("1000+1", "1002+1", "disabled"));
  EXPECT_FALSE(flow.ready()) << "tracing is off";
}

TEST(FlowDecoder, GoesOnWhereSomebodyElseLeftTheFlow) {
  const Code code(kLoop);
  auto packets = start(kBase).tnt("N");
  const size_t handed_over = packets.size();
  packets.tnt("NTN");
  const size_t taken_up = packets.size();
  packets.fup(0x1003).pgd_no_ip();
  FlowDecoder flow({}, packets.bytes(), code.memory);
  FlowItem item;
  while (flow.next(item) != FlowItemKind::kBlock) {
  }
  ASSERT_TRUE(flow.ready());
  ASSERT_EQ(flow.events().offset(), handed_over);
  flow.events().skip_to(taken_up, flow.events().last_ip());
  flow.moved(0x1002);
  EXPECT_THAT(lines(flow), ElementsAre("1002+1", "disabled"));
}

TEST(FlowDecoder, SharesTheReturnStack) {
  const Code code({0xff, 0xe0, 0xc3, 0x90, 0x90, 0x90});  // jmp rax, ret, nop ...
  auto packets = start(kBase).tip(0x1003);
  packets.tnt("T").fup(0x1005).pgd_no_ip();
  FlowDecoder flow({}, packets.bytes(), code.memory);
  FlowItem item;
  while (flow.next(item) != FlowItemKind::kBlock) {
  }
  ASSERT_TRUE(flow.ready());
  flow.return_stack().push(0x1004);
  flow.moved(0x1002);
  EXPECT_THAT(lines(flow), ElementsAre("1002+1", "1004+1", "disabled"));
}

TEST(FlowDecoder, MissingCodeMayComeLate) {
  const Code code({0x90, 0xff, 0xe0});  // nop, jmp rax
  auto packets = start(kBase).tip(0x2000).fup(0x2001).pgd_no_ip();
  FlowDecoder flow({}, packets.bytes(), code.memory);
  FlowItem item;
  while (flow.next(item) != FlowItemKind::kError) {
  }
  EXPECT_EQ(item.error, Status::kNoMap);
  EXPECT_EQ(item.ip, 0x2000);
  CodeMemory more = code.memory;
  const std::vector<uint8_t> nops = {0x90, 0x90};
  more.add(0x2000, nops);
  flow.set_code(more);
  flow.retry();
  EXPECT_THAT(lines(flow), ElementsAre("2000+1", "disabled"));
}

TEST(FlowDecoder, WithoutTheCodeTheFlowGoesOnAtTheNextAddress) {
  const Code code({0xff, 0xe0, 0x90, 0x90});  // jmp rax, nop, nop
  auto packets = start(kBase).tip(0x2000).tnt("TN").tip(0x1002).fup(0x1003).pgd_no_ip();
  FlowDecoder flow({}, packets.bytes(), code.memory);
  EXPECT_THAT(lines(flow), ElementsAre("1000+1", "! no memory mapped at this address at 2000",
                                       "1002+1", "disabled"));
}

TEST(FlowDecoder, OrAtTheNextPsbOnlyIfSoWanted) {
  const Code code({0xff, 0xe0, 0x90, 0x90});
  auto packets = start(kBase).tip(0x2000).tip(0x1002).psb().fup(0x1003).mode_exec(k64Bit).psbend();
  packets.fup(0x1003).pgd_no_ip();
  FlowDecoder flow({}, packets.bytes(), code.memory);
  flow.set_resync(false);
  EXPECT_THAT(lines(flow),
              ElementsAre("1000+1", "! no memory mapped at this address at 2000", "disabled"));
}

TEST(FlowDecoder, AnEventAtAnUnknownPlaceIsNotTriedForever) {
  const Code code({0xff, 0xe0});
  auto packets = start(kBase).tip(0x2000).ptw(7, true).fup(0x3000).ptw(8, true).fup(0x4000);
  FlowDecoder flow({}, packets.bytes(), code.memory);
  EXPECT_THAT(lines(flow), ElementsAre("1000+1", "! no memory mapped at this address at 2000",
                                       "! no memory mapped at this address at 3000",
                                       "! no memory mapped at this address at 4000"));
}

TEST(FlowDecoder, AnEndlessLoopIsAnError) {
  const Code code({0xeb, 0xfe, 0x90, 0x90});  // jmp 1000
  auto packets = start(kBase).tip(0x1002).fup(0x1003).pgd_no_ip();
  FlowDecoder flow({}, packets.bytes(), code.memory);
  FlowItem item;
  uint64_t blocks = 0;
  while (flow.next(item) != FlowItemKind::kError) ++blocks;
  EXPECT_EQ(item.error, Status::kEndlessLoop);
  EXPECT_GT(blocks, 99'999);
  EXPECT_LT(blocks, 200'000);
  EXPECT_THAT(lines(flow), ElementsAre("1002+1", "disabled"));
}

TEST(FlowDecoder, PebsBlocksLieBesideTheFlow) {
  const Code code(kLoop);
  auto packets = start(kBase).tnt("N").bbp(1).bip(2, 0xab).bep(true).fup(0x1003).fup(0x1003);
  packets.pgd_no_ip();
  FlowDecoder flow({}, packets.bytes(), code.memory);
  EXPECT_THAT(lines(flow),
              ElementsAre("1000+1", "block 1 item 2: ab", "1002+1", "block 1 end", "disabled"));
}

// Whatever the bytes: decoding ends, and every item costs trace or is bounded.
TEST(FlowDecoder, AnyBytesEnd) {
  std::mt19937 random(7);
  auto packets = start(kBase).tnt("NTNTNT").tip(kBase).ptw(1, true).fup(0x1002).tnt("NN");
  packets.mode_tsx(1).fup(0x1000).mode_tsx(2).fup(0x1003).tip(0x1002).trig(1, 2).exstop(true);
  packets.fup(0x1003).cfe(1, 14).fup(0x1002).tip(kBase).ovf().fup(kBase).tnt("NTN").pgd(0x1000);
  packets.pge(0x1002).psb().fup(0x1002).mode_exec(k64Bit).psbend().tnt("NTNN").fup(0x1003);
  packets.pip(0x5000).vmcs(0x7000).tip(0x1000).tnt("T").pgd_no_ip();
  for (int round = 0; round < 1000; ++round) {
    std::vector<std::byte> trace(packets.bytes().begin(), packets.bytes().end());
    trace.insert(trace.end(), packets.bytes().begin(), packets.bytes().end());
    std::vector<uint8_t> bytes = kLoop;
    for (int damage = static_cast<int>(random() % 8); damage > 0; --damage) {
      trace[random() % trace.size()] = static_cast<std::byte>(random());
      bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
    }
    const Code code(bytes);
    pt::TraceConfig config;
    const auto bit = [&] { return random() % 2 != 0; };
    config.errata = {bit(), bit(), bit(), bit(), bit(), bit(), bit(), bit(), bit(), bit()};
    config.tick_events = bit();
    config.ranges[0] = {pt::AddressRange::Kind::kFilter, 0x1000, 0x1002};
    FlowDecoder flow(config, trace, code.memory);
    flow.set_resync(bit());
    FlowItem item;
    size_t items = 0;
    size_t errors = 0;
    for (auto kind = flow.next(item); kind != FlowItemKind::kEnd; kind = flow.next(item)) {
      errors += kind == FlowItemKind::kError;
      ASSERT_LT(++items, 3'000'000) << "round " << round;
      ASSERT_LT(errors, trace.size()) << "round " << round;
    }
    EXPECT_EQ(flow.next(item), FlowItemKind::kEnd) << "the end is the end";
  }
}

}  // namespace
}  // namespace auxtrail::flow
