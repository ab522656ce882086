// The BranchDecoder that stands on Intel's libipt (block decoder).
#pragma once

#include <memory>

#include "base/result.h"
#include "decode/branch_decoder.h"

namespace auxtrail::decode {

// A decoder with its own section cache; compressed and uncompressed returns are told apart by the
// trace. An unknown CPU gets no errata, and no error.
std::unique_ptr<BranchDecoder> make_libipt_decoder(const TraceConfig& config = {});

}  // namespace auxtrail::decode
