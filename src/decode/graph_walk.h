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
    for (size_t i = 0; i < memo_.size(); ++i) {
      if (memo_.entry(i).key != 0) output_.forget(graph_, memo_.entry(i), memo_.way(i));
    }
  }

  // Of all runs.
  [[nodiscard]] const WalkTotals& totals() const { return totals_; }

 private:
  static constexpr unsigned kMaxFreeSteps = 1000;

  // Uses up `count` bits, or as many as it can; the node reached.
  Link take_bits(Link node, uint64_t bits, unsigned& count);
  Link step_conditional(Link node, unsigned bit);
  Link step_return(Link node);
  Link step_continue(Link node);
  // The memo's entry for these bits, if it is known or becomes known now; it is applied then.
  const TntMemo::Entry* remember(Link node, uint64_t bits, unsigned count);
  bool learn(size_t index, uint64_t key, Link node, uint64_t bits, unsigned count);
  Link take_tip(Link node, uint64_t ip);
  bool leave(Link node, uint64_t ip);
  void enter(uint64_t ip, size_t left_at);
  const uint8_t* cross_gap(const uint8_t* position, std::span<const std::byte> trace,
                           const WalkOptions& options, Link& node, uint64_t& last_ip);
  static const uint8_t* skip_quiet(const uint8_t* position, const uint8_t* end,
                                   const WalkOptions& options, uint64_t& last_ip);
  [[nodiscard]] uint64_t executed_ip() const {
    return last_ != 0 ? graph_.records()[last_ >> 1].branch.from : start_ip_;
  }
  bool covers(Link node, uint64_t ip) const;
  void push_calls(const GraphNode& node, unsigned count);
  void executed(const GraphNode& node, unsigned taken) {
    last_ = (node.records + node.path_count) << 1 | taken;
  }
  Link find(uint64_t ip);
  void finish(WalkState& state, Link link);

  struct Known {
    uint64_t ip = 0;
    Link link = 0;
  };
  static constexpr size_t kKnown = 4096;

  CodeGraph& graph_;
  flow::ReturnStack* stack_ = nullptr;
  Output& output_;
  WalkTotals totals_;
  TntMemo memo_;
  // The record of the branch executed last, and 1 if it was taken; 0: none since start_ip_.
  uint32_t last_ = 0;
  uint64_t start_ip_ = 0;
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
    if (graph_.records()[i].pushes) stack_->push(0, i);
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
  executed(node, bit);
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
    const GraphRecord& call = graph_.records()[entry.hint];
    entry.ip = call.fall_through();
    next = call.return_link.load(std::memory_order_acquire);
    if (next == 0) [[unlikely]]
      next = graph_.return_link(entry.hint);
    if (next == 0) lost_ip_ = entry.ip;
  } else {
    next = find(entry.ip);
  }
  totals_.instructions += node.instructions;
  totals_.taken += node.path_count + 1u;
  executed(node, 1);
  output_.dynamic(node, graph_.records() + node.records, next, entry.ip);
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
  last_ = (node.records + node.path_count - 1) << 1 | 1;
  output_.path(node, graph_.records() + node.records);
  return next;
}

template <typename Output>
[[gnu::always_inline]] inline const TntMemo::Entry* GraphWalk<Output>::remember(Link link,
                                                                                uint64_t bits,
                                                                                unsigned count) {
  if constexpr (!Output::kRemembers) return nullptr;
  const uint64_t key = TntMemo::key(link, bits, count);
  const size_t index = memo_.index(key);
  const TntMemo::Entry& entry = memo_.entry(index);
  if (entry.key != key) [[unlikely]] {
    if (!memo_.misses_again(index, key) || !learn(index, key, link, bits, count)) return nullptr;
  }
  TntMemo::Way& way = memo_.way(index);
  if (entry.push_count != 0) {
    static_assert(TntMemo::kMaxPushes == 2);
    stack_->append(0, way.pushes[0], 1);
    stack_->append(0, way.pushes[1], entry.push_count - 1u);
  }
  totals_.instructions += way.instructions;
  totals_.not_taken += entry.not_taken;
  totals_.taken += entry.taken;
  last_ = way.last;
  output_.remembered(entry, way, graph_.records());
  return &entry;
}

