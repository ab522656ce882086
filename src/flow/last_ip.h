// LastIp: the address that compressed addresses are relative to.
//
// A packet without an address hides the last one, but keeps it for the next compressed address.
// Reference: Intel SDM vol. 3, "Intel Processor Trace", "IP Compression".
#pragma once

#include <cstdint>

#include "flow/status.h"
#include "pt/packet.h"

namespace auxtrail::flow {

class LastIp {
 public:
  void update(const pt::Packet& packet) {
    if (packet.ipc == pt::IpCompression::kSuppressed) {
      suppressed_ = true;
      return;
    }
    ip_ = decompress(packet.ipc, packet.payload);
    known_ = true;
    suppressed_ = false;
  }
  void set(uint64_t ip) {
    ip_ = ip;
    known_ = true;
    suppressed_ = false;
  }

  // The address of the packet seen last; 0 and an error if it had none.
  Status query(uint64_t& ip) const {
    ip = 0;
    if (!known_) return Status::kNoIp;
    if (suppressed_) return Status::kIpSuppressed;
    ip = ip_;
    return Status::kOk;
  }
  // What the next address is relative to.
  [[nodiscard]] uint64_t base() const { return ip_; }

 private:
  [[nodiscard]] uint64_t decompress(pt::IpCompression ipc, uint64_t payload) const {
    switch (ipc) {
      case pt::IpCompression::kUpdate16:
        return (ip_ & ~uint64_t{0xffff}) | payload;
      case pt::IpCompression::kUpdate32:
        return (ip_ & ~uint64_t{0xffff'ffff}) | payload;
      case pt::IpCompression::kUpdate48:
        return (ip_ & ~uint64_t{0xffff'ffff'ffff}) | payload;
      case pt::IpCompression::kSignExtend48:
        return static_cast<uint64_t>(static_cast<int64_t>(payload << 16) >> 16);
      default:
        return payload;
    }
  }

  uint64_t ip_ = 0;
  bool known_ = false;
  bool suppressed_ = false;
};

}  // namespace auxtrail::flow
