// Pieces are handed out in order, and delivered in order by whoever decoded them.
#include "decode/parallel_decoder.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "decode/branch_assembler.h"
#include "decode/psb_border.h"

namespace auxtrail::decode {
namespace {

// What a piece told, kept until its turn comes.
class Kept : public FlowConsumer {
 public:
  explicit Kept(unsigned wants) : wants_(wants) {}

  [[nodiscard]] unsigned wants() const override { return wants_; }
  void on_branch(const Branch& branch) override { branches_.push_back(branch); }
  void on_branches(std::span<const Branch> branches) override {
    branches_.insert(branches_.end(), branches.begin(), branches.end());
  }
  void on_not_taken(uint64_t ip) override { not_taken_.push_back(ip); }
  void on_block(const Block& block) override { blocks_.push_back(block); }
  // Gaps and errors come after everything before them: so much of it there was then.
  void on_gap(const Gap& gap) override { marks_.push_back({here(), gap, {}, true}); }
  void on_error(const DecodeError& error) override { marks_.push_back({here(), {}, error, false}); }

  void clear() {
    branches_.clear();
    not_taken_.clear();
    blocks_.clear();
    marks_.clear();
    told_ = {};
  }

  // Whoever was told where the flow was before this piece gets the address.
  void set_last_ip_before(uint64_t ip) {
    const auto set = [ip](uint64_t& told) {
      if (told == BranchAssembler::kLastIpBefore) told = ip;
    };
    if (!branches_.empty()) set(branches_.front().from);
    for (Mark& mark : marks_) {
      set(mark.gap.from_ip);
      set(mark.error.ip);
    }
  }

  void tell(FlowConsumer& consumer) {
    for (const Mark& mark : marks_) {
      tell_until(mark.counts, consumer);
      mark.is_gap ? consumer.on_gap(mark.gap) : consumer.on_error(mark.error);
    }
    tell_until(here(), consumer);
  }

 private:
  struct Counts {
    size_t branches = 0;
    size_t not_taken = 0;
    size_t blocks = 0;
  };
  struct Mark {
    Counts counts;
    Gap gap;
    DecodeError error;
    bool is_gap = false;
  };

  [[nodiscard]] Counts here() const {
    return {branches_.size(), not_taken_.size(), blocks_.size()};
  }

  void tell_until(const Counts& until, FlowConsumer& consumer) {
    const std::span<const Branch> branches(branches_);
    if (until.branches != told_.branches) {
      consumer.on_branches(branches.subspan(told_.branches, until.branches - told_.branches));
    }
    for (size_t i = told_.not_taken; i < until.not_taken; ++i) consumer.on_not_taken(not_taken_[i]);
    for (size_t i = told_.blocks; i < until.blocks; ++i) consumer.on_block(blocks_[i]);
    told_ = until;
  }

  unsigned wants_;
  std::vector<Branch> branches_;
  std::vector<uint64_t> not_taken_;
  std::vector<Block> blocks_;
  std::vector<Mark> marks_;
  Counts told_;
};

// Lets threads do things in the order of their tickets.
class Turnstile {
 public:
  void wait_for(size_t ticket) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return next_ == ticket; });
  }
  void pass() {
    {
      const std::lock_guard lock(mutex_);
      ++next_;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t next_ = 0;
};

// The pieces' summaries as one, and what lies between them.
class Joint {
 public:
  explicit Joint(FlowConsumer& consumer) : consumer_(consumer), wants_(consumer.wants()) {}

  // In order. Before what the piece itself tells. Where the flow was before the piece.
  uint64_t add(DecodeSummary piece, NativeDecoder::PieceEnd end, bool continues) {
    const bool lost = continues && !tracing_ && piece.first_ip;
    const uint64_t before = lost ? *piece.first_ip : last_ip_;
    if (piece.final_ip == BranchAssembler::kLastIpBefore) piece.final_ip = before;
    if (end.last_ip == BranchAssembler::kLastIpBefore) end.last_ip = before;
    if (end.gap && end.gap->from_ip == BranchAssembler::kLastIpBefore) end.gap->from_ip = before;
    sum_ += piece;
    sum_.ends_open = piece.ends_open;
    if (lost) take_up(*piece.first_ip);
    if (continues && !piece.first_ip) return before;  // nothing happened in it
    tracing_ = end.tracing;
    gap_ = end.gap;
    last_ip_ = end.last_ip;
    return before;
  }
  [[nodiscard]] const DecodeSummary& sum() const { return sum_; }

 private:
  // The flow had been lost, and the PSB+ of this piece found it again.
  void take_up(uint64_t ip) {
    if (gap_) {
      gap_->to_ip = ip;
      ++sum_.gaps;
      if ((wants_ & kWantsGaps) != 0) consumer_.on_gap(*gap_);
    }
    if ((wants_ & kWantsBranches) != 0)
      consumer_.on_branch({0, ip, BranchKind::kTraceBegin, false});
  }

  FlowConsumer& consumer_;
  unsigned wants_;
  DecodeSummary sum_;
  bool tracing_ = false;
  std::optional<Gap> gap_;
  uint64_t last_ip_ = 0;
};

}  // namespace

