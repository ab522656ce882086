// CodeGraph: the program's code as a graph of decoded blocks, made as the flow comes by.
//
// A node stands for an address where the flow can come to, and covers all that follows without the
// help of a packet: straight code and direct jumps and calls (its *path*), up to the branch that a
// TNT bit or a TIP packet decides. So a conditional branch is one step: `next = node.next[bit]`.
//
//   node 0x1000:  ..., call f ──path──► f: ..., jcc          records: call 0x1010→f, jcc→0x2040
//                                             │ bit 0 ─► next[0]   (fall through)
//                                             └ bit 1 ─► next[1]   (0x2040)
//
// A *link* is a node's index and its kind in one number, so that a walk knows what comes next
// without looking at it.
//
// Nodes and records are made once and never change but for the links between nodes, which are found
// on first use. Any number of threads may follow the graph while others extend it.
// What the walk cannot do (far branches, transactions, unknown code) is a node of kind kStop.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "base/reserved_array.h"
#include "decode/branch.h"
#include "decode/node_table.h"
#include "flow/code_memory.h"
#include "flow/event.h"

namespace auxtrail::decode {

// A branch of a path, or the branch that ends it.
struct GraphRecord {
  Branch branch;  // `to` is 0 where a TIP packet tells it
  // Of a call: the link to its return address, 0 as long as that is unknown.
  std::atomic<uint32_t> return_link{0};
  uint16_t instructions = 0;  // in the block that ends with this branch
  bool pushes = false;        // a call whose return may be compressed

  [[nodiscard]] uint64_t fall_through() const { return branch.from + branch.length; }
};
static_assert(sizeof(GraphRecord) == 32);

enum class NodeKind : uint8_t {
  kNone,         // no node
  kConditional,  // one TNT bit
  kReturn,       // one TNT bit of 1, or a TIP
  kIndirect,     // a TIP: jump or call
  kContinue,     // nothing: the path went on for too long
  kStop,         // the walk cannot go on from here
};

using Link = uint32_t;  // 0: none
inline constexpr unsigned kLinkBits = 27;
inline constexpr uint32_t kMaxNodes = 1u << (kLinkBits - 3);
constexpr Link make_link(uint32_t index, NodeKind kind) {
  return index << 3 | static_cast<uint32_t>(kind);
}
constexpr uint32_t index_of(Link link) { return link >> 3; }
constexpr NodeKind kind_of(Link link) { return static_cast<NodeKind>(link & 7); }

struct alignas(32) GraphNode {
  // kConditional: by the TNT bit. kContinue: [0]. kIndirect: [0] is where it led lately. 0: not yet
  // known.
  std::atomic<Link> next[2] = {};
  uint32_t records = 0;  // the first of path_count, then the one that ends the node
  NodeKind kind = NodeKind::kStop;
  uint8_t path_count = 0;
  uint8_t push_count = 0;  // records that push, the last one included
  uint64_t ip = 0;
  uint16_t instructions = 0;
};
static_assert(sizeof(GraphNode) == 32);

class CodeGraph {
 public:
  // `memory` must outlive the graph and not change.
  CodeGraph(const flow::CodeMemory& memory, flow::ExecMode mode);

  // The node at `ip`, made if need be. 0 if no code is known there, or the graph is full.
  Link link_to(uint64_t ip);
  // Where the conditional branch at the end of `node` (or, for kContinue, its path) leads to;
  // `outcome` is the TNT bit.
  [[nodiscard]] uint64_t target(const GraphNode& node, unsigned outcome) const;
  // The node there; 0 as above.
  Link follow(Link node, unsigned outcome);
  // The node behind the call `record`; 0 as above.
  Link return_link(uint32_t record) {
    const Link link = records_[record].return_link.load(std::memory_order_acquire);
    return link != 0 ? link : find_return_link(record);
  }

  // The return that the record `ending` stands for, as a branch to behind the call `call`: a record
  // of its own. 0 if the graph is full.
  uint32_t return_record(uint32_t ending, uint32_t call);

  [[nodiscard]] const GraphNode* nodes() const { return nodes_.data(); }
  [[nodiscard]] GraphNode& node(uint32_t index) { return nodes_[index]; }
  [[nodiscard]] const GraphNode& node(uint32_t index) const { return nodes_[index]; }
  [[nodiscard]] const GraphRecord* records() const { return records_.data(); }
  [[nodiscard]] GraphRecord& record(uint32_t index) { return records_[index]; }
  [[nodiscard]] const GraphRecord& record(uint32_t index) const { return records_[index]; }
  [[nodiscard]] size_t max_records() const { return records_.size(); }
  // One more than the highest index in use.
  [[nodiscard]] uint32_t record_count() const {
    return record_count_.load(std::memory_order_acquire);
  }

 private:
  struct Builder;

  Link find_return_link(uint32_t record);
  Link make_node(uint64_t ip);
  Link store(const Builder& built);

  const flow::CodeMemory& memory_;
  flow::ExecMode mode_;
  NodeTable table_;
  std::unordered_map<uint64_t, uint32_t> return_records_;  // by ending and call
  ReservedArray<GraphNode> nodes_;
  ReservedArray<GraphRecord> records_;
  std::mutex making_;
  uint32_t node_count_ = 1;
  std::atomic<uint32_t> record_count_{1};
};

}  // namespace auxtrail::decode
