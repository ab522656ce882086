// Who walks which program, and the decoder's calls.
#include "decode/native_decoder.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "decode/decoder_config.h"
#include "decode/native_flow.h"
#include "decode/native_stream.h"
#include "decode/walker.h"

namespace auxtrail::decode {
namespace {

enum class Delivery : uint8_t { kBranches, kAll, kTimed, kEdges };

Delivery delivery_for(const FlowConsumer& consumer) {
  if ((consumer.wants() & kWantsTimes) != 0) return Delivery::kTimed;
  const unsigned others = kWantsNotTaken | kWantsBlocks;
  return (consumer.wants() & others) != 0 ? Delivery::kAll : Delivery::kBranches;
}

}  // namespace

// The walkers of all programs met so far.
class NativeDecoder::Workers {
 public:
  Workers(std::shared_ptr<ProgramCache> programs, bool walks)
      : programs_(std::move(programs)), walks_(walks) {}

  // One flow's view: every program with the walker that delivers what it wants.
  class View : public FlowPrograms {
   public:
    View(Workers& workers, Delivery delivery) : workers_(workers), delivery_(delivery) {
      ++workers_.views_;
    }
    ~View() override { --workers_.views_; }
    View(const View&) = delete;
    View& operator=(const View&) = delete;

    Program get(const image::CodeMap& code) override { return workers_.get(code, delivery_); }

   private:
    Workers& workers_;
    Delivery delivery_;
  };

  void flush_edges(EdgeProfile& profile) {
    for (auto& [program, worker] : workers_) {
      if (worker.edges) worker.edges->flush_edges(profile);
    }
    profile.add(retired_);
    retired_ = {};
  }

 private:
  static constexpr size_t kMaxWorkers = 64;

  struct Worker {
    std::shared_ptr<ProgramCode> program;
    std::unique_ptr<Walker> branches;
    std::unique_ptr<Walker> all;
    std::unique_ptr<Walker> timed;
    std::unique_ptr<Walker> edges;
  };

  FlowPrograms::Program get(const image::CodeMap& code, Delivery delivery) {
    auto program = programs_->get(code);
    if (workers_.size() >= kMaxWorkers && views_ == 1) retire();
    Worker& worker = workers_[program.get()];
    worker.program = program;
    if (!walks_) return {&program->memory(), nullptr};
    return {&program->memory(), &walker(worker, delivery)};
  }

  static Walker& walker(Worker& worker, Delivery delivery) {
    switch (delivery) {
      case Delivery::kBranches:
        return made<BranchOutput>(worker.branches, worker.program);
      case Delivery::kAll:
        return made<FullOutput>(worker.all, worker.program);
      case Delivery::kTimed:
        return made<TimedOutput>(worker.timed, worker.program);
      case Delivery::kEdges:
        break;
    }
    return made<EdgeOutput>(worker.edges, worker.program);
  }

  template <typename Output>
  static Walker& made(std::unique_ptr<Walker>& walker,
                      const std::shared_ptr<ProgramCode>& program) {
    if (!walker) walker = std::make_unique<OutputWalker<Output>>(program);
    return *walker;
  }

  void retire() {
    for (auto& [program, worker] : workers_) {
      if (worker.edges) worker.edges->flush_edges(retired_);
    }
    workers_.clear();
  }

  std::shared_ptr<ProgramCache> programs_;
  bool walks_;
  std::unordered_map<const ProgramCode*, Worker> workers_;
  EdgeProfile retired_;
  size_t views_ = 0;
};

NativeDecoder::NativeDecoder(const TraceConfig& config, std::shared_ptr<ProgramCache> programs,
                             const NativeOptions& options)
    : config_(to_pt_config(config)),
      programs_(programs ? std::move(programs) : std::make_shared<ProgramCache>()),
      workers_(std::make_unique<Workers>(programs_, options.walks)) {}

NativeDecoder::~NativeDecoder() = default;

DecodeSummary NativeDecoder::decode(const image::CodeMap& code, std::span<const std::byte> trace,
                                    FlowConsumer& consumer) {
  PieceEnd end;
  return decode_piece(code, trace, {}, consumer, end);
}

DecodeSummary NativeDecoder::decode_piece(const image::CodeMap& code,
                                          std::span<const std::byte> trace,
                                          const NativeFlow::Piece& piece, FlowConsumer& consumer,
                                          PieceEnd& end) {
  Workers::View view(*workers_, delivery_for(consumer));
  return run(code, trace, piece, consumer, view, end);
}

DecodeSummary NativeDecoder::run(const image::CodeMap& code, std::span<const std::byte> trace,
                                 const NativeFlow::Piece& piece, FlowConsumer& consumer,
                                 FlowPrograms& programs, PieceEnd& end) {
  if (trace.empty()) return {};
  FixedCode fixed(code);
  NativeFlow flow(config_, trace, programs, fixed, consumer, piece);
  while (flow.step()) {
  }
  end = {flow.tracing(), flow.open_gap(), flow.last_ip()};
  return flow.summary();
}

std::unique_ptr<TraceStream> NativeDecoder::open(std::vector<std::span<const std::byte>> pieces,
                                                 CodeTimeline& code, FlowConsumer& consumer,
                                                 const StreamOptions& options) {
  auto view = std::make_unique<Workers::View>(*workers_, delivery_for(consumer));
  return std::make_unique<NativeStream>(config_, std::move(pieces), std::move(view), code, consumer,
                                        options);
}

DecodeSummary NativeDecoder::count_edges(const image::CodeMap& code,
                                         std::span<const std::byte> trace, EdgeProfile& profile) {
  PieceEnd end;
  return count_edges_of_piece(code, trace, {}, profile, end);
}

DecodeSummary NativeDecoder::count_edges_of_piece(const image::CodeMap& code,
                                                  std::span<const std::byte> trace,
                                                  const NativeFlow::Piece& piece,
                                                  EdgeProfile& profile, PieceEnd& end) {
  Workers::View view(*workers_, Delivery::kEdges);
  return run(code, trace, piece, profile, view, end);
}

void NativeDecoder::flush_edges(EdgeProfile& profile) { workers_->flush_edges(profile); }

std::unique_ptr<BranchDecoder> make_native_decoder(const TraceConfig& config) {
  return std::make_unique<NativeDecoder>(config);
}

}  // namespace auxtrail::decode
