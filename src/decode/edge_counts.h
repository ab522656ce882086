// How often each branch went where: all that a profile needs, without one branch being delivered.
//
// EdgeProfile is the result, by addresses. EdgeOutput is the walk's: it counts nodes, outcomes and
// uses of the memo, and turns them into edges at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/reserved_array.h"
#include "decode/branch_decoder.h"
#include "decode/code_graph.h"
#include "decode/tnt_memo.h"
#include "decode/walk_outputs.h"

namespace auxtrail::decode {

// The branches of one or many traces with their numbers; not where tracing began and ended. A
// consumer, too, for any decoder.
class EdgeProfile : public FlowConsumer {
 public:
  struct Edge {
    Branch branch;
    uint64_t count = 0;
  };
  struct Untaken {
    uint64_t ip = 0;
    uint64_t count = 0;
  };

  void add(const Branch& branch, uint64_t count) {
    if (count == 0) return;
    Edge& edge = edges_[{branch.from, branch.to, branch.kind}];
    edge.branch = {branch.from, branch.to, branch.kind, false};
    edge.count += count;
  }
  void add(const EdgeProfile& other);
  void add_untaken(uint64_t ip, uint64_t count) {
    if (count != 0) untaken_[ip] += count;
  }

  // Sorted by address.
  [[nodiscard]] std::vector<Edge> edges() const;
  [[nodiscard]] std::vector<Untaken> untaken() const;

  [[nodiscard]] unsigned wants() const override { return kWantsBranches | kWantsNotTaken; }
  void on_branch(const Branch& branch) override {
    if (!branch.is_marker()) add(branch, 1);
  }
  void on_not_taken(uint64_t ip) override { add_untaken(ip, 1); }

 private:
  struct Ends {
    uint64_t from = 0;
    uint64_t to = 0;
    BranchKind kind = BranchKind::kJump;  // an interrupt, say, or a branch there
    bool operator==(const Ends&) const = default;
  };
  struct Hash {
    size_t operator()(const Ends& ends) const {
      return (ends.from * 0x9e3779b97f4a7c15) ^ (ends.to * 0xc2b2ae3d27d4eb4f);
    }
  };
  std::unordered_map<Ends, Edge, Hash> edges_;
  std::unordered_map<uint64_t, uint64_t> untaken_;
};

class EdgeOutput {
 public:
  static constexpr bool kRemembers = true;
  static constexpr bool kTellsTimes = false;

  explicit EdgeOutput(const CodeGraph& graph)
      : graph_(graph),
        counts_(ReservedArray<Count>::exactly(graph.max_records())),
        targets_(ReservedArray<Target>::exactly(graph.max_records())),
        others_(kFirstSlots) {}

  [[gnu::always_inline]] inline void conditional(const GraphNode& node, const GraphRecord* records,
                                                 unsigned taken) {
    path(node, records);
    Count& count = counts_[index_of(records) + node.path_count];
    count.taken += taken;
    count.not_taken += taken ^ 1;
  }
  void indirect(const GraphNode& node, const GraphRecord* records, Link next, uint64_t ip) {
    path(node, records);
    const uint32_t record = index_of(records) + node.path_count;
    // A call through a pointer has its place already taken, see returned().
    if (next == 0 || records[node.path_count].pushes) return count(record, ip);
    Target& target = targets_[record];
    if (target.uses == 0) target.other = next;
    if (target.other != next) return count(record, ip);
    ++target.uses;
  }
  // Counted at the call: most functions are left by one return.
  void returned(const GraphNode& node, const GraphRecord* records, uint32_t call, uint64_t ip) {
    path(node, records);
    const uint32_t record = index_of(records) + node.path_count;
    if (call == 0) return count(record, ip);
    Target& target = targets_[call];
    if (target.uses == 0) target.other = record;
    if (target.other != record) return count(record, ip);
    ++target.uses;
  }
  void path(const GraphNode& node, const GraphRecord* records) {
    partial(node, records, node.path_count);
  }
  void partial(const GraphNode& /*node*/, const GraphRecord* records, unsigned n) {
    for (unsigned i = 0; i < n; ++i) ++counts_[index_of(records) + i].taken;
  }
  [[gnu::always_inline]] inline void remembered(TntMemo::Entry& entry, TntMemo& /*memo*/,
                                                size_t /*place*/, const GraphRecord* /*records*/) {
    entry.use();
  }
  // Before an entry goes: what it stood for is counted.
  void forget(CodeGraph& graph, TntMemo::Entry& entry, const TntMemo::Way& way);

  void leave_with_branch() {}
  void leave_behind(uint64_t /*last_ip*/) {}
  void gap(const Gap& /*gap*/) {}
  void begin(uint64_t /*ip*/) {}
  std::optional<Branch> take_last() { return std::nullopt; }
  void flush() {}

  // Moves all counts into `profile`; of the memo only what was forgotten.
  void move_to(EdgeProfile& profile);

 private:
  static constexpr size_t kFirstSlots = 512;
  struct Count {
    uint64_t taken = 0;  // or executed, if it always is
    uint64_t not_taken = 0;
  };
  // Of a call: the return (a record) that came back from it. Of other indirect branches: the node
  // (a link) that it led to first.
  struct Target {
    uint32_t other = 0;
    uint64_t uses = 0;
  };
  struct Slot {
    uint64_t ip = 0;
    uint64_t count = 0;
    uint32_t record = 0;  // 0: empty
  };

  [[nodiscard]] uint32_t index_of(const GraphRecord* record) const {
    return static_cast<uint32_t>(record - graph_.records());
  }
  void count(uint32_t record, uint64_t ip) {
    Slot& slot = place(record, ip);
    if (slot.record != 0) {
      ++slot.count;
    } else {
      insert(record, ip, 1);
    }
  }
  Slot& place(uint32_t record, uint64_t ip) {
    const size_t mask = others_.size() - 1;
    for (size_t i = (ip ^ record) * 0x9e3779b97f4a7c15 >> 20;; ++i) {
      Slot& slot = others_[i & mask];
      if (slot.record == 0 || (slot.record == record && slot.ip == ip)) return slot;
    }
  }
  void insert(uint32_t record, uint64_t ip, uint64_t count);

  const CodeGraph& graph_;
  ReservedArray<Count> counts_;    // by record
  ReservedArray<Target> targets_;  // by record
  std::vector<Slot> others_;       // branches with more than one target
  size_t other_count_ = 0;
};

}  // namespace auxtrail::decode
