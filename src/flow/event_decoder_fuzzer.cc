// Fuzzes EventDecoder: whatever the bytes and the errata, it ends, stays inside its bytes, and a
// copy goes on as the original does.
#include <cstdlib>
#include <cstring>

#include "flow/event_decoder.h"

namespace {

using auxtrail::flow::Event;
using auxtrail::flow::EventDecoder;
using auxtrail::flow::Status;

void require(bool condition) {
  if (!condition) std::abort();
}

auxtrail::pt::TraceConfig config_of(const uint8_t* bits) {
  auxtrail::pt::TraceConfig config;
  config.errata.bdm70 = (bits[0] & 1) != 0;
  config.errata.skd007 = (bits[0] & 2) != 0;
  config.errata.skd010 = (bits[0] & 4) != 0;
  config.errata.skl168 = (bits[0] & 8) != 0;
  config.errata.skz84 = (bits[0] & 16) != 0;
  config.errata.apl11 = (bits[0] & 32) != 0;
  config.errata.apl12 = (bits[0] & 64) != 0;
  config.interrupt_flag_events = (bits[0] & 128) != 0;
  config.mtc_freq = bits[1];
  config.nom_freq = bits[2];
  config.cpuid_0x15_eax = bits[3] >> 4;
  config.cpuid_0x15_ebx = bits[3] & 0xfu;
  config.keep_calibration_on_overflow = (bits[2] & 1) != 0;
  return config;
}

bool same(const Event& left, const Event& right) {
  return left.kind == right.kind && left.ip == right.ip && left.at == right.at &&
         left.tsc == right.tsc && left.payload == right.payload &&
         left.payload2 == right.payload2 && left.small == right.small &&
         left.ip_suppressed == right.ip_suppressed && left.status_update == right.status_update;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kConfigBytes = 4;
  if (size < kConfigBytes) return 0;
  const auto trace = std::as_bytes(std::span(data + kConfigBytes, size - kConfigBytes));
  EventDecoder decoder(config_of(data), trace);
  size_t events = 0;
  while (decoder.sync_forward() != Status::kEndOfTrace) {
    for (;;) {
      EventDecoder copy = decoder;
      Event event;
      Event copied;
      const Status status = decoder.next(event);
      require(copy.next(copied) == status);
      require(decoder.offset() == copy.offset() && decoder.offset() <= trace.size());
      if (status != Status::kOk) break;
      require(same(event, copied));
      require(++events <= 20 * size);
    }
    // What follows an error is an error, or goes on; it ends anyway.
    Event event;
    for (int i = 0; i < 4; ++i) decoder.next(event);
  }
  return 0;
}
