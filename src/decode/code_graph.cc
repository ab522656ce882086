// Making nodes: walking straight code and direct branches once.
#include "decode/code_graph.h"

#include <algorithm>
#include <array>
#include <limits>

#include "flow/instruction.h"

namespace auxtrail::decode {
namespace {

constexpr size_t kMaxRecords = size_t{1} << 25;
constexpr size_t kMaxPath = 16;
constexpr uint32_t kMaxInstructions = std::numeric_limits<uint16_t>::max();
constexpr size_t kMaxInsnBytes = 15;

}  // namespace

// One node in the making.
struct CodeGraph::Builder {
  struct Step {
    uint64_t from;
    uint64_t to;
    BranchKind kind;
    uint32_t instructions;
    uint8_t length;
    bool pushes;
  };

  uint64_t ip = 0;
  NodeKind kind = NodeKind::kStop;
  uint32_t instructions = 0;
  std::array<Step, kMaxPath + 1> steps;  // only step_count of them are set
  size_t step_count = 0;

  void add(const flow::Instruction& insn, uint64_t from, BranchKind branch_kind, uint64_t to,
           uint32_t block_instructions) {
    const bool is_call =
        branch_kind == BranchKind::kCallIndirect ||
        (branch_kind == BranchKind::kCall && insn.relative != 0);  // else it reads its own address
    steps[step_count++] = {from, to, branch_kind, block_instructions, insn.length, is_call};
  }
};

CodeGraph::CodeGraph(const flow::CodeMemory& memory, flow::ExecMode mode)
    : memory_(memory), mode_(mode), nodes_(kMaxNodes), records_(kMaxRecords) {}

Link CodeGraph::link_to(uint64_t ip) {
  Link link = table_.find(ip);
  if (link != 0) return link;
  const std::lock_guard lock(making_);
  link = table_.find(ip);
  if (link != 0) return link;
  link = make_node(ip);
  if (link != 0) table_.insert(ip, link);
  return link;
}

uint64_t CodeGraph::target(const GraphNode& node, unsigned outcome) const {
  const bool goes_on = node.kind == NodeKind::kContinue;
  const GraphRecord& last = records_[node.records + node.path_count - (goes_on ? 1 : 0)];
  return goes_on || outcome == 1 ? last.branch.to : last.fall_through();
}

Link CodeGraph::follow(Link link, unsigned outcome) {
  GraphNode& from = nodes_[index_of(link)];
  const Link next = link_to(target(from, outcome));
  from.next[outcome].store(next, std::memory_order_release);
  return next;
}

Link CodeGraph::find_return_link(uint32_t record) {
  GraphRecord& call = records_[record];
  const Link link = link_to(call.fall_through());
  call.return_link.store(link, std::memory_order_release);
  return link;
}

uint32_t CodeGraph::return_record(uint32_t ending, uint32_t call) {
  const std::lock_guard lock(making_);
  uint32_t& index = return_records_[uint64_t{ending} << 32 | call];
  if (index != 0 || record_count_ == records_.size()) return index;
  index = record_count_++;
  GraphRecord& record = records_[index];
  record.branch = records_[ending].branch;
  record.branch.to = records_[call].fall_through();
  record.instructions = records_[ending].instructions;
  return index;
}

Link CodeGraph::make_node(uint64_t ip) {
  using flow::InsnClass;
  Builder built;
  built.ip = ip;
  uint32_t block_instructions = 0;
  const flow::CodeSection* section = memory_.find(ip);
  if (section == nullptr) return 0;
  while (built.instructions < kMaxInstructions) {
    if (ip - section->address >= section->bytes.size()) section = memory_.find(ip);
    if (section == nullptr) break;
    const auto bytes = section->bytes.subspan(ip - section->address);
    flow::Instruction insn;
    bool valid = false;
    if (bytes.size() >= kMaxInsnBytes) {
      valid = flow::decode_instruction(bytes.data(), bytes.size(), mode_, insn);
    } else {  // it may reach into the next section
      std::array<uint8_t, kMaxInsnBytes> buffer{};
      const size_t count = memory_.read(ip, buffer.data(), buffer.size());
      valid = flow::decode_instruction(buffer.data(), count, mode_, insn);
    }
    if (!valid) break;
    ++built.instructions;
    ++block_instructions;
    const uint64_t behind = ip + insn.length;
    const uint64_t target = behind + static_cast<uint64_t>(insn.relative);
    switch (insn.cls) {
      case InsnClass::kOther:
      case InsnClass::kPtwrite:
        ip = behind;
        continue;
      case InsnClass::kJump:
      case InsnClass::kCall:
        built.add(insn, ip, insn.cls == InsnClass::kJump ? BranchKind::kJump : BranchKind::kCall,
                  target, block_instructions);
        block_instructions = 0;
        ip = target;
        if (built.step_count < kMaxPath) continue;
        built.kind = NodeKind::kContinue;
        return store(built);
      case InsnClass::kCondJump:
        // Both ways are one, and count as not taken: see BranchAssembler.
        if (insn.relative == 0) break;
        built.add(insn, ip, BranchKind::kConditional, target, block_instructions);
        built.kind = NodeKind::kConditional;
        return store(built);
      case InsnClass::kReturn:
        built.add(insn, ip, BranchKind::kReturn, 0, block_instructions);
        built.kind = NodeKind::kReturn;
        return store(built);
      case InsnClass::kJumpIndirect:
      case InsnClass::kCallIndirect:
        built.add(insn, ip,
                  insn.cls == InsnClass::kJumpIndirect ? BranchKind::kJumpIndirect
                                                       : BranchKind::kCallIndirect,
                  0, block_instructions);
        built.kind = NodeKind::kIndirect;
        return store(built);
      default:
        break;
    }
    break;
  }
  built.kind = NodeKind::kStop;
  built.step_count = 0;
  return store(built);
}

Link CodeGraph::store(const Builder& built) {
  const uint32_t index = node_count_;
  if (index >= nodes_.size() || record_count_ + built.step_count > records_.size()) {
    return 0;
  }
  GraphNode& node = nodes_[index];
  node.records = record_count_;
  node.kind = built.kind;
  const size_t ending = built.kind == NodeKind::kContinue || built.step_count == 0 ? 0 : 1;
  node.path_count = static_cast<uint8_t>(built.step_count - ending);
  node.ip = built.ip;
  node.instructions = static_cast<uint16_t>(built.instructions);
  for (size_t i = 0; i < built.step_count; ++i) {
    const Builder::Step& step = built.steps[i];
    GraphRecord& record = records_[record_count_++];
    record.branch = {step.from, step.to, step.kind, false, step.length};
    record.instructions = static_cast<uint16_t>(step.instructions);
    record.pushes = step.pushes;
    node.push_count = static_cast<uint8_t>(node.push_count + (step.pushes ? 1 : 0));
  }
  ++node_count_;
  return make_link(index, built.kind);
}

}  // namespace auxtrail::decode
