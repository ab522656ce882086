// PacketStream: what the traced process writes in continuous trace, from its beginning to now, and
// how far of it was compared.
//
//   bytes   [ forgotten | kept for samples | anchor: a PSB | ... compared ] not compared yet ]
//
// Decoding starts at the anchor each time, for packets mean nothing without those before them. The
// stretches up to the mark are known: they must come out again as they did before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "history.h"
#include "recorder.h"

namespace auxtrail::lockstep {

class PacketStream {
 public:
  explicit PacketStream(Channel& channel) : channel_(channel) {}

  // Takes what was written since the last call; false if that was too much.
  bool collect();
  [[nodiscard]] uint64_t end() const { return start_ + bytes_.size(); }
  // Where a sample's bytes end in the stream.
  [[nodiscard]] std::optional<uint64_t> find(std::span<const std::byte> sample) const;

  // The stretches behind the mark, up to the position `end`, where tracing is off. problem() says
  // what is wrong if they can't be had.
  std::vector<History> decode(const image::CodeMap& code, uint64_t end);
  // Everything up to `end` is compared now.
  void mark(const image::CodeMap& code, uint64_t end);
  // The stretches of a sample that ends at the mark must be the newest ones. Returns a difference.
  std::string compare_sample(const image::CodeMap& code, std::span<const std::byte> sample);

  [[nodiscard]] const std::string& problem() const { return problem_; }
  // Falsifies an outcome that was compared already.
  void falsify_known();

 private:
  [[nodiscard]] std::span<const std::byte> view(uint64_t from, uint64_t to) const;
  void forget_old_bytes();

  Channel& channel_;
  HistoryDecoder decoder_;
  std::vector<std::byte> bytes_;
  uint64_t start_ = 0;  // position of the first byte kept
  uint64_t anchor_ = 0;
  uint64_t mark_ = 0;
  std::vector<History> since_anchor_;  // up to the mark
  std::vector<History> behind_mark_;   // the last decode()'s
  std::deque<History> known_;          // the newest that were compared
  std::string problem_;
};

}  // namespace auxtrail::lockstep
