// From counts of nodes to counts of edges.
#include "decode/edge_counts.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

namespace auxtrail::decode {

void EdgeProfile::add(const EdgeProfile& other) {
  for (const auto& [ends, edge] : other.edges_) add(edge.branch, edge.count);
  for (const auto& [ip, count] : other.untaken_) add_untaken(ip, count);
}

std::vector<EdgeProfile::Edge> EdgeProfile::edges() const {
  std::vector<Edge> sorted;
  sorted.reserve(edges_.size());
  for (const auto& [ends, edge] : edges_) sorted.push_back(edge);
  const auto ends = [](const Edge& edge) {
    return std::tuple(edge.branch.from, edge.branch.to, edge.branch.kind);
  };
  std::sort(sorted.begin(), sorted.end(),
            [ends](const Edge& a, const Edge& b) { return ends(a) < ends(b); });
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

void EdgeOutput::forget(CodeGraph& graph, TntMemo::Entry& entry, const TntMemo::Way& way) {
  const uint64_t uses = entry.uses();
  entry.forget_uses();
  if (uses == 0) return;
  for (unsigned i = 0; i < entry.taken(); ++i) counts_[way.records[i]].taken += uses;
  // Those not taken are not listed: along the bits to them.
  Link link = TntMemo::node_of(entry.key());
  const uint64_t bits = TntMemo::bits_of(entry.key());
  const auto count = static_cast<unsigned>(std::bit_width(bits)) - 1;
  std::vector<uint32_t> calls;
  for (unsigned i = 0; i < entry.bits(); ++i) {
    const unsigned bit = bits >> (count - 1 - i) & 1;
    const GraphNode& node = graph.node(decode::index_of(link));
    for (unsigned j = 0; j < node.path_count; ++j) {
      if (graph.record(node.records + j).pushes) calls.push_back(node.records + j);
    }
    if (node.kind == NodeKind::kReturn) {
      link = graph.return_link(calls.back());
      calls.pop_back();
      continue;
    }
    counts_[node.records + node.path_count].not_taken += bit == 0 ? uses : 0;
    link = node.next[bit].load(std::memory_order_acquire);
  }
}

void EdgeOutput::insert(uint32_t record, uint64_t ip, uint64_t count) {
  if (++other_count_ * 2 > others_.size()) {
    std::vector<Slot> old(2 * others_.size());
    old.swap(others_);
    for (const Slot& slot : old) {
      if (slot.record != 0) place(slot.record, slot.ip) = slot;
    }
  }
  place(record, ip) = {ip, count, record};
}

void EdgeOutput::move_to(EdgeProfile& profile) {
  const uint32_t records = graph_.record_count();
  for (uint32_t i = 1; i < records; ++i) {
    const GraphRecord& record = graph_.record(i);
    profile.add(record.branch, std::exchange(counts_[i].taken, 0));
    profile.add_untaken(record.branch.from, std::exchange(counts_[i].not_taken, 0));
    Target& target = targets_[i];
    if (target.uses != 0) {
      const bool is_call = record.pushes;
      Branch branch = is_call ? graph_.record(target.other).branch : record.branch;
      branch.to = is_call ? record.fall_through() : graph_.node(decode::index_of(target.other)).ip;
      profile.add(branch, target.uses);
    }
    target = {};
  }
  for (Slot& slot : others_) {
    if (slot.record == 0) continue;
    Branch branch = graph_.record(slot.record).branch;
    branch.to = slot.ip;
    profile.add(branch, slot.count);
    slot = {};
  }
  other_count_ = 0;
}

}  // namespace auxtrail::decode
