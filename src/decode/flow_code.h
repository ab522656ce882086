// The code that a flow runs through: one map, or several, one after the other.
#pragma once

#include <cstdint>

#include "image/code_map.h"

namespace auxtrail::decode {

class FlowCode {
 public:
  virtual ~FlowCode() = default;
  [[nodiscard]] virtual const image::CodeMap& first() = 0;
  [[nodiscard]] virtual bool changes() const { return false; }
  // What is to be shown at this TSC; null: what is shown already.
  virtual const image::CodeMap* at(uint64_t /*tsc*/) { return nullptr; }
  // The same for an address that is not in what is shown, if the map of `tsc` has it.
  virtual const image::CodeMap* later(uint64_t /*ip*/, uint64_t /*tsc*/) { return nullptr; }
};

// All of the trace with one code map, which must outlive this.
class FixedCode : public FlowCode {
 public:
  explicit FixedCode(const image::CodeMap& code) : code_(code) {}
  const image::CodeMap& first() override { return code_; }

 private:
  const image::CodeMap& code_;
};

}  // namespace auxtrail::decode
