// The native decoder against itself: with walks and without, in pieces, in windows. The two ways
// share nothing but the flow decoder, and must agree to the last detail, damaged trace or not.
#pragma once

#include <memory>

#include "decode/testing/comparison.h"

namespace auxtrail::decode::testing {

// With walks against flow::FlowDecoder alone: for consumers of branches, of everything, and of edge
// counts, several times with decoders that know the code already.
std::unique_ptr<Comparison> compare_walks();
// ParallelDecoder and NativeStream against NativeDecoder::decode().
std::unique_ptr<Comparison> compare_pieces();
// FlowDecoder behind BranchDecoder, which is NativeDecoder without walks, against libipt and
// against what happened; traces without damage.
std::unique_ptr<Comparison> compare_native_with_libipt();
std::unique_ptr<Comparison> compare_native_with_truth();

}  // namespace auxtrail::decode::testing