// Walks the bits without any effect and notes what there is to it.
template <typename Output>
[[gnu::noinline]] bool GraphWalk<Output>::learn(size_t index, uint64_t key, Link link,
                                                uint64_t bits, unsigned count) {
  if (!memo_.admit()) return false;
  TntMemo::Entry& entry = memo_.entry(index);
  TntMemo::Way& way = memo_.way(index);
  if (entry.key != 0) output_.forget(graph_, entry, way);
  entry = {};
  way = {};
  for (unsigned left = count; left != 0; --left) {
    if (kind_of(link) != NodeKind::kConditional) break;
    const GraphNode& node = graph_.nodes()[index_of(link)];
    const unsigned bit = (bits >> (left - 1)) & 1;
    const Link next = node.next[bit].load(std::memory_order_acquire);
    const unsigned taken = node.path_count + bit;
    if (next == 0 || entry.taken + taken > TntMemo::kMaxRecords ||
        entry.push_count + node.push_count > TntMemo::kMaxPushes) {
      break;
    }
    for (unsigned i = 0; i < taken; ++i) way.records[entry.taken++] = node.records + i;
    for (unsigned i = 0; i < node.path_count; ++i) {
      if (graph_.records()[node.records + i].pushes) {
        way.pushes[entry.push_count++] = node.records + i;
      }
    }
    way.instructions += node.instructions;
    way.last = (node.records + node.path_count) << 1 | bit;
    entry.not_taken = static_cast<uint8_t>(entry.not_taken + (bit ^ 1));
    ++entry.bits;
    link = next;
  }
  if (entry.bits == 0) return false;
  entry.end = link;
  entry.key = key;
  return true;
}

