// libipt's configuration, whole traces at once, and streams (libipt_stream.h).
#include "decode/libipt_decoder.h"

#include <intel-pt.h>

#include "decode/decoder_config.h"
#include "decode/libipt_flow.h"
#include "decode/libipt_stream.h"

namespace auxtrail::decode {
namespace {

// IA32_RTIT_CTL's four bits of each range; AddressRange::Kind has its values.
void set_ranges(const std::array<pt::AddressRange, 4>& ranges, pt_conf_addr_filter& filter) {
  uint64_t* const borders[4][2] = {{&filter.addr0_a, &filter.addr0_b},
                                   {&filter.addr1_a, &filter.addr1_b},
                                   {&filter.addr2_a, &filter.addr2_b},
                                   {&filter.addr3_a, &filter.addr3_b}};
  for (size_t i = 0; i < ranges.size(); ++i) {
    filter.config.addr_cfg |= static_cast<uint64_t>(ranges[i].kind) << (4 * i);
    *borders[i][0] = ranges[i].start;
    *borders[i][1] = ranges[i].end;
  }
}

pt_config libipt_config(const TraceConfig& config) {
  pt_config result;
  pt_config_init(&result);
  result.flags.variant.block.end_on_call = 1;
  result.flags.variant.block.end_on_jump = 1;
  result.mtc_freq = config.mtc_freq;
  result.nom_freq = config.nom_freq;
  result.cpuid_0x15_eax = config.cpuid_0x15_eax;
  result.cpuid_0x15_ebx = config.cpuid_0x15_ebx;
  if (config.intel_cpu) {
    result.cpu = {pcv_intel, config.family, config.model, config.stepping};
    (void)pt_cpu_errata(&result.errata, &result.cpu);
  }
  set_ranges(address_ranges(config), result.addr_filter);
  return result;
}

class LibiptDecoder : public BranchDecoder {
 public:
  explicit LibiptDecoder(const TraceConfig& config) : config_(libipt_config(config)) {}

  DecodeSummary decode(const image::CodeMap& code, std::span<const std::byte> trace,
                       FlowConsumer& consumer) override {
    if (trace.empty()) return {};
    FixedCode fixed(code);
    LibiptFlow flow(config_, trace, images_, fixed, consumer);
    while (flow.step()) {
    }
    return flow.summary();
  }

  std::unique_ptr<TraceStream> open(std::vector<std::span<const std::byte>> pieces,
                                    CodeTimeline& code, FlowConsumer& consumer,
                                    const StreamOptions& options) override {
    return std::make_unique<LibiptStream>(config_, std::move(pieces), images_, code, consumer,
                                          options);
  }

 private:
  pt_config config_;
  CodeImages images_;
};

}  // namespace

std::unique_ptr<BranchDecoder> make_libipt_decoder(const TraceConfig& config) {
  return std::make_unique<LibiptDecoder>(config);
}

}  // namespace auxtrail::decode
