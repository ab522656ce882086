// From the interface's TraceConfig to what each decoder wants, and the choice between them.
#pragma once

#include <array>
#include <memory>

#include "decode/branch_decoder.h"
#include "pt/trace_config.h"

namespace auxtrail::decode {

// All address ranges of `config`: its `ranges`, then the single filter in the first free place.
std::array<pt::AddressRange, 4> address_ranges(const TraceConfig& config);

// Without status events: nobody behind a BranchDecoder asks for them.
pt::TraceConfig to_pt_config(const TraceConfig& config);

std::unique_ptr<BranchDecoder> make_decoder(DecoderKind kind, const TraceConfig& config);

}  // namespace auxtrail::decode
