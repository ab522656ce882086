// Where a trace can be cut in two: at a PSB+.
//
// The first piece ends behind the PSB+, the second begins with it. Whatever happens before a PSB is
// decided by the end of its PSB+; whatever happens behind it needs nothing from before, for a PSB
// resets the last IP, a PSB+ tells mode and address, and no return is compressed that belongs to a
// call from before a PSB. (Times that are reckoned from CYC packets may differ: their calibration
// begins anew.) Reference: Intel SDM vol. 3, "Packet Stream Boundary (PSB)" and "Indirect Transfer
// Compression for Returns".
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace auxtrail::decode {

struct PsbBorder {
  size_t psb = 0;        // where the second piece begins
  size_t end = 0;        // where the first one ends: behind the PSBEND
  bool tracing = false;  // the PSB+ says so
};

// The border at the PSB at offset `psb`. Nothing if its PSB+ is not whole, or if what it means is
// decided by what follows (erratum BDM70: a TIP.PGE), or if a packet in it is bad.
std::optional<PsbBorder> border_at(std::span<const std::byte> trace, size_t psb);

// Borders at least `min_bytes` apart, in order, at which tracing is on.
std::vector<PsbBorder> tracing_borders(std::span<const std::byte> trace, size_t min_bytes);

}  // namespace auxtrail::decode
