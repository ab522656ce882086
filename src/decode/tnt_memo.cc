// Following a few bits through the graph, without any effect but nodes that become known.
#include "decode/tnt_memo.h"

namespace auxtrail::decode {
namespace {

// One bit: notes what happens, and says where it leads; 0: the way can't hold it.
Link follow_bit(CodeGraph& graph, Link link, unsigned bit, bool compressed_returns,
                TntMemo::Way& way) {
  const GraphNode& node = graph.nodes()[index_of(link)];
  const bool returns = node.kind == NodeKind::kReturn;
  if (!returns && node.kind != NodeKind::kConditional) return 0;
  unsigned pushes = way.push_count;
  uint32_t pushed[TntMemo::kMaxPushes + 1] = {way.pushes[0], way.pushes[1]};
  for (uint32_t i = node.records; i < node.records + node.path_count; ++i) {
    if (!graph.records()[i].pushes) continue;
    if (pushes == TntMemo::kMaxPushes + 1) return 0;
    pushed[pushes++] = i;
  }
  const unsigned taken = node.path_count + (returns ? 1 : bit);
  if (way.taken + taken > TntMemo::kMaxRecords) return 0;
  if (way.instructions + node.instructions > TntMemo::kMaxInstructions) return 0;
  uint32_t last = node.records + node.path_count;
  Link next = 0;
  if (returns) {
    if (!compressed_returns || bit == 0 || pushes == 0) return 0;
    const uint32_t call = pushed[--pushes];
    last = graph.return_record(last, call);
    next = graph.return_link(call);
  } else {
    next = node.next[bit].load(std::memory_order_acquire);
  }
  if (next == 0 || last == 0 || pushes > TntMemo::kMaxPushes) return 0;
  for (unsigned i = 0; i < node.path_count; ++i) way.records[way.taken++] = node.records + i;
  if (returns || bit == 1) way.records[way.taken++] = last;
  for (unsigned i = 0; i < TntMemo::kMaxPushes; ++i) way.pushes[i] = pushed[i];
  way.push_count = static_cast<uint8_t>(pushes);
  way.instructions += node.instructions;
  way.last = last << 1 | (returns ? 1 : bit);
  way.not_taken = static_cast<uint8_t>(way.not_taken + (returns ? 0 : bit ^ 1));
  ++way.bits;
  return next;
}

}  // namespace

Link follow_way(CodeGraph& graph, Link link, uint64_t bits, unsigned count, bool compressed_returns,
                TntMemo::Way& way) {
  for (unsigned left = count; left != 0; --left) {
    const Link next = follow_bit(graph, link, (bits >> (left - 1)) & 1, compressed_returns, way);
    if (next == 0) break;
    link = next;
  }
  return link;
}

}  // namespace auxtrail::decode
