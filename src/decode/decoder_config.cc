#include "decode/decoder_config.h"

#include "decode/libipt_decoder.h"
#include "decode/native_decoder.h"

namespace auxtrail::decode {

std::array<pt::AddressRange, 4> address_ranges(const TraceConfig& config) {
  auto ranges = config.ranges;
  if (config.filter_end == 0) return ranges;
  for (pt::AddressRange& range : ranges) {
    if (range.kind != pt::AddressRange::Kind::kNone) continue;
    range = {pt::AddressRange::Kind::kFilter, config.filter_start, config.filter_end};
    break;
  }
  return ranges;
}

pt::TraceConfig to_pt_config(const TraceConfig& config) {
  pt::TraceConfig result;
  result.status_events = false;
  result.ranges = address_ranges(config);
  result.mtc_freq = config.mtc_freq;
  result.nom_freq = config.nom_freq;
  result.cpuid_0x15_eax = config.cpuid_0x15_eax;
  result.cpuid_0x15_ebx = config.cpuid_0x15_ebx;
  result.return_compression = config.return_compression;
  result.assumed_mode_bits = config.assumed_mode_bits;
  (void)pt::errata_of({config.intel_cpu, config.family, config.model, config.stepping},
                      result.errata);
  return result;
}

std::unique_ptr<BranchDecoder> make_decoder(DecoderKind kind, const TraceConfig& config) {
  return kind == DecoderKind::kLibipt ? make_libipt_decoder(config) : make_native_decoder(config);
}

}  // namespace auxtrail::decode
