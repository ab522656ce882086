#include "analysis/script_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>

namespace auxtrail::analysis {
namespace {

struct FieldInfo {
  std::string_view name;
  ScriptField field;
  uint64_t sample_type_bit;  // what samples must have for it; 0: nothing
};

constexpr FieldInfo kFields[] = {
    {"comm", ScriptField::kComm, PERF_SAMPLE_TID},
    {"pid", ScriptField::kPid, PERF_SAMPLE_TID},
    {"tid", ScriptField::kTid, PERF_SAMPLE_TID},
    {"cpu", ScriptField::kCpu, PERF_SAMPLE_CPU},
    {"time", ScriptField::kTime, PERF_SAMPLE_TIME},
    {"period", ScriptField::kPeriod, 0},
    {"event", ScriptField::kEvent, 0},
    {"ip", ScriptField::kIp, PERF_SAMPLE_IP},
    {"addr", ScriptField::kAddr, PERF_SAMPLE_ADDR},
    {"sym", ScriptField::kSym, PERF_SAMPLE_IP},
    {"symoff", ScriptField::kSymoff, PERF_SAMPLE_IP},
    {"dso", ScriptField::kDso, PERF_SAMPLE_IP},
    {"srcline", ScriptField::kSrcline, PERF_SAMPLE_IP},
    {"brstack", ScriptField::kBrstack, PERF_SAMPLE_AUX},
    {"brstacksym", ScriptField::kBrstackSym, PERF_SAMPLE_AUX},
    {"brlist", ScriptField::kBrlist, PERF_SAMPLE_AUX},
    {"brtime", ScriptField::kBrtime, PERF_SAMPLE_AUX},
    {"callstack", ScriptField::kCallstack, PERF_SAMPLE_AUX},
};
static_assert(std::size(kFields) == static_cast<size_t>(ScriptField::kCount));

const FieldInfo* find_field(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFields), std::end(kFields),
                                   [name](const FieldInfo& info) { return info.name == name; });
  return found == std::end(kFields) ? nullptr : found;
}

tl::unexpected<Error> complain(std::string_view why, std::string_view fix) {
  return fail({"choose the fields", "-F", std::string(why), std::string(fix)});
}

}  // namespace

std::string_view script_field_names() {
  return "comm, pid, tid, cpu, time, period, event, ip, addr, sym, symoff, dso, srcline, brstack, "
         "brstacksym, brlist, brtime, callstack";
}

ScriptFields ScriptFields::defaults() {
  ScriptFields fields;
  for (const ScriptField field :
       {ScriptField::kComm, ScriptField::kTid, ScriptField::kCpu, ScriptField::kTime,
        ScriptField::kPeriod, ScriptField::kEvent, ScriptField::kIp, ScriptField::kSym,
        ScriptField::kSymoff, ScriptField::kDso}) {
    fields.set(field);
  }
  return fields;
}

ScriptFields ScriptFields::with_addr() const {
  ScriptFields fields = *this;
  fields.set(ScriptField::kAddr);
  return fields;
}

Result<ScriptFields> ScriptFields::parse(std::string_view text) {
  const bool changes = text.starts_with('+') || text.starts_with('-');
  ScriptFields fields = changes ? defaults() : ScriptFields();
  while (true) {
    const size_t comma = text.find(',');
    std::string_view name = text.substr(0, comma);
    const bool is_change = name.starts_with('+') || name.starts_with('-');
    if (is_change != changes) {
      return complain("names with + or - change the defaults, names without replace them",
                      "use one or the other");
    }
    const bool on = !name.starts_with('-');
    if (is_change) name.remove_prefix(1);
    const FieldInfo* info = find_field(name);
    if (info == nullptr) {
      return complain(fmt::format("'{}' is no field", name),
                      fmt::format("use some of {}", script_field_names()));
    }
    fields.set(info->field, on);
    if (comma == std::string_view::npos) return fields;
    text.remove_prefix(comma + 1);
  }
}

bool ScriptFields::needs_history() const {
  return has(ScriptField::kBrstack) || has(ScriptField::kBrstackSym) || has(ScriptField::kBrlist) ||
         has(ScriptField::kCallstack);
}

ScriptFields ScriptFields::available(const perfdata::Event& event) const {
  ScriptFields fields = *this;
  for (const FieldInfo& info : kFields) {
    const bool there = info.sample_type_bit == 0 || event.format.has(info.sample_type_bit);
    if (!there) fields.set(info.field, false);
  }
  return fields;
}

Status ScriptFields::check(const perfdata::Event& event) const {
  for (const FieldInfo& info : kFields) {
    if (!has(info.field) || info.sample_type_bit == 0 || event.format.has(info.sample_type_bit)) {
      continue;
    }
    return complain("samples of '" + event.name + "' have no " + std::string(info.name),
                    "leave it out");
  }
  return {};
}

}  // namespace auxtrail::analysis
