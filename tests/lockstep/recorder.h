// Recorder: the recorder's end of the unit's channel, as small as the lockstep tests need it.
//
// Listens on a socket of its own, serves one process at a time: sends a SessionConfig whose trigger
// never fires, takes the shared memory. After that samples() hands over what the unit has written,
// and in continuous trace append_aux() the packets themselves. See src/channel/layout.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "abi/sample.h"
#include "base/unique_fd.h"
#include "channel/layout.h"
#include "event/ring_reader.h"

namespace auxtrail::lockstep {

// A sample as the ring held it, copied.
struct TakenSample {
  uint64_t ip = 0;
  uint64_t time_ns = 0;
  std::vector<std::byte> aux;
};

// What the unit is asked for.
struct RecorderOptions {
  uint32_t aux_sample_bytes = 256;
  bool end_by_trap = false;
  bool continuous = false;
  bool deferred = false;
  bool return_compression = false;
};

using Reasons = std::array<uint64_t, channel::kReasonCount>;

// The shared memory of one process.
class Channel {
 public:
  explicit Channel(UniqueFd memory);

  // Everything written since the last call, in order.
  std::vector<TakenSample> samples();
  // Continuous trace: appends the bytes of the first thread's AUX area that were written since the
  // last call. False if some are overwritten already.
  bool append_aux(std::vector<std::byte>& bytes);
  // How windows ended so far, all slots and the process taken together.
  [[nodiscard]] Reasons reasons() const;

 private:
  Mapping memory_;
  std::array<event::RingReader, channel::kSlotCount> readers_;
  std::array<bool, channel::kSlotCount> known_{};
  event::RecordScratch scratch_;
  uint64_t aux_read_ = 0;
};

class Recorder {
 public:
  explicit Recorder(const RecorderOptions& options);
  ~Recorder();

  [[nodiscard]] const std::string& socket_path() const { return path_; }
  // Waits in the background for the next process; channel() then has it.
  void expect();
  // The channel of the process that was expected; null if none came.
  std::unique_ptr<Channel> channel();

 private:
  void serve();

  channel::SessionConfig config_;
  std::string path_;
  UniqueFd listener_;
  UniqueFd received_;
  std::thread server_;
};

}  // namespace auxtrail::lockstep
