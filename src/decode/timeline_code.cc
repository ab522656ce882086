// Which code a trace shows at which of its times.
#include "decode/timeline_code.h"

#include <algorithm>
#include <limits>

namespace auxtrail::decode {

const image::CodeMap* TimelineCode::take(const CodeTimeline::View& view) {
  until_ns_ = view.until_ns;
  if (view.code->id == shown_.id && shown_.id != 0) return nullptr;
  shown_ = *view.code;
  return &shown_;
}

const image::CodeMap& TimelineCode::first() {
  (void)take(timeline_.at(from_ns_));
  return shown_;
}

const image::CodeMap* TimelineCode::at(uint64_t tsc) {
  const uint64_t now_ns = clock_.ns(tsc);
  return now_ns < until_ns_ ? nullptr : take(timeline_.at(now_ns));
}

const image::CodeMap* TimelineCode::later(uint64_t ip, uint64_t tsc) {
  const CodeTimeline::View view =
      timeline_.at(tsc == std::numeric_limits<uint64_t>::max() ? tsc : clock_.ns(tsc));
  const auto& sections = view.code->sections;
  const bool has_ip =
      std::any_of(sections.begin(), sections.end(), [ip](const image::CodeSection& section) {
        return ip - section.address < section.size_bytes;
      });
  return has_ip ? take(view) : nullptr;
}

}  // namespace auxtrail::decode
