// BlockFlow: one level below branches: runs of instructions, the events between them, and errors,
// of any decoder that has them.
//
// Decoders cut the flow differently: one instruction at a time, or ending blocks at a section's
// end. So a run goes on until a branch, an event or an error ends it, whatever the decoder's own
// pieces are. Of times, those of the events are kept, and the newest at a run's end.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "decode/testing/differential_case.h"
#include "flow/event.h"
#include "flow/status.h"

namespace auxtrail::decode::testing {

enum class BlockRecordKind : uint8_t { kSync, kRun, kEvent, kError };

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
  uint64_t offset = 0;  // kSync: of the PSB
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
  // Decoding begins at the PSB at `offset`, or begins again there.
  void sync(uint64_t offset);
  void run(const Piece& piece);
  void event(const flow::Event& event, bool resumed);
  void error(flow::Status status, uint64_t offset);
  // The decoder is at this offset. False if the flow runs in circles; then the error is recorded,
  // and the circle is not.
  bool progress(uint64_t offset);

  [[nodiscard]] const std::vector<BlockRecord>& records() const { return records_; }
  [[nodiscard]] std::vector<BlockRecord>& records() { return records_; }
  // PWRE and PWRX, which have no place in the flow.
  [[nodiscard]] const std::vector<flow::Event>& power_events() const { return power_events_; }

 private:
  std::vector<BlockRecord> records_;
  std::vector<flow::Event> power_events_;
  flow::ExecMode mode_ = flow::ExecMode::kUnknown;  // of the newest run or event
  bool is_open_ = false;                            // the last record is a run that goes on
  uint64_t offset_ = ~uint64_t{0};
  uint64_t free_pieces_ = 0;
  size_t safe_records_ = 0;  // when the offset changed last
};

struct BlockDifference {
  size_t left = 0;
  size_t right = 0;
  std::string what;
};

struct BlockComparison {
  bool times = true;  // of runs
  bool error_offsets = true;
  // A difference that is known: its name; the records are passed over. nullptr: it is none. The
  // first name is kept.
  const char* (*passes)(const BlockRecord& left, const BlockRecord& right) = nullptr;
  const char* passed = nullptr;
  // Whether a difference is known; then the next segment is compared, too.
  std::function<bool(const BlockDifference&)> explains;
};

// Whether two events agree in all but their times; in their times.
bool same_event(const flow::Event& left, const flow::Event& right);
bool same_time(const flow::Event& left, const flow::Event& right);

// What follows a kSync that both have is compared up to an error; decoders may find that at another
// place, and begin again at another PSB.
std::optional<BlockDifference> compare_blocks(const std::vector<BlockRecord>& left,
                                              const std::vector<BlockRecord>& right,
                                              BlockComparison& how);

}  // namespace auxtrail::decode::testing
