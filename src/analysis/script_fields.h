// ScriptFields: which fields `auxtrail script` prints, chosen with perf's -F.
#pragma once

#include <bitset>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "perfdata/event.h"

namespace auxtrail::analysis {

enum class ScriptField : uint8_t {
  kComm,
  kPid,
  kTid,
  kCpu,
  kTime,
  kPeriod,
  kEvent,
  kIp,
  kAddr,  // of a sample: the data's address; of a traced branch: where it led
  kSym,
  kSymoff,
  kDso,
  kSrcline,
  kBrstack,     // the newest branches on the sample's line, newest first
  kBrstackSym,  // the same with symbols
  kBrlist,      // the newest branches, one per line, newest last
  kBrtime,      // with them, how long after the one before each was
  kCallstack,   // who called whom, one frame per line, innermost first
  kCount
};

class ScriptFields {
 public:
  // perf's default for software events.
  static ScriptFields defaults();
  // And for the branches of full trace.
  [[nodiscard]] ScriptFields with_addr() const;
  // "comm,tid,ip" chooses exactly these; if every word begins with + or -, the defaults are changed
  // by them.
  static Result<ScriptFields> parse(std::string_view text);

  [[nodiscard]] bool has(ScriptField field) const { return bits_[static_cast<size_t>(field)]; }
  [[nodiscard]] bool needs_history() const;
  // And all of it, not only its newest branches.
  [[nodiscard]] bool needs_whole_history() const { return has(ScriptField::kCallstack); }

  // Without the fields that samples of this event do not have.
  [[nodiscard]] ScriptFields available(const perfdata::Event& event) const;
  // An Error if the samples of this event lack a field that was asked for.
  [[nodiscard]] Status check(const perfdata::Event& event) const;

 private:
  void set(ScriptField field, bool on = true) { bits_[static_cast<size_t>(field)] = on; }

  std::bitset<static_cast<size_t>(ScriptField::kCount)> bits_;
};

// "comm, pid, tid ...": all names, for help texts.
std::string_view script_field_names();

}  // namespace auxtrail::analysis