template <typename Output>
Link GraphWalk<Output>::take_bits(Link link, uint64_t bits, unsigned& count) {
  unsigned left = count;
  unsigned free_steps = 0;
  while (left != 0) {
    switch (kind_of(link)) {
      case NodeKind::kConditional: {
        const unsigned chunk = std::min(left, TntMemo::kMaxBits);
        if (chunk > 1) {
          const TntMemo::Entry* known = remember(link, bits >> (left - chunk), chunk);
          if (known != nullptr) {
            left -= known->bits;
            link = known->end;
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
        if (((bits >> (left - 1)) & 1) == 0) break;
        if (stack_->size() == 0 && graph_.nodes()[index_of(link)].push_count == 0) break;
        --left;
        link = step_return(link);
        continue;
      case NodeKind::kContinue:
        if (++free_steps > kMaxFreeSteps) break;
        link = step_continue(link);
        continue;
      default:
        break;
    }
    break;
  }
  count = left;
  return link;
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
  executed(from, 1);
  output_.dynamic(from, graph_.records() + from.records, next, ip);
  return next;
}

// Whether `ip` is in the straight code that the node begins with.
template <typename Output>
bool GraphWalk<Output>::covers(Link link, uint64_t ip) const {
  const GraphNode& node = graph_.nodes()[index_of(link)];
  if (node.kind == NodeKind::kStop) return ip == node.ip;
  return node.ip <= ip && ip <= graph_.records()[node.records].branch.from;
}

// Tracing ended (TIP.PGD) with a branch to `ip`, which is the last one executed, one of the node's
// path, or the one that ends it. False if it is none of these for certain; nothing happened then.
template <typename Output>
bool GraphWalk<Output>::leave(Link link, uint64_t ip) {
  const GraphNode& node = graph_.nodes()[index_of(link)];
  const GraphRecord* records = graph_.records() + node.records;
  if (node.kind == NodeKind::kStop || node.kind == NodeKind::kContinue) return false;
  if (node.ip == ip) {
    if (last_ == 0) return false;
    if ((last_ & 1) != 0) {
      output_.leave_with_branch();
    } else {
      output_.leave_behind(executed_ip());
    }
    return true;
  }
  uint64_t first_ip = node.ip;
  for (unsigned i = 0; i <= node.path_count; ++i) {
    if (first_ip <= ip && ip <= records[i].branch.from) return false;  // in straight code
    if (i == node.path_count) break;
    first_ip = records[i].branch.to;
    if (first_ip != ip) continue;
    push_calls(node, i + 1);
    for (unsigned j = 0; j <= i; ++j) totals_.instructions += records[j].instructions;
    totals_.taken += i + 1;
    output_.partial(node, records, i + 1);
    output_.leave_with_branch();
    last_ = (node.records + i) << 1 | 1;
    return true;
  }
  if (node.kind != NodeKind::kIndirect && node.kind != NodeKind::kReturn) return false;
  push_calls(node, node.path_count + 1u);
  totals_.instructions += node.instructions;
  totals_.taken += node.path_count + 1u;
  executed(node, 1);
  output_.dynamic(node, records, 0, ip);
  output_.leave_with_branch();
  return true;
}

// Tracing goes on at `ip`; it was left with the packet before `left_at`.
template <typename Output>
void GraphWalk<Output>::enter(uint64_t ip, size_t left_at) {
  ++totals_.gaps;
  output_.gap({GapKind::kDisabled, executed_ip(), ip, left_at});
  output_.begin(ip);
  last_ = 0;
  start_ip_ = ip;
}

// Padding, and PSB+ that say nothing, while tracing is off. With a clock they are left to others.
template <typename Output>
const uint8_t* GraphWalk<Output>::skip_quiet(const uint8_t* position, const uint8_t* end,
                                             const WalkOptions& options, uint64_t& last_ip) {
  for (;;) {
    while (position < end && *position == 0) ++position;
    if (options.clock != nullptr) return position;
    bool has_ip = false;
    uint64_t ip = 0;
    const uint8_t* next = read_psb(position, end, options, has_ip, ip);
    if (next == nullptr || has_ip) return position;
    position = next;
    last_ip = 0;
  }
}

// TIP.PGD, and TIP.PGE behind it. Where the walk goes on, or nullptr if it can't tell.
template <typename Output>
[[gnu::noinline]] const uint8_t* GraphWalk<Output>::cross_gap(const uint8_t* position,
                                                              std::span<const std::byte> trace,
                                                              const WalkOptions& options,
                                                              Link& link, uint64_t& last_ip) {
  const auto* begin = reinterpret_cast<const uint8_t*>(trace.data());
  const uint8_t* end = begin + trace.size();
  uint64_t left_ip = last_ip;
  const uint8_t* behind = read_ip(position, end, kPgdOpcode, left_ip);
  if (behind == nullptr) return nullptr;
  uint64_t entered_ip = left_ip;
  const uint8_t* next = skip_quiet(behind, end, options, entered_ip);
  next = read_ip(next, end, kPgeOpcode, entered_ip);
  if (next == nullptr || !leave(link, left_ip)) return nullptr;
  enter(entered_ip, static_cast<size_t>(behind - begin));
  last_ip = entered_ip;
  link = find(entered_ip);
  return next;
}

template <typename Output>
bool GraphWalk<Output>::run(std::span<const std::byte> trace, const WalkOptions& options,
                            flow::ReturnStack& stack, WalkState& state) {
  stack_ = &stack;
  const auto* begin = reinterpret_cast<const uint8_t*>(trace.data());
  const uint8_t* end = begin + trace.size();
  const uint8_t* position = begin + state.offset;
  const uint8_t* const start = position;
  uint64_t last_ip = state.last_ip;
  last_ = 0;
  start_ip_ = state.executed_ip;
  Link link = find(state.ip);
  state.tnt_bits = 0;
  while (position < end && link != 0) {
    // Padding is skipped without a branch: where it stands is hard to predict.
    const uint8_t opcode = *position;
    uint64_t bits = 0;
    unsigned count = 0;
    switch (kPacketClasses[opcode]) {
      case PacketClass::kTnt8:
        count = static_cast<unsigned>(std::bit_width(opcode)) - 2;
        bits = opcode >> 1;
        ++position;
        if (kind_of(link) == NodeKind::kConditional && count > 1) {
          const TntMemo::Entry* known = remember(link, bits, count);
          if (known != nullptr) {
            link = known->end;
            count -= known->bits;
            if (count == 0) [[likely]]
              continue;
          }
        }
        break;
      case PacketClass::kPad:
        position += position < end ? 1 : 0;
        continue;
      case PacketClass::kTip: {
        for (unsigned i = 0; kind_of(link) == NodeKind::kContinue && i < kMaxFreeSteps; ++i) {
          link = step_continue(link);
        }
        if (kind_of(link) != NodeKind::kIndirect && kind_of(link) != NodeKind::kReturn) goto stop;
        const uint8_t* next = read_ip(position, end, kTipOpcode, last_ip);
        if (next == nullptr) goto stop;
        position = next;
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
        const uint8_t* next = read_psb(position, end, options, has_ip, ip);
        if (next == nullptr || !has_ip || !covers(link, ip)) goto stop;
        if (options.clock != nullptr && !feed_psb(position, next, *options.clock)) goto stop;
        if constexpr (Output::kTellsTimes) output_.time(options.clock->moment());
        position = next;
        last_ip = ip;
        continue;
      }
      case PacketClass::kTiming: {
        const uint8_t* next = read_timing(position, end, options, options.clock);
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
  state.offset = static_cast<size_t>(position - begin);
  state.last_ip = last_ip;
  finish(state, link);
  return position != start;
}

template <typename Output>
void GraphWalk<Output>::finish(WalkState& state, Link link) {
  state.ip = link != 0 ? graph_.nodes()[index_of(link)].ip : lost_ip_;
  state.executed_ip = executed_ip();
  state.ended_with_branch = (last_ & 1) != 0;
  // Whoever goes on knows nothing of hints.
  for (size_t age = 0; age < stack_->size(); ++age) {
    flow::ReturnStack::Entry& entry = stack_->at(age);
    if (entry.ip != 0) break;
    entry.ip = graph_.records()[entry.hint].fall_through();
  }
}

}  // namespace auxtrail::decode
