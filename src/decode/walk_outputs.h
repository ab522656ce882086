// What a GraphWalk makes of the flow: branches one after the other, and more if asked for.
//
// Outputs are template parameters of the walk, so that the hot calls are inlined:
//   kRemembers            whether the walk may use its TntMemo, and then remembered() and forget()
//   kTellsTimes           whether time() is called where a timing packet told a new time
//   conditional, indirect, returned, path, partial    what was executed, see below
// The counting one is in edge_counts.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "decode/branch_decoder.h"
#include "decode/code_graph.h"
#include "decode/tnt_memo.h"

namespace auxtrail::decode {

struct WalkTotals {
  uint64_t instructions = 0;
  uint64_t not_taken = 0;
  uint64_t taken = 0;
  uint64_t gaps = 0;

  WalkTotals& operator-=(const WalkTotals& other) {
    instructions -= other.instructions;
    not_taken -= other.not_taken;
    taken -= other.taken;
    gaps -= other.gaps;
    return *this;
  }
};

// Branches on their way to a consumer. The newest stays here when the others go: what comes next
// may say more about it.
class BranchBuffer {
 public:
  // Before anything else; what is not flushed is lost.
  void set_consumer(FlowConsumer& consumer) {
    consumer_ = &consumer;
    wanted_ = (consumer.wants() & kWantsBranches) != 0;
    end_ = branches_.data();
    times_.clear();
  }

  // Room for kRoom more; add what was written there with advance().
  static constexpr size_t kRoom = 64;
  [[nodiscard]] Branch* end() { return end_; }
  void advance(size_t count) {
    end_ += count;
    if (end_ >= branches_.data() + kCapacity) [[unlikely]]
      flush_but_last();
  }
  void add(const Branch& branch) {
    *end_ = branch;
    advance(1);
  }
  [[nodiscard]] bool empty() const { return end_ == branches_.data(); }
  [[nodiscard]] Branch& last() { return end_[-1]; }
  Branch take_last() { return *--end_; }
  void flush() {
    if (!times_.empty()) [[unlikely]]
      return flush_with_times();
    deliver(branches_.data(), end_);
    end_ = branches_.data();
  }

  // The branches behind the next `ahead` have this time.
  void add_time(const pt::Moment& time, size_t ahead) {
    const auto index = static_cast<size_t>(end_ - branches_.data()) + ahead;
    if (!times_.empty() && times_.back().index == index) times_.pop_back();
    times_.push_back({index, time});
  }

 private:
  static constexpr size_t kCapacity = 512;
  struct Time {
    size_t index;
    pt::Moment time;
  };

  void deliver(const Branch* first, const Branch* end) {
    if (wanted_ && first != end) consumer_->on_branches({first, static_cast<size_t>(end - first)});
  }
  // Times of branches that are still to come stay.
  void flush_with_times() {
    const Branch* first = branches_.data();
    const auto count = static_cast<size_t>(end_ - first);
    size_t told = 0;
    for (; told < times_.size() && times_[told].index < count; ++told) {
      const Branch* at = branches_.data() + times_[told].index;
      deliver(first, at);
      consumer_->on_time(times_[told].time);
      first = at;
    }
    deliver(first, end_);
    end_ = branches_.data();
    times_.erase(times_.begin(), times_.begin() + static_cast<std::ptrdiff_t>(told));
    for (Time& time : times_) time.index -= count;
  }
  void flush_but_last() {
    const Branch newest = take_last();
    flush();
    *end_++ = newest;
  }

  FlowConsumer* consumer_ = nullptr;
  bool wanted_ = false;
  std::vector<Branch> branches_ = std::vector<Branch>(kCapacity + kRoom);
  Branch* end_ = branches_.data();
  std::vector<Time> times_;
};

// Every taken branch.
class BranchOutput {
 public:
  static constexpr bool kRemembers = true;
  static constexpr bool kTellsTimes = false;

  // Before anything else. `base_offset` is where the trace begins in a longer one.
  void set_consumer(FlowConsumer& consumer, uint64_t base_offset) {
    buffer_.set_consumer(consumer);
    consumer_ = &consumer;
    base_offset_ = base_offset;
    wants_gaps_ = (consumer.wants() & kWantsGaps) != 0;
  }

  // The node's path was executed, and its conditional branch (taken: 1).
  [[gnu::always_inline]] inline void conditional(const GraphNode& node, const GraphRecord* records,
                                                 unsigned taken) {
    Branch* to = buffer_.end();
    for (unsigned i = 0; i < node.path_count; ++i) to[i] = records[i].branch;
    to[node.path_count] = records[node.path_count].branch;
    buffer_.advance(node.path_count + taken);
  }
  // The node's path was executed, and the branch that ends it, which led to `ip`, the node `next`
  // (0: none is known).
  void indirect(const GraphNode& node, const GraphRecord* records, Link /*next*/, uint64_t ip) {
    Branch* to = buffer_.end();
    for (unsigned i = 0; i <= node.path_count; ++i) to[i] = records[i].branch;
    to[node.path_count].to = ip;
    buffer_.advance(node.path_count + 1u);
  }
  // The same for a compressed return behind the call `call` (a record; 0: unknown).
  void returned(const GraphNode& node, const GraphRecord* records, uint32_t /*call*/, uint64_t ip) {
    indirect(node, records, 0, ip);
  }
  // Only the path.
  void path(const GraphNode& node, const GraphRecord* records) {
    partial(node, records, node.path_count);
  }
  // The first `count` branches of the path.
  void partial(const GraphNode& /*node*/, const GraphRecord* records, unsigned count) {
    Branch* to = buffer_.end();
    for (unsigned i = 0; i < count; ++i) to[i] = records[i].branch;
    buffer_.advance(count);
  }
  [[gnu::always_inline]] inline void remembered(const TntMemo::Entry& entry, TntMemo& memo,
                                                size_t place, const GraphRecord* records) {
    static_assert(TntMemo::kMaxRecords == 8);
    const TntMemo::Way& way = memo.way(place);
    Branch* to = buffer_.end();
    for (unsigned i = 0; i < 4; ++i) to[i] = records[way.records[i]].branch;
    if (entry.taken() > 4) {
      for (unsigned i = 4; i < 8; ++i) to[i] = records[way.records[i]].branch;
    }
    buffer_.advance(entry.taken());
  }
  void forget(CodeGraph& /*graph*/, TntMemo::Entry& /*entry*/, const TntMemo::Way& /*way*/) {}

