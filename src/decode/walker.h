// Walker: one program's fast walks, whatever they deliver, behind one call per run.
//
// A walker belongs to one thread and one program, and keeps what it learnt from trace to trace.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "decode/edge_counts.h"
#include "decode/graph_walk.h"
#include "decode/program_code.h"
#include "decode/walk_outputs.h"

namespace auxtrail::decode {

// To whom a run delivers, and what is left over for the owner of the flow to tell.
struct WalkDelivery {
  FlowConsumer& consumer;
  uint64_t base_offset = 0;  // where the trace begins in a longer one
  // A branch that led to where the walk begins, if nobody told it yet: it is told and reset as soon
  // as anything was executed behind it.
  std::optional<Branch> before{};
  // For consumers that want times: of `before`; and of what comes first. Afterwards: of `last`.
  pt::Moment time_before{};
  pt::Moment now{};

  // The last branch, if it led to state.ip: it is not delivered, nor in the totals of this run.
  std::optional<Branch> last{};
  WalkTotals totals{};
};

class Walker {
 public:
  virtual ~Walker() = default;
  // GraphWalk::run(); hints in `stack` must be of this mode's graph.
  virtual bool run(flow::ExecMode mode, std::span<const std::byte> trace,
                   const WalkOptions& options, flow::ReturnStack& stack, WalkState& state,
                   WalkDelivery& delivery) = 0;
  // Adds what was counted so far; for a walker that counts.
  virtual void flush_edges(EdgeProfile& /*profile*/) {}
};

template <typename Output>
class OutputWalker : public Walker {
 public:
  explicit OutputWalker(std::shared_ptr<ProgramCode> program) : program_(std::move(program)) {}

  bool run(flow::ExecMode mode, std::span<const std::byte> trace, const WalkOptions& options,
           flow::ReturnStack& stack, WalkState& state, WalkDelivery& delivery) override {
    auto& part = parts_[static_cast<size_t>(mode) - 1];
    if (!part) part = std::make_unique<Part>(program_->graph(mode));
    Output& output = part->output;
    if constexpr (!kCounts) {
      output.set_consumer(delivery.consumer, delivery.base_offset);
      if constexpr (Output::kTellsTimes) {
        if (delivery.before) output.tell_time(delivery.time_before);
      }
      if (delivery.before) output.add(*delivery.before);
    }
    if constexpr (Output::kTellsTimes) output.begin_at(delivery.now, options.clock->moment());
    const WalkTotals totals_before = part->walk.totals();
    const bool went = part->walk.run(trace, options, stack, state);
    delivery.totals = part->walk.totals();
    delivery.totals -= totals_before;
    if constexpr (Output::kTellsTimes) delivery.now = output.newest();
    if constexpr (!kCounts) {
      if (delivery.before && delivery.totals.instructions == 0) {
        (void)output.take_last();
      } else {
        delivery.before.reset();
      }
    }
    delivery.last = state.ended_with_branch ? output.take_last() : std::nullopt;
    if (delivery.last) --delivery.totals.taken;
    output.flush();
    return went;
  }

  void flush_edges(EdgeProfile& profile) override {
    if constexpr (kCounts) {
      for (auto& part : parts_) {
        if (!part) continue;
        part->walk.settle();
        part->output.move_to(profile);
      }
    }
  }

 private:
  static constexpr bool kCounts = std::is_same_v<Output, EdgeOutput>;

  struct Part {
    explicit Part(CodeGraph& graph) : output(make_output(graph)), walk(graph, output) {}
    static Output make_output(CodeGraph& graph) {
      if constexpr (kCounts) {
        return Output(graph);
      } else {
        return Output();
      }
    }
    Output output;
    GraphWalk<Output> walk;
  };

  std::shared_ptr<ProgramCode> program_;
  std::array<std::unique_ptr<Part>, 3> parts_;
};

}  // namespace auxtrail::decode
