// From counts of nodes to counts of edges.
#include "decode/edge_counts.h"

#include <algorithm>
#include <bit>

namespace auxtrail::decode {

void EdgeProfile::add(const EdgeProfile& other) {
  for (const auto& [ends, edge] : other.edges_) add(edge.branch, edge.count);
  for (const auto& [ip, count] : other.untaken_) add_untaken(ip, count);
}

std::vector<EdgeProfile::Edge> EdgeProfile::edges() const {
  std::vector<Edge> sorted;
  sorted.reserve(edges_.size());
  for (const auto& [ends, edge] : edges_) sorted.push_back(edge);
  std::sort(sorted.begin(), sorted.end(), [](const Edge& a, const Edge& b) {
    return a.branch.from != b.branch.from ? a.branch.from < b.branch.from
                                          : a.branch.to < b.branch.to;
  });
  return sorted;
}

std::vector<EdgeProfile::Untaken> EdgeProfile::untaken() const {
  std::vector<Untaken> sorted;
  sorted.reserve(untaken_.size());
  for (const auto& [ip, count] : untaken_) sorted.push_back({ip, count});
  std::sort(sorted.begin(), sorted.end(),
            [](const Untaken& a, const Untaken& b) { return a.ip < b.ip; });
  return sorted;
}

void EdgeOutput::forget(const CodeGraph& graph, const TntMemo::Entry& entry, TntMemo::Way& way) {
  const uint64_t uses = way.uses;
  way.uses = 0;
  if (uses == 0) return;
  Link link = TntMemo::node_of(entry.key);
  const uint64_t bits = TntMemo::bits_of(entry.key);
  const auto count = static_cast<unsigned>(std::bit_width(bits)) - 1;
  for (unsigned i = 0; i < entry.bits; ++i) {
    const unsigned bit = bits >> (count - 1 - i) & 1;
    const GraphNode& node = graph.nodes()[decode::index_of(link)];
    outcomes_[2 * index_of(node) + bit] += uses;
    link = node.next[bit].load(std::memory_order_acquire);
  }
}

void EdgeOutput::insert(uint32_t record, uint64_t ip, uint64_t count) {
  if (++dynamic_count_ * 2 > dynamic_.size()) {
    std::vector<Slot> old(2 * dynamic_.size());
    old.swap(dynamic_);
    for (const Slot& slot : old) {
      if (slot.record != 0) place(slot.record, slot.ip) = slot;
    }
  }
  place(record, ip) = {ip, count, record};
}

void EdgeOutput::move_to(EdgeProfile& profile) {
  for (uint32_t i = 1; i < graph_.node_count(); ++i) {
    uint64_t& not_taken = outcomes_[2 * size_t{i}];
    uint64_t& taken = outcomes_[2 * size_t{i} + 1];
    const uint64_t visits = not_taken + taken;
    if (visits == 0) continue;
    const GraphNode& node = graph_.nodes()[i];
    const GraphRecord* records = graph_.records() + node.records;
    for (unsigned j = 0; j < node.path_count; ++j) profile.add(records[j].branch, visits);
    if (node.kind == NodeKind::kConditional) {
      profile.add(records[node.path_count].branch, taken);
      profile.add_untaken(records[node.path_count].branch.from, not_taken);
    }
    not_taken = taken = 0;
  }
  for (Slot& slot : dynamic_) {
    if (slot.record == 0) continue;
    Branch branch = graph_.records()[slot.record].branch;
    branch.to = slot.ip;
    profile.add(branch, slot.count);
    slot = {};
  }
  dynamic_count_ = 0;
}

}  // namespace auxtrail::decode
