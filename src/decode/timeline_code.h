// TimelineCode: a CodeTimeline as the code of one flow, in the trace's own time.
#pragma once

#include <cstdint>

#include "decode/branch_decoder.h"
#include "decode/flow_code.h"

namespace auxtrail::decode {

class TimelineCode : public FlowCode {
 public:
  TimelineCode(CodeTimeline& timeline, const StreamOptions& options)
      : timeline_(timeline), clock_(options.clock), from_ns_(options.start_ns) {}

  const image::CodeMap& first() override;
  [[nodiscard]] bool changes() const override { return true; }
  const image::CodeMap* at(uint64_t tsc) override;
  const image::CodeMap* later(uint64_t ip, uint64_t tsc) override;
  // A new flow begins at this time.
  void restart(uint64_t time_ns) { from_ns_ = time_ns; }

 private:
  const image::CodeMap* take(const CodeTimeline::View& view);

  CodeTimeline& timeline_;
  TscToNs clock_;
  image::CodeMap shown_;
  uint64_t from_ns_;
  uint64_t until_ns_ = 0;
};

}  // namespace auxtrail::decode
