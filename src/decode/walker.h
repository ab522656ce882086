// Walker: one program's fast walks, whatever they deliver, behind one call per run.
//
// A walker belongs to one thread and one program, and keeps what it learnt from trace to trace.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "decode/edge_counts.h"
#include "decode/graph_walk.h"
#include "decode/program_code.h"
#include "decode/walk_outputs.h"

namespace auxtrail::decode {

class Walker {
 public:
  virtual ~Walker() = default;
  // Who is told of what follows. `base_offset` is where the trace begins in a longer one.
  virtual void begin(FlowConsumer& consumer, uint64_t base_offset) = 0;
  // GraphWalk::run(); hints in `stack` must be of this mode's graph. `before` is a branch that led
  // to where the walk begins, if nobody told it yet: it is told and reset as soon as anything was
  // executed behind it. All that happened is delivered afterwards, but for the last branch, if it
  // led to state.ip and is returned; the totals of this run do not count it.
  virtual bool run(flow::ExecMode mode, std::span<const std::byte> trace,
                   const WalkOptions& options, flow::ReturnStack& stack, WalkState& state,
                   WalkTotals& totals, std::optional<Branch>& before,
                   std::optional<Branch>& last) = 0;
  // For a walker that tells times: when the next run begins. It needs WalkOptions::clock.
  // `before`: of the branch before it.
  virtual void begin_at(const pt::Moment& /*now*/, const pt::Moment& /*before*/) {}
  // And when `last` was.
  [[nodiscard]] virtual pt::Moment last_time() const { return {}; }
  // Adds what was counted so far; for a walker that counts.
  virtual void flush_edges(EdgeProfile& /*profile*/) {}
};

template <typename Output>
class OutputWalker : public Walker {
 public:
  explicit OutputWalker(std::shared_ptr<ProgramCode> program) : program_(std::move(program)) {}

  void begin(FlowConsumer& consumer, uint64_t base_offset) override {
    consumer_ = &consumer;
    base_offset_ = base_offset;
  }

  bool run(flow::ExecMode mode, std::span<const std::byte> trace, const WalkOptions& options,
           flow::ReturnStack& stack, WalkState& state, WalkTotals& totals,
           std::optional<Branch>& before, std::optional<Branch>& last) override {
    auto& part = parts_[static_cast<size_t>(mode) - 1];
    if (!part) part = std::make_unique<Part>(program_->graph(mode));
    if constexpr (!std::is_same_v<Output, EdgeOutput>) {
      part->output.set_consumer(*consumer_, base_offset_);
      if constexpr (Output::kTellsTimes) {
        if (before) part->output.tell_time(time_before_);
      }
      if (before) part->output.add(*before);
    }
    if constexpr (Output::kTellsTimes) part->output.begin_at(now_, options.clock->moment());
    const WalkTotals totals_before = part->walk.totals();
    const bool went = part->walk.run(trace, options, stack, state);
    totals = part->walk.totals();
    totals -= totals_before;
    if constexpr (Output::kTellsTimes) last_time_ = part->output.newest();
    if constexpr (!std::is_same_v<Output, EdgeOutput>) {
      if (before && totals.instructions == 0) {
        (void)part->output.take_last();
      } else {
        before.reset();
      }
    }
    last = state.ended_with_branch ? part->output.take_last() : std::nullopt;
    if (last) --totals.taken;
    part->output.flush();
    return went;
  }

  void begin_at(const pt::Moment& now, const pt::Moment& before) override {
    now_ = now;
    time_before_ = before;
  }
  [[nodiscard]] pt::Moment last_time() const override { return last_time_; }

  void flush_edges(EdgeProfile& profile) override {
    if constexpr (std::is_same_v<Output, EdgeOutput>) {
      for (auto& part : parts_) {
        if (!part) continue;
        part->walk.settle();
        part->output.move_to(profile);
      }
    }
  }

 private:
  struct Part {
    explicit Part(CodeGraph& graph) : output(make_output(graph)), walk(graph, output) {}
    static Output make_output(CodeGraph& graph) {
      if constexpr (std::is_same_v<Output, EdgeOutput>) {
        return Output(graph);
      } else {
        return Output();
      }
    }
    Output output;
    GraphWalk<Output> walk;
  };

  std::shared_ptr<ProgramCode> program_;
  FlowConsumer* consumer_ = nullptr;
  uint64_t base_offset_ = 0;
  std::array<std::unique_ptr<Part>, 3> parts_;
  pt::Moment now_;
  pt::Moment time_before_;
  pt::Moment last_time_;
};

}  // namespace auxtrail::decode
