// Two filters: a vector compare finds four bytes of the pattern (every PSB has at least three such
// groups in step with the search), then the run of pairs around them is measured.
#include "pt/psb_search.h"

#include <emmintrin.h>

#include <algorithm>
#include <bit>

namespace auxtrail::pt {
namespace {

using Bytes = std::span<const std::byte>;

constexpr size_t kGroupBytes = 4;
constexpr size_t kVectorBytes = 16;
constexpr size_t kBlockBytes = 4 * kVectorBytes;

// Lanes of four bytes that are 02 82 02 82 or 82 02 82 02, as all ones.
__m128i matches(const std::byte* at) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  return _mm_or_si128(_mm_cmpeq_epi32(bytes, _mm_set1_epi32(static_cast<int>(0x82028202))),
                      _mm_cmpeq_epi32(bytes, _mm_set1_epi32(0x02820282)));
}

unsigned lanes(__m128i mask) {
  return static_cast<unsigned>(_mm_movemask_ps(_mm_castsi128_ps(mask)));
}

bool any_in_block(const std::byte* at) {
  const __m128i low = _mm_or_si128(matches(at), matches(at + kVectorBytes));
  const __m128i high = _mm_or_si128(matches(at + 2 * kVectorBytes), matches(at + 3 * kVectorBytes));
  return lanes(_mm_or_si128(low, high)) != 0;
}

// The first group at or behind `at`; the trace's size if there is none.
size_t next_group(Bytes trace, size_t at) {
  const std::byte* data = trace.data();
  while (at + kBlockBytes <= trace.size() && !any_in_block(data + at)) at += kBlockBytes;
  for (; at + kVectorBytes <= trace.size(); at += kVectorBytes) {
    if (const unsigned mask = lanes(matches(data + at)); mask != 0) {
      return at + kGroupBytes * static_cast<size_t>(std::countr_zero(mask));
    }
  }
  if (at >= trace.size() || trace.size() < kVectorBytes) return trace.size();
  // The rest, with bytes that were looked at already, but out of step with them.
  const size_t last = trace.size() - kVectorBytes;
  const unsigned mask = lanes(matches(data + last));
  if (mask == 0) return trace.size();
  return last + kGroupBytes * static_cast<size_t>(std::countr_zero(mask));
}

// The last group that ends at or before `end`; nothing if there is none.
std::optional<size_t> previous_group(Bytes trace, size_t end) {
  const std::byte* data = trace.data();
  while (end >= kBlockBytes && !any_in_block(data + end - kBlockBytes)) end -= kBlockBytes;
  const auto last_of = [](unsigned mask) {
    return kGroupBytes * static_cast<size_t>(std::bit_width(mask) - 1);
  };
  for (; end >= kVectorBytes; end -= kVectorBytes) {
    const unsigned mask = lanes(matches(data + end - kVectorBytes));
    if (mask != 0) return end - kVectorBytes + last_of(mask);
  }
  if (end < kGroupBytes || trace.size() < kVectorBytes) return std::nullopt;
  const unsigned mask = lanes(matches(data)) & ((1U << (end / kGroupBytes)) - 1);
  if (mask == 0) return std::nullopt;
  return last_of(mask);
}

bool is_pair(Bytes trace, size_t at) {
  return at + 2 <= trace.size() && trace[at] == std::byte{0x02} && trace[at + 1] == std::byte{0x82};
}

struct Run {
  size_t begin = 0;
  size_t end = 0;  // right behind the last pair

  // Where its PSB begins, if it has one.
  [[nodiscard]] std::optional<size_t> psb() const {
    if (end - begin < kPsbBytes) return std::nullopt;
    return end - kPsbBytes;
  }
};

// The pairs around `group`.
Run run_around(Bytes trace, size_t group) {
  Run run;
  run.begin = run.end = trace[group] == std::byte{0x02} ? group : group + 1;
  while (is_pair(trace, run.end)) run.end += 2;
  while (run.begin >= 2 && is_pair(trace, run.begin - 2)) run.begin -= 2;
  return run;
}

}  // namespace

// Runs do not overlap, so that the search goes on behind (or before) one without a PSB for it.
std::optional<size_t> find_psb(Bytes trace, size_t from) {
  if (trace.size() < kPsbBytes) return std::nullopt;
  for (size_t at = from; at <= trace.size() - kPsbBytes;) {
    const size_t group = next_group(trace, at);
    if (group == trace.size()) break;
    const Run run = run_around(trace, group);
    if (const auto psb = run.psb(); psb && *psb >= from) return psb;
    at = run.end;
  }
  return std::nullopt;
}

std::optional<size_t> find_psb_backward(Bytes trace, size_t before) {
  size_t end = before < trace.size() ? std::min(trace.size(), before + kPsbBytes) : trace.size();
  while (const auto group = previous_group(trace, end)) {
    const Run run = run_around(trace, *group);
    if (const auto psb = run.psb(); psb && *psb < before) return psb;
    end = run.begin;
  }
  return std::nullopt;
}

}  // namespace auxtrail::pt
