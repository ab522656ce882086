// GraphWalk's way over a filter that is left and entered again: TIP.PGD, and TIP.PGE behind it.
// Part of graph_walk.h, which includes it.
#pragma once

#include "decode/graph_walk.h"

namespace auxtrail::decode {

// Tracing ended (TIP.PGD) with a branch to `ip`, which is the last one executed, one of the node's
// path, or the one that ends it. False if it is none of these for certain; nothing happened then.
template <typename Output>
bool GraphWalk<Output>::leave(Link link, uint64_t ip) {
  const GraphNode& node = graph_.nodes()[index_of(link)];
  const GraphRecord* records = graph_.records() + node.records;
  if (node.kind == NodeKind::kStop || node.kind == NodeKind::kContinue) return false;
  if (node.ip == ip) {
    if (last() == 0) return false;
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
    executed(node.records + i, 1);
    return true;
  }
  if (node.kind != NodeKind::kIndirect && node.kind != NodeKind::kReturn) return false;
  push_calls(node, node.path_count + 1u);
  totals_.instructions += node.instructions;
  totals_.taken += node.path_count + 1u;
  executed(node.records + node.path_count, 1);
  output_.indirect(node, records, 0, ip);
  output_.leave_with_branch();
  return true;
}

// Tracing goes on at `ip`; it was left with the packet before `left_at`.
template <typename Output>
void GraphWalk<Output>::enter(uint64_t ip, size_t left_at) {
  ++totals_.gaps;
  left_ip_ = executed_ip();
  output_.gap({GapKind::kDisabled, executed_ip(), ip, left_at});
  output_.begin(ip);
  last_ = 0;
  last_place_ = kNoPlace;
  start_ip_ = ip;
}

// Padding, and PSB+ that say nothing, while tracing is off. Where time is told they are left to
// others.
template <typename Output>
const uint8_t* GraphWalk<Output>::skip_quiet(const uint8_t* position, const uint8_t* end,
                                             const WalkOptions& options, uint64_t& last_ip) {
  for (;;) {
    while (position < end && *position == 0) ++position;
    if (options.tells_time) return position;
    bool has_ip = false;
    uint64_t ip = 0;
    const pt::TraceClock clock = *options.clock;
    const uint8_t* next = read_psb(position, end, options, has_ip, ip);
    if (next == nullptr || has_ip) {
      *options.clock = clock;
      return position;
    }
    // The clock hears of it twice if the walk does not go on behind it, which does no harm to one
    // that nobody reads.
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
  while (behind < end && *behind == 0) ++behind;  // the gap is told at the next packet
  uint64_t entered_ip = left_ip;
  const uint8_t* next = skip_quiet(behind, end, options, entered_ip);
  next = read_ip(next, end, kPgeOpcode, entered_ip);
  if (next == nullptr || !leave(link, left_ip)) return nullptr;
  enter(entered_ip, static_cast<size_t>(behind - begin));
  last_ip = entered_ip;
  link = find(entered_ip);
  return next;
}

}  // namespace auxtrail::decode
