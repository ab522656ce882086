// libipt's configuration, whole traces at once, and streams (libipt_stream.h).
#include "decode/libipt_decoder.h"

#include <intel-pt.h>

#include "decode/libipt_flow.h"
#include "decode/libipt_stream.h"

namespace auxtrail::decode {
namespace {

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
  if (config.filter_end != 0) {
    constexpr uint64_t kFilter = 1;
    result.addr_filter.config.addr_cfg = kFilter;
    result.addr_filter.addr0_a = config.filter_start;
    result.addr_filter.addr0_b = config.filter_end;
  }
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
