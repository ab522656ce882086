// The fast walk: follows TNT and TIP packets through a CodeGraph.
//
// Takes the flow over from flow::FlowDecoder where tracing is on and nothing is pending, and goes
// on as long as the packets are TNT, TIP, padding, timing, a PSB+ that says nothing new, or a
// filter that is left and entered again, and the graph knows the way. What it does not know (FUP,
// OVF, far branches, errors of every kind) it leaves untouched: it stops before it, at a state that
// the flow decoder can go on from, down to the TNT bits that are left over.
//
// What becomes of the flow is the template's Output: every branch, counts, or nothing
// (walk_outputs.h, edge_counts.h).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "decode/code_graph.h"
#include "decode/tnt_memo.h"
#include "decode/walk_outputs.h"
#include "decode/walk_packets.h"
#include "flow/return_stack.h"

namespace auxtrail::decode {

// Where a walk begins, and where it ended.
struct WalkState {
  uint64_t ip = 0;       // where the flow stands
  size_t offset = 0;     // of the next packet
  uint64_t last_ip = 0;  // of the IP compression
  // Bits of a TNT packet before `offset` that are not used up; the oldest is bit tnt_bits - 1.
  uint64_t tnt = 0;
  unsigned tnt_bits = 0;
  // The last instruction executed; at the beginning, what it was before.
  uint64_t executed_ip = 0;
  // It is a branch that was taken, to `ip`, and delivered last.
  bool ended_with_branch = false;
  // Where tracing was left last; 0 if it was not.
  uint64_t left_ip = 0;
};

// One thread's; the graph may be shared.
template <typename Output>
class GraphWalk {
 public:
  GraphWalk(CodeGraph& graph, Output& output) : graph_(graph), output_(output) {}

  // Goes on from `state` as far as it can. Whether it consumed anything. Entries of `stack` without
  // a hint, or with one of this graph.
  bool run(std::span<const std::byte> trace, const WalkOptions& options, flow::ReturnStack& stack,
           WalkState& state);

  // Hands the output what the memo still holds back.
  void settle() {
    unsettled_bytes_ = 0;
    for (size_t i = 0; i < memo_.size(); ++i) {
      output_.forget(graph_, memo_.entry(i), memo_.way(i));
    }
  }

  // Of all runs.
  [[nodiscard]] const WalkTotals& totals() const { return totals_; }

 private:
  static constexpr unsigned kMaxFreeSteps = 1000;

  // Bits of TNT packets that are taken at once; one packet more has room.
  static constexpr unsigned kMaxGathered = 50;
  static const uint8_t* give_back(const uint8_t* position, uint64_t bits, unsigned left,
                                  WalkState& state);
  // Uses up `count` bits, or as many as it can; the node reached.
  Link take_bits(Link node, uint64_t bits, unsigned& count);
  Link step_conditional(Link node, unsigned bit);
  Link step_return(Link node);
  Link step_continue(Link node);
  Link behind_free_steps(Link node);
  [[nodiscard]] bool takes_bit(Link node, unsigned bit) const;
  // The memo's entry for these bits, if it is known or becomes known now; it is applied then.
  const TntMemo::Entry* remember(Link node, uint64_t bits, unsigned count);
  bool learn(uint64_t key, Link node, uint64_t bits, unsigned count, size_t& place);
  Link take_tip(Link node, uint64_t ip);
  bool leave(Link node, uint64_t ip);
  void enter(uint64_t ip, size_t left_at);
  const uint8_t* cross_gap(const uint8_t* position, std::span<const std::byte> trace,
                           const WalkOptions& options, Link& node, uint64_t& last_ip);
  static const uint8_t* skip_quiet(const uint8_t* position, const uint8_t* end,
                                   const WalkOptions& options, uint64_t& last_ip);
  [[nodiscard]] uint64_t executed_ip() {
    return last() != 0 ? graph_.records()[last_ >> 1].branch.from : start_ip_;
  }
  bool covers(Link node, uint64_t ip) const;
  void push_calls(const GraphNode& node, unsigned count);
  void executed(uint32_t record, unsigned taken) {
    last_ = record << 1 | taken;
    last_place_ = kNoPlace;
  }
  // The record of the branch executed last, twice, and 1 if it was taken; 0: none since start_ip_.
  [[nodiscard]] uint32_t last() {
    if (last_place_ != kNoPlace) last_ = memo_.way(last_place_).last;
    last_place_ = kNoPlace;
    return last_;
  }
  Link find(uint64_t ip);
  void finish(WalkState& state, Link link);