ParallelDecoder::ParallelDecoder(const TraceConfig& config, unsigned threads,
                                 std::shared_ptr<ProgramCache> programs, size_t piece_bytes)
    : piece_bytes_(piece_bytes) {
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  if (!programs) programs = std::make_shared<ProgramCache>();
  for (unsigned i = 0; i < threads; ++i) {
    decoders_.push_back(std::make_unique<NativeDecoder>(config, programs));
  }
}

std::vector<ParallelDecoder::Piece> ParallelDecoder::cut(std::span<const std::byte> trace) const {
  std::vector<Piece> pieces;
  size_t begin = 0;
  for (const PsbBorder& border : tracing_borders(trace, piece_bytes_)) {
    pieces.push_back({trace.subspan(begin, border.end - begin), {begin, begin != 0, true}});
    begin = border.psb;
  }
  pieces.push_back({trace.subspan(begin), {begin, begin != 0, false}});
  return pieces;
}

// Each with a decoder of its own; returns when all are done.
void ParallelDecoder::on_all_threads(const std::function<void(NativeDecoder&)>& work) {
  std::vector<std::jthread> threads;
  for (size_t i = 1; i < decoders_.size(); ++i) threads.emplace_back(work, std::ref(*decoders_[i]));
  work(*decoders_[0]);
}

DecodeSummary ParallelDecoder::decode(const image::CodeMap& code, std::span<const std::byte> trace,
                                      FlowConsumer& consumer) {
  const std::vector<Piece> pieces = cut(trace);
  std::atomic<size_t> next{0};
  Turnstile turnstile;
  Joint joint(consumer);
  const auto work = [&](NativeDecoder& decoder) {
    Kept kept(consumer.wants());
    for (size_t i = next++; i < pieces.size(); i = next++) {
      kept.clear();
      NativeDecoder::PieceEnd end;
      const auto summary = decoder.decode_piece(code, pieces[i].trace, pieces[i].place, kept, end);
      turnstile.wait_for(i);
      kept.set_last_ip_before(joint.add(summary, end, pieces[i].place.continues));
      kept.tell(consumer);
      turnstile.pass();
    }
  };
  on_all_threads(work);
  DecodeSummary sum = joint.sum();
  sum.bytes = trace.size();
  return sum;
}

DecodeSummary ParallelDecoder::count_edges(const image::CodeMap& code,
                                           std::span<const std::byte> trace, EdgeProfile& profile) {
  const std::vector<Piece> pieces = cut(trace);
  std::atomic<size_t> next{0};
  std::vector<DecodeSummary> sums(pieces.size());
  std::vector<NativeDecoder::PieceEnd> ends(pieces.size());
  std::mutex merging;
  const auto work = [&](NativeDecoder& decoder) {
    EdgeProfile own;
    for (size_t i = next++; i < pieces.size(); i = next++) {
      sums[i] = decoder.count_edges_of_piece(code, pieces[i].trace, pieces[i].place, own, ends[i]);
    }
    decoder.flush_edges(own);
    const std::lock_guard lock(merging);
    profile.add(own);
  };
  on_all_threads(work);
  Joint joint(profile);
  for (size_t i = 0; i < pieces.size(); ++i) {
    (void)joint.add(sums[i], ends[i], pieces[i].place.continues);
  }
  DecodeSummary sum = joint.sum();
  sum.bytes = trace.size();
  return sum;
}

}  // namespace auxtrail::decode
