// BlockFlow: one level below branches: runs of instructions, the events between them, and errors,
// of any decoder that has them.
//
// Decoders cut the flow differently: one instruction at a time, or ending blocks at a section's
// end. So a run goes on until a branch, an event or an error ends it, whatever the decoder's own
// pieces are. Of times, those of the events are kept, and the newest at a run's end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "decode/testing/differential_case.h"
#include "flow/event.h"
#include "flow/status.h"

namespace auxtrail::decode::testing {

enum class BlockRecordKind : uint8_t { kRun, kEvent, kError };

struct BlockRecord {
  BlockRecordKind kind = BlockRecordKind::kRun;
  // kRun
  flow::ExecMode mode = flow::ExecMode::kUnknown;
  bool is_speculative = false;
  uint64_t first_ip = 0;
  uint64_t last_ip = 0;
  uint64_t instructions = 0;
  uint64_t time = 0;  // 0: none
  // kEvent
  flow::Event event;
  bool resumed = false;
  // kError
  flow::Status error = flow::Status::kOk;
  uint64_t offset = 0;
};

std::string text(const BlockRecord& record);

// Collects records, and merges what belongs to one run.
class BlockFlow {
 public:
  struct Piece {
    uint64_t first_ip = 0;
    uint64_t last_ip = 0;
    uint64_t instructions = 0;
    flow::ExecMode mode = flow::ExecMode::kUnknown;
    bool is_speculative = false;
    bool ends_in_branch = false;
    uint64_t time = 0;
  };
  // Runs in a row that none of the trace was used up for: the code goes in circles.
  static constexpr uint64_t kMaxFreePieces = 20'000;

  void clear();
  void run(const Piece& piece);
  void event(const flow::Event& event, bool resumed);
  void error(flow::Status status, uint64_t offset);
  // The decoder is at this offset. False if the flow runs in circles; then the error is recorded,
  // and the circle is not.
  bool progress(uint64_t offset);

  [[nodiscard]] const std::vector<BlockRecord>& records() const { return records_; }
  [[nodiscard]] std::vector<BlockRecord>& records() { return records_; }

 private:
  std::vector<BlockRecord> records_;
  bool is_open_ = false;  // the last record is a run that goes on
  uint64_t offset_ = ~uint64_t{0};
  uint64_t free_pieces_ = 0;
  size_t safe_records_ = 0;  // when the offset changed last
};

struct BlockComparison {
  bool times = true;  // of runs
  bool error_offsets = true;
  bool beyond_errors = true;  // else up to the first error
};

struct BlockDifference {
  size_t index = 0;
  std::string what;
};
std::optional<BlockDifference> compare_blocks(const std::vector<BlockRecord>& left,
                                              const std::vector<BlockRecord>& right,
                                              const BlockComparison& how);

}  // namespace auxtrail::decode::testing
