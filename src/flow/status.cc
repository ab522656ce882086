// The texts of the statuses: libipt's own where it has the kind, so that outputs can be compared.
#include "flow/status.h"

namespace auxtrail::flow {

std::string_view text(Status status) {
  switch (status) {
    case Status::kOk:
      return "OK";
    case Status::kEndOfTrace:
      return "reached end of trace stream";
    case Status::kNoSync:
      return "decoder out of sync";
    case Status::kBadOpcode:
      return "unknown opcode";
    case Status::kBadPacket:
      return "unknown packet";
    case Status::kBadContext:
      return "unexpected packet context";
    case Status::kBadQuery:
      return "trace stream does not match query";
    case Status::kBadStatusUpdate:
      return "bad status update";
    case Status::kNoIp:
      return "no ip";
    case Status::kIpSuppressed:
      return "ip has been suppressed";
    case Status::kNoMap:
      return "no memory mapped at this address";
    case Status::kBadInstruction:
      return "unknown instruction";
    case Status::kReturnStackEmpty:
      return "compressed return without call";
    case Status::kBadReturnCompression:
      return "bad compressed return";
    case Status::kNoEnable:
      return "expected tracing enabled event";
    case Status::kEventIgnored:
      return "event ignored";
    case Status::kOverflow:
      return "overflow";
    case Status::kEndlessLoop:
      return "endless loop";
    case Status::kInternal:
      return "internal error";
    case Status::kTooManyEvents:
      return "out of memory";
  }
  return "unknown status";
}

}  // namespace auxtrail::flow