  struct Known {
    uint64_t ip = 0;
    Link link = 0;
  };
  static constexpr size_t kKnown = 1024;

  CodeGraph& graph_;
  flow::ReturnStack* stack_ = nullptr;
  bool compressed_returns_ = true;
  Output& output_;
  WalkTotals totals_;
  TntMemo memo_;
  static constexpr size_t kNoPlace = ~size_t{0};
  uint32_t last_ = 0;             // see last(), unless
  size_t last_place_ = kNoPlace;  // the memo knows it
  // Of trace since settle(): a way is used at most eight times a byte, and counts to 2^32.
  static constexpr size_t kMaxUnsettledBytes = size_t{1} << 28;
  size_t unsettled_bytes_ = 0;
  uint64_t start_ip_ = 0;
  uint64_t left_ip_ = 0;
  uint64_t lost_ip_ = 0;  // where the flow came to if there is no node
  std::unique_ptr<Known[]> known_ = std::make_unique<Known[]>(kKnown);
};

template <typename Output>
[[gnu::always_inline]] inline Link GraphWalk<Output>::find(uint64_t ip) {
  Known& known = known_[(ip ^ ip >> 12) % kKnown];
  if (known.ip != ip || known.link == 0) known = {ip, graph_.link_to(ip)};
  if (known.link == 0) [[unlikely]]
    lost_ip_ = ip;
  return known.link;
}

template <typename Output>
void GraphWalk<Output>::push_calls(const GraphNode& node, unsigned count) {
  for (uint32_t i = node.records; i < node.records + count; ++i) {
    if (graph_.records()[i].pushes) stack_->append({0, i}, 1);
  }
}

template <typename Output>
[[gnu::always_inline]] inline Link GraphWalk<Output>::step_conditional(Link link, unsigned bit) {
  const GraphNode& node = graph_.nodes()[index_of(link)];
  Link next = node.next[bit].load(std::memory_order_acquire);
  if (next == 0) [[unlikely]] {
    next = graph_.follow(link, bit);
    if (next == 0) lost_ip_ = graph_.target(node, bit);
  }
  if (node.push_count != 0) push_calls(node, node.path_count);
  totals_.instructions += node.instructions;
  totals_.not_taken += bit ^ 1;
  totals_.taken += node.path_count + bit;
  executed(node.records + node.path_count, bit);
  output_.conditional(node, graph_.records() + node.records, bit);
  return next;
}

template <typename Output>
Link GraphWalk<Output>::step_return(Link link) {
  const GraphNode& node = graph_.nodes()[index_of(link)];
  if (node.push_count != 0) push_calls(node, node.path_count);
  flow::ReturnStack::Entry entry;
  (void)stack_->pop(entry);
  Link next = 0;
  if (entry.hint != 0) {
    entry.ip = graph_.records()[entry.hint].fall_through();
    next = graph_.return_link(entry.hint);
    if (next == 0) lost_ip_ = entry.ip;
  } else {
    next = find(entry.ip);
  }
  totals_.instructions += node.instructions;
  totals_.taken += node.path_count + 1u;
  executed(node.records + node.path_count, 1);
  output_.returned(node, graph_.records() + node.records, entry.hint, entry.ip);
  return next;
}

template <typename Output>
Link GraphWalk<Output>::step_continue(Link link) {
  const GraphNode& node = graph_.nodes()[index_of(link)];
  Link next = node.next[0].load(std::memory_order_acquire);
  if (next == 0) next = graph_.follow(link, 0);
  if (next == 0) lost_ip_ = graph_.target(node, 0);
  if (node.push_count != 0) push_calls(node, node.path_count);
  totals_.instructions += node.instructions;
  totals_.taken += node.path_count;
  executed(node.records + node.path_count - 1u, 1);
  output_.path(node, graph_.records() + node.records);
  return next;
}

// Where the steps that need no packet lead to, without taking them: nobody may be told of them
// before it is certain that the next packet is used up behind them. 0: nowhere, or too far.
template <typename Output>
[[gnu::always_inline]] inline Link GraphWalk<Output>::behind_free_steps(Link link) {
  for (unsigned i = 0; kind_of(link) == NodeKind::kContinue; ++i) [[unlikely]] {
      if (i == kMaxFreeSteps) return 0;
      const Link next = graph_.nodes()[index_of(link)].next[0].load(std::memory_order_acquire);
      link = next != 0 ? next : graph_.follow(link, 0);
    }
  return link;
}

// Whether the node decides by this TNT bit.
template <typename Output>
[[gnu::always_inline]] inline bool GraphWalk<Output>::takes_bit(Link link, unsigned bit) const {
  if (kind_of(link) == NodeKind::kConditional) return true;
  if (kind_of(link) != NodeKind::kReturn || !compressed_returns_ || bit == 0) return false;
  return stack_->size() != 0 || graph_.nodes()[index_of(link)].push_count != 0;
}

template <typename Output>
[[gnu::always_inline]] inline const TntMemo::Entry* GraphWalk<Output>::remember(Link link,
                                                                                uint64_t bits,
                                                                                unsigned count) {
  if constexpr (!Output::kRemembers) return nullptr;
  const uint64_t key = TntMemo::key(link, bits, count);
  size_t place = memo_.find(key);
  if (!memo_.entry(place).answers(key)) [[unlikely]] {
    if (!memo_.misses_again(key) || !learn(key, link, bits, count, place)) return nullptr;
  }
  TntMemo::Entry& entry = memo_.entry(place);
  if (entry.pushes() != 0) {
    static_assert(TntMemo::kMaxPushes == 2);
    const TntMemo::Way& way = memo_.way(place);
    stack_->append({0, way.pushes[0]}, 1);
    stack_->append({0, way.pushes[1]}, entry.pushes() - 1u);
  }
  totals_.instructions += entry.instructions();
  totals_.not_taken += entry.not_taken();
  totals_.taken += entry.taken();
  last_place_ = place;
  output_.remembered(entry, memo_, place, graph_.records());
  return &entry;
}

template <typename Output>
[[gnu::noinline]] bool GraphWalk<Output>::learn(uint64_t key, Link link, uint64_t bits,
                                                unsigned count, size_t& place) {
  TntMemo::Way way;
  const Link end = follow_way(graph_, link, bits, count, compressed_returns_, way);
  if (way.bits == 0 || !memo_.admit(key, place)) return false;
  output_.forget(graph_, memo_.entry(place), memo_.way(place));
  memo_.way(place) = way;
  memo_.set(place, key, end);
  return true;
}

template <typename Output>
Link GraphWalk<Output>::take_bits(Link link, uint64_t bits, unsigned& count) {
  unsigned left = count;
  while (left != 0) {
    switch (kind_of(link)) {
      case NodeKind::kConditional: {
        const unsigned chunk = std::min(left, TntMemo::kMaxBits);
        if (chunk > 1) {
          const TntMemo::Entry* known = remember(link, bits >> (left - chunk), chunk);
          if (known != nullptr) {
            left -= known->bits();
            link = known->end();
            continue;
          }
        }
        const unsigned until = left - chunk;
        do {
          --left;
          link = step_conditional(link, (bits >> left) & 1);
        } while (left != until && kind_of(link) == NodeKind::kConditional);
        continue;
      }
      case NodeKind::kReturn:
        if (!takes_bit(link, (bits >> (left - 1)) & 1)) break;
        --left;
        link = step_return(link);
        continue;
      case NodeKind::kContinue:
        if (!takes_bit(behind_free_steps(link), (bits >> (left - 1)) & 1)) break;
        while (kind_of(link) == NodeKind::kContinue) link = step_continue(link);
        continue;
      default:
        break;
    }
    break;
  }
  count = left;
  return link;
}

// `left` of `bits`, from the TNT packets before `position`, can't be used. Where the walk stops:
// behind the packet that was begun.
template <typename Output>
const uint8_t* GraphWalk<Output>::give_back(const uint8_t* position, uint64_t bits, unsigned left,
                                            WalkState& state) {
  for (unsigned later = 0; left != 0;) {
    const auto count = static_cast<unsigned>(std::bit_width(position[-1])) - 2;
    if (left < count) {
      state.tnt = bits >> later & ((uint64_t{1} << left) - 1);
      state.tnt_bits = left;
      break;
    }
    later += count;
    left -= count;
    --position;
  }
  return position;
}

template <typename Output>
[[gnu::always_inline]] inline Link GraphWalk<Output>::take_tip(Link link, uint64_t ip) {
  GraphNode& from = graph_.node(index_of(link));
  Link next = 0;
  if (kind_of(link) == NodeKind::kReturn) {
    next = find(ip);  // the last one's place tells nothing about this one's
  } else {
    next = from.next[0].load(std::memory_order_acquire);
    if (next == 0 || graph_.nodes()[index_of(next)].ip != ip) {
      next = find(ip);
      from.next[0].store(next, std::memory_order_release);
    }
  }
  if (from.push_count != 0) push_calls(from, from.path_count + 1u);
  totals_.instructions += from.instructions;
  totals_.taken += from.path_count + 1u;
  executed(from.records + from.path_count, 1);
  output_.indirect(from, graph_.records() + from.records, next, ip);
  return next;
}

// Whether `ip` is in the straight code that the node begins with.
template <typename Output>
bool GraphWalk<Output>::covers(Link link, uint64_t ip) const {
  const GraphNode& node = graph_.nodes()[index_of(link)];
  if (node.kind == NodeKind::kStop) return ip == node.ip;
  return node.ip <= ip && ip <= graph_.records()[node.records].branch.from;
}

template <typename Output>
bool GraphWalk<Output>::run(std::span<const std::byte> trace, const WalkOptions& options,
                            flow::ReturnStack& stack, WalkState& state) {
  stack_ = &stack;
  compressed_returns_ = options.compressed_returns;
  const auto* begin = reinterpret_cast<const uint8_t*>(trace.data());
  // Not too far at once, see kMaxUnsettledBytes. The flow goes on in another run.
  const size_t bytes = std::min(trace.size() - state.offset, kMaxUnsettledBytes);
  const uint8_t* position = begin + state.offset;
  const uint8_t* const start = position;
  const uint8_t* end = position + bytes;
  uint64_t last_ip = state.last_ip;
  last_ = 0;
  last_place_ = kNoPlace;
  start_ip_ = state.executed_ip;
  left_ip_ = 0;
  Link link = find(state.ip);
  // The newest PSB+ that was skipped, and how things were before.
  struct {
    const uint8_t* position;
    uint64_t last_ip;
    uint64_t instructions;
    pt::TraceClock clock;
  } psb = {};
  state.tnt_bits = 0;
  while (position < end && link != 0) {
    const uint8_t opcode = *position;
    uint64_t bits = 0;
    unsigned count = 0;
    switch (kPacketClasses[opcode]) {
      case PacketClass::kTnt8: {
        // As many of them as follow each other: what is remembered is the longer the better.
        do {
          const auto more = static_cast<unsigned>(std::bit_width(*position)) - 2;
          bits = bits << more | (static_cast<uint64_t>(*position >> 1) ^ uint64_t{1} << more);
          count += more;
          ++position;
        } while (count <= kMaxGathered && position < end &&
                 kPacketClasses[*position] == PacketClass::kTnt8);
        unsigned left = count;
        link = take_bits(link, bits, left);
        if (left == 0) [[likely]]
          continue;
        position = give_back(position, bits, left, state);
        goto stop;
      }
      case PacketClass::kPad:
        ++position;
        continue;
      case PacketClass::kTip: {
        const NodeKind kind = kind_of(behind_free_steps(link));
        if (kind != NodeKind::kIndirect && kind != NodeKind::kReturn) goto stop;
        const uint8_t* next = read_ip(position, end, kTipOpcode, last_ip);
        if (next == nullptr) goto stop;
        position = next;
        while (kind_of(link) == NodeKind::kContinue) link = step_continue(link);
        link = take_tip(link, last_ip);
        continue;
      }
      case PacketClass::kGap: {
        const uint8_t* next = cross_gap(position, trace, options, link, last_ip);
        if (next == nullptr) goto stop;
        position = next;
        continue;
      }
      case PacketClass::kExtended: {
        if (end - position >= 8 && position[1] == 0xa3) {
          bits = load(position, end) >> 16;
          if (bits < 2) goto stop;
          count = static_cast<unsigned>(std::bit_width(bits)) - 1;
          position += 8;
          break;
        }
        bool has_ip = false;
        uint64_t ip = 0;
        const pt::TraceClock clock = *options.clock;
        const uint8_t* next = read_psb(position, end, options, has_ip, ip);
        if (next == nullptr || !has_ip || !covers(link, ip)) {
          *options.clock = clock;
          goto stop;
        }
        psb = {position, last_ip, totals_.instructions, clock};
        if constexpr (Output::kTellsTimes) output_.time(options.clock->moment());
        position = next;
        last_ip = ip;
        continue;
      }
      case PacketClass::kTiming: {
        const uint8_t* next = read_timing(position, end, options);
        if (next == nullptr) goto stop;
        if constexpr (Output::kTellsTimes) output_.time(options.clock->moment());
        position = next;
        continue;
      }
      default:
        goto stop;
    }
    link = take_bits(link, bits, count);
    if (count != 0) [[unlikely]] {
      state.tnt = bits & ((uint64_t{1} << count) - 1);
      state.tnt_bits = count;
      break;
    }
  }
stop:
  if (psb.position != nullptr && psb.instructions == totals_.instructions) [[unlikely]] {
    // Nothing more is known than that the flow came to the PSB+'s address: the flow decoder goes
    // there.
    position = psb.position;
    last_ip = psb.last_ip;
    state.tnt_bits = 0;
    *options.clock = psb.clock;
  }
  state.offset = static_cast<size_t>(position - begin);
  state.last_ip = last_ip;
  unsettled_bytes_ += static_cast<size_t>(position - start);
  if (unsettled_bytes_ > kMaxUnsettledBytes) settle();
  finish(state, link);
  return position != start;
}

template <typename Output>
void GraphWalk<Output>::finish(WalkState& state, Link link) {
  state.ip = link != 0 ? graph_.nodes()[index_of(link)].ip : lost_ip_;
  state.executed_ip = executed_ip();
  state.left_ip = left_ip_;
  state.ended_with_branch = (last() & 1) != 0;
  // Whoever goes on knows nothing of hints.
  for (size_t age = 0; age < stack_->size(); ++age) {
    flow::ReturnStack::Entry& entry = stack_->at(age);
    if (entry.ip != 0) break;
    entry.ip = graph_.records()[entry.hint].fall_through();
  }
}

}  // namespace auxtrail::decode

#include "decode/graph_walk_gaps.h"  // the rest of GraphWalk
