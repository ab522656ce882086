#include "record/tracepoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "record/machine.h"

namespace auxtrail::record {
namespace {

Error explain(std::string_view name, const std::string& tracefs, int sys_errno) {
  Error error{"find the tracepoint", fmt::format("-e {}", name), "", "", sys_errno};
  if (sys_errno == EACCES || sys_errno == EPERM) {
    error.why = tracefs + " is closed to this user";
    error.fix = fmt::format(
        "run as root, or sudo mount -o remount,mode=755 {} and "
        "sudo sysctl kernel.perf_event_paranoid=1",
        tracefs);
  } else if (::access((tracefs + "/events").c_str(), F_OK) != 0) {
    error.why = "no tracefs at " + tracefs;
    error.fix = fmt::format("sudo mount -t tracefs none {}", tracefs);
  } else {
    error.why = "the kernel has no such event or tracepoint";
    error.fix = fmt::format("see {}/available_events, or auxtrail record --help", tracefs);
  }
  return error;
}

}  // namespace

Result<perf_event_attr> find_tracepoint(std::string_view name, const std::string& tracefs) {
  if (name.find_first_of("*?[") != std::string_view::npos) {
    return fail({"find the tracepoint", fmt::format("-e {}", name),
                 "a pattern of names can't be recorded", "name each tracepoint"});
  }
  const size_t colon = name.find(':');
  const std::string id =
      fmt::format("{}/events/{}/{}/id", tracefs, name.substr(0, colon), name.substr(colon + 1));
  if (::access(id.c_str(), R_OK) != 0) return fail(explain(name, tracefs, errno));
  const auto number = read_number(id);
  if (!number) return fail(explain(name, tracefs, ENOENT));
  perf_event_attr attr{};
  attr.type = PERF_TYPE_TRACEPOINT;
  attr.config = static_cast<uint64_t>(*number);
  return attr;
}

}  // namespace auxtrail::record
