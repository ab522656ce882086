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

// The branches of one or many traces with their numbers. A consumer, too, for any decoder.
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
    Edge& edge = edges_[{branch.from, branch.to}];
    edge.branch = branch;
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
  void on_branch(const Branch& branch) override { add(branch, 1); }
  void on_not_taken(uint64_t ip) override { add_untaken(ip, 1); }

 private:
  struct Ends {
    uint64_t from = 0;
    uint64_t to = 0;
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
      : graph_(graph), outcomes_(2 * graph.max_nodes()), dynamic_(kFirstSlots) {}

  [[gnu::always_inline]] inline void conditional(const GraphNode& node,
                                                 const GraphRecord* /*records*/, unsigned taken) {
    ++outcomes_[2 * index_of(node) + taken];
  }
  void dynamic(const GraphNode& node, const GraphRecord* records, Link /*next*/, uint64_t ip) {
    if (node.path_count != 0) ++outcomes_[2 * index_of(node)];
    count(records + node.path_count, ip);
  }
  void path(const GraphNode& node, const GraphRecord* /*records*/) {
    ++outcomes_[2 * index_of(node)];
  }
  void partial(const GraphNode& /*node*/, const GraphRecord* records, unsigned n) {
    for (unsigned i = 0; i < n; ++i) count(records + i, records[i].branch.to);
  }
  [[gnu::always_inline]] inline void remembered(const TntMemo::Entry& /*entry*/, TntMemo::Way& way,
                                                const GraphRecord* /*records*/) {
    ++way.uses;
  }
  // Before an entry goes: what it stood for is counted.
  void forget(const CodeGraph& graph, const TntMemo::Entry& entry, TntMemo::Way& way);

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
  struct Slot {
    uint64_t ip = 0;
    uint64_t count = 0;
    uint32_t record = 0;  // 0: empty
  };

  [[nodiscard]] uint32_t index_of(const GraphNode& node) const {
    return static_cast<uint32_t>(&node - graph_.nodes());
  }
  void count(const GraphRecord* record, uint64_t ip) {
    const auto index = static_cast<uint32_t>(record - graph_.records());
    Slot& slot = place(index, ip);
    if (slot.record != 0) {
      ++slot.count;
    } else {
      insert(index, ip, 1);
    }
  }
  Slot& place(uint32_t record, uint64_t ip) {
    const size_t mask = dynamic_.size() - 1;
    for (size_t i = (ip ^ record) * 0x9e3779b97f4a7c15 >> 20;; ++i) {
      Slot& slot = dynamic_[i & mask];
      if (slot.record == 0 || (slot.record == record && slot.ip == ip)) return slot;
    }
  }
  void insert(uint32_t record, uint64_t ip, uint64_t count);

  const CodeGraph& graph_;
  ReservedArray<uint64_t> outcomes_;  // by node: not taken (or executed), taken
  std::vector<Slot> dynamic_;         // branches with more than one target
  size_t dynamic_count_ = 0;
};

}  // namespace auxtrail::decode
