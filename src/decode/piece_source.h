// A trace in pieces, read from its beginning to its end into a window.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace auxtrail::decode {

class PieceSource {
 public:
  // The pieces' bytes must outlive the source.
  explicit PieceSource(std::vector<std::span<const std::byte>> pieces)
      : pieces_(std::move(pieces)) {}

  // Fills the window up to `bytes`, as far as the trace goes.
  void fill(std::vector<std::byte>& window, size_t bytes) {
    while (window.size() < bytes && !at_end()) {
      const auto rest = pieces_[piece_].subspan(byte_);
      const size_t count = std::min(bytes - window.size(), rest.size());
      window.insert(window.end(), rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(count));
      byte_ += count;
      if (count == rest.size()) {
        ++piece_;
        byte_ = 0;
      }
    }
  }
  [[nodiscard]] bool at_end() const { return piece_ == pieces_.size(); }

 private:
  std::vector<std::span<const std::byte>> pieces_;
  size_t piece_ = 0;  // the first bytes that were not read yet
  size_t byte_ = 0;
};

}  // namespace auxtrail::decode