  // Tracing was left with the branch delivered last; or else right behind the instruction at
  // `last_ip`.
  void leave_with_branch() { buffer_.last().ends_trace = true; }
  void leave_behind(uint64_t last_ip) { buffer_.add({last_ip, 0, BranchKind::kTraceEnd, true}); }
  void gap(const Gap& gap) {
    if (!wants_gaps_) return;
    buffer_.flush();
    Gap moved = gap;
    moved.offset += base_offset_;
    consumer_->on_gap(moved);
  }
  void begin(uint64_t ip) { buffer_.add({0, ip, BranchKind::kTraceBegin, false}); }

  // A branch from before the walk.
  void add(const Branch& branch) { buffer_.add(branch); }

  // The branch delivered last, if the walk may still learn more about it; then it is not delivered.
  std::optional<Branch> take_last() {
    if (buffer_.empty()) return std::nullopt;
    return buffer_.take_last();
  }
  void flush() { buffer_.flush(); }

 protected:
  FlowConsumer* consumer_ = nullptr;
  BranchBuffer buffer_;

 private:
  uint64_t base_offset_ = 0;
  bool wants_gaps_ = false;
};

// Branches, those not taken, and blocks.
class FullOutput : public BranchOutput {
 public:
  static constexpr bool kRemembers = false;

  void set_consumer(FlowConsumer& consumer, uint64_t base_offset) {
    BranchOutput::set_consumer(consumer, base_offset);
    wants_ = consumer.wants();
  }

  void conditional(const GraphNode& node, const GraphRecord* records, unsigned taken) {
    BranchOutput::conditional(node, records, taken);
    add_blocks(node, records, node.path_count + 1u);
    if (taken == 0 && (wants_ & kWantsNotTaken) != 0) {
      consumer_->on_not_taken(records[node.path_count].branch.from);
    }
  }
  void indirect(const GraphNode& node, const GraphRecord* records, Link next, uint64_t ip) {
    BranchOutput::indirect(node, records, next, ip);
    add_blocks(node, records, node.path_count + 1u);
  }
  void returned(const GraphNode& node, const GraphRecord* records, uint32_t /*call*/, uint64_t ip) {
    indirect(node, records, 0, ip);
  }
  void path(const GraphNode& node, const GraphRecord* records) {
    BranchOutput::path(node, records);
    add_blocks(node, records, node.path_count);
  }
  void partial(const GraphNode& node, const GraphRecord* records, unsigned count) {
    BranchOutput::partial(node, records, count);
    add_blocks(node, records, count);
  }

 private:
  void add_blocks(const GraphNode& node, const GraphRecord* records, unsigned count) {
    if ((wants_ & kWantsBlocks) == 0) return;
    uint64_t first_ip = node.ip;
    for (unsigned i = 0; i < count; ++i) {
      consumer_->on_block({first_ip, records[i].branch.from, records[i].instructions});
      first_ip = records[i].branch.to;
    }
  }

  unsigned wants_ = 0;
};

// All that, and when the branches were. A time is told by a packet before the one that it is the
// time of, which decides only the last branch of a node: the direct branches on the way there were
// earlier, so the time is theirs who come behind them.
class TimedOutput : public FullOutput {
 public:
  static constexpr bool kTellsTimes = true;

  // The time when a walk begins, and that of the packet that comes next if no other is told.
  void begin_at(const pt::Moment& now, const pt::Moment& next) {
    waits_ = next != now;
    waiting_ = next;
    newest_ = now;
    buffer_.add_time(now, 0);
  }
  void time(const pt::Moment& now) {
    waits_ = true;
    waiting_ = now;
  }
  // The time of what is added next.
  void tell_time(const pt::Moment& now) { buffer_.add_time(now, 0); }
  // Of the branch that was written last.
  [[nodiscard]] const pt::Moment& newest() const { return newest_; }

  void conditional(const GraphNode& node, const GraphRecord* records, unsigned taken) {
    commit(node.path_count);
    FullOutput::conditional(node, records, taken);
  }
  void indirect(const GraphNode& node, const GraphRecord* records, Link next, uint64_t ip) {
    commit(node.path_count);
    FullOutput::indirect(node, records, next, ip);
  }
  void returned(const GraphNode& node, const GraphRecord* records, uint32_t /*call*/, uint64_t ip) {
    indirect(node, records, 0, ip);
  }
  void partial(const GraphNode& node, const GraphRecord* records, unsigned count) {
    commit(count - 1);
    FullOutput::partial(node, records, count);
  }
  void leave_behind(uint64_t last_ip) {
    commit(0);
    FullOutput::leave_behind(last_ip);
  }
  void begin(uint64_t ip) {
    commit(0);
    FullOutput::begin(ip);
  }

 private:
  void commit(size_t ahead) {
    if (!waits_) return;
    waits_ = false;
    newest_ = waiting_;
    buffer_.add_time(waiting_, ahead);
  }

  bool waits_ = false;
  pt::Moment waiting_;
  pt::Moment newest_;
};

}  // namespace auxtrail::decode
