// The fast walk's hand-over, on real traces: at every place that is ready() a simple walk follows
// one TNT or TIP packet by itself, and what comes out must be what the flow decoder alone gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flow/flow_decoder.h"
#include "flow/flow_instruction.h"
#include "flow/testing/real_traces.h"
#include "pt/packet_reader.h"

namespace auxtrail::flow {
namespace {

// Addresses of branches with where they led, as far as blocks tell, and events.
struct Record {
  uint64_t from = 0;
  uint64_t to = 0;
  EventKind event = EventKind::kNone;
  bool operator==(const Record&) const = default;
};

class Recorder {
 public:
  void block(uint64_t first, uint64_t last, bool ends_in_branch) {
    if (open_from_ != 0) records.push_back({open_from_, first, EventKind::kNone});
    open_from_ = ends_in_branch ? last : 0;
  }
  void event(const Event& event) {
    if (event.status_update) return;
    records.push_back({open_from_, event.ip, event.kind});
    open_from_ = 0;
  }
  std::vector<Record> records;

 private:
  uint64_t open_from_ = 0;
};

// Follows the flow from where the decoder stands through one packet; false, and nothing changed, if
// that packet is not one it knows, or the code is not what it knows.
class OnePacketWalk {
 public:
  OnePacketWalk(FlowDecoder& flow, const CodeMemory& code, std::span<const std::byte> trace,
                Recorder& recorder)
      : flow_(flow), code_(code), trace_(trace), recorder_(recorder) {}

  bool walk() {
    pt::PacketReader reader(trace_);
    reader.seek(flow_.events().offset());
    pt::Packet packet;
    do {
      if (reader.next(packet) != pt::ReadStatus::kPacket) return false;
    } while (packet.kind == pt::PacketKind::kPad);
    const ReturnStack returns = flow_.return_stack();
    ip_ = first_ = flow_.ip();
    steps_.clear();
    if (!follow(packet)) {
      flow_.return_stack() = returns;
      return false;
    }
    for (const Step& step : steps_) recorder_.block(step.first, step.last, true);
    flow_.events().skip_to(reader.offset(), last_ip_);
    flow_.moved(ip_);
    return true;
  }

 private:
  struct Step {
    uint64_t first;
    uint64_t last;
  };

  bool follow(const pt::Packet& packet) {
    last_ip_ = flow_.events().last_ip();
    if (packet.kind == pt::PacketKind::kTip) return follow_tip(packet);
    if (packet.kind != pt::PacketKind::kTnt8 && packet.kind != pt::PacketKind::kTnt64) return false;
    for (int bit = packet.tnt_bits - 1; bit >= 0; --bit) {
      if (!to_branch()) return false;
      const bool taken = (packet.payload >> bit & 1) != 0;
      if (insn_.cls == InsnClass::kCondJump) {
        const uint64_t relative = taken ? static_cast<uint64_t>(insn_.relative) : 0;
        leave(ip_ + insn_.length + relative);
      } else {
        ReturnStack::Entry entry;
        const bool is_return = insn_.cls == InsnClass::kReturn;
        if (!is_return || !taken || !flow_.return_stack().pop(entry)) return false;
        leave(entry.ip);
      }
    }
    return true;
  }

  bool follow_tip(const pt::Packet& packet) {
    if (!to_branch() || insn_.cls == InsnClass::kCondJump) return false;
    switch (packet.ipc) {
      case pt::IpCompression::kUpdate16:
        last_ip_ = (last_ip_ & ~uint64_t{0xffff}) | (packet.payload & 0xffff);
        break;
      case pt::IpCompression::kUpdate32:
        last_ip_ = (last_ip_ & ~uint64_t{0xffffffff}) | (packet.payload & 0xffffffff);
        break;
      case pt::IpCompression::kSignExtend48:
        last_ip_ = static_cast<uint64_t>(static_cast<int64_t>(packet.payload << 16) >> 16);
        break;
      default:
        return false;
    }
    leave(last_ip_);
    return true;
  }

  // To the next branch that needs a packet.
  bool to_branch() {
    for (int steps = 0; steps < 10'000; ++steps) {
      uint8_t bytes[15];
      const size_t count = code_.read(ip_, bytes, sizeof(bytes));
      if (!decode_instruction(bytes, count, flow_.mode(), insn_)) return false;
      const bool is_call = insn_.cls == InsnClass::kCallIndirect ||
                           (insn_.cls == InsnClass::kCall && insn_.relative != 0);
      if (is_call) flow_.return_stack().push(ip_ + insn_.length);
      uint64_t next = 0;
      if (!next_ip(insn_, ip_, next)) return true;
      if (is_branch(insn_)) {
        leave(next);
      } else {
        ip_ = next;
      }
    }
    return false;
  }

  void leave(uint64_t to) {
    steps_.push_back({first_, ip_});
    ip_ = first_ = to;
  }

  FlowDecoder& flow_;
  const CodeMemory& code_;
  std::span<const std::byte> trace_;
  Recorder& recorder_;
  std::vector<Step> steps_;
  Instruction insn_;
  uint64_t ip_ = 0;
  uint64_t first_ = 0;
  uint64_t last_ip_ = 0;
};

std::vector<Record> decode(const test::RealTrace& real, bool with_walk, size_t& walked) {
  std::deque<std::vector<uint8_t>> storage;
  const CodeMemory code = real.code(storage);
  FlowDecoder flow(real.config(true), real.trace, code);
  Recorder recorder;
  OnePacketWalk walk(flow, code, real.trace, recorder);
  FlowItem item;
  for (auto kind = flow.next(item); kind != FlowItemKind::kEnd; kind = flow.next(item)) {
    if (kind == FlowItemKind::kBlock) {
      recorder.block(item.block.first_ip, item.block.last_ip, is_branch(item.block.last));
    }
    if (kind == FlowItemKind::kEvent) recorder.event(item.event);
    while (with_walk && flow.ready() && walk.walk()) ++walked;
  }
  return recorder.records;
}

class Handover : public testing::TestWithParam<const char*> {};

TEST_P(Handover, GivesTheSameFlow) {
  const auto real = test::kvm_trace(GetParam());
  if (!real.obstacle.empty()) GTEST_SKIP() << real.obstacle;
  size_t walked = 0;
  const auto expected = decode(real, false, walked);
  ASSERT_EQ(walked, 0);
  const auto records = decode(real, true, walked);
  EXPECT_GT(walked, 100);
  ASSERT_GT(expected.size(), 1000);
  const auto [ours, theirs] =
      std::mismatch(records.begin(), records.end(), expected.begin(), expected.end());
  ASSERT_TRUE(ours == records.end() && theirs == expected.end())
      << "record " << ours - records.begin() << " of " << expected.size();
}

INSTANTIATE_TEST_SUITE_P(All, Handover, testing::Values("Unzip", "foo", "avscript_32"));

}  // namespace
}  // namespace auxtrail::flow
