// The widths and spaces are those of perf's builtin-script, so that what reads its text reads ours.
#include "analysis/sample_text.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <vector>

#include "analysis/places.h"

namespace auxtrail::analysis {
namespace {

using Field = ScriptField;

template <class... Args>
void put(fmt::memory_buffer& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

constexpr uint64_t kNsPerSecond = 1'000'000'000;
constexpr std::string_view kBranchEvent = "branches:u";
constexpr std::string_view kNoFlags = "/-/-/-/0/ ";

// The kernel's samples of a task that is going away have -1.
int32_t signed_id(uint32_t id) { return static_cast<int32_t>(id); }

}  // namespace

SampleText::SampleText(Recording& recording, ScriptFields fields, size_t max_branches)
    : recording_(recording),
      fields_(fields),
      max_branches_(max_branches != 0 ? max_branches : std::numeric_limits<size_t>::max()) {
  for (const perfdata::Event& event : recording.reader().events()) {
    event_width_ = std::max(event_width_, event.name.size());
  }
  if (!fields_.has(Field::kCallstack)) return;
  functions_ = std::make_unique<Functions>(recording.symbolizer());
  call_stack_ = std::make_unique<history::CallStack>(functions_.get());
}

uint64_t SampleText::Functions::start_of(uint64_t ip) {
  const image::Location location = symbolizer_.locate(*code_, ip);
  return location.function != nullptr ? ip - location.offset() : 0;
}

void SampleText::append(const WalkedSample& walked, fmt::memory_buffer& out) {
  const abi::SampleId& id = walked.sample.id;
  append_head(
      {id.pid, id.tid, id.cpu, id.time_ns, walked.time_ns, walked.period, walked.event.name}, out);
  if (fields_.has(Field::kAddr)) put(out, " {:>16x}", walked.sample.address);
  append_place(walked.ip_code, walked.sample.ip, out);
  append_branch_stack(walked, out);
  put(out, "\n");
  const bool has_stack = call_stack_ != nullptr && walked.has_history();
  if (has_stack) append_call_stack(walked, out);
  if (fields_.has(Field::kBrlist)) append_branch_list(walked, out);
  if (has_stack || fields_.has(Field::kBrlist)) put(out, "\n");
}

void SampleText::append(const TracePosition& position, const decode::Branch& branch,
                        fmt::memory_buffer& out) {
  append_head(
      {static_cast<uint32_t>(position.pid), static_cast<uint32_t>(position.tid),
       static_cast<uint32_t>(position.cpu), position.time_ns, position.time_ns, 1, kBranchEvent},
      out);
  append_place(position.code, branch.from, out);
  if (fields_.has(Field::kAddr)) {
    put(out, " =>");
    append_place(position.code, branch.to, out);
  }
  put(out, "\n");
}

void SampleText::append_head(const Head& head, fmt::memory_buffer& out) {
  if (fields_.has(Field::kComm)) {
    put(out, "{:>16} ", recording_.comm(head.pid, head.tid, head.lookup_time_ns));
  }
  if (fields_.has(Field::kPid) && fields_.has(Field::kTid)) {
    put(out, "{:>5}/{:<5} ", signed_id(head.pid), signed_id(head.tid));
  } else if (fields_.has(Field::kPid)) {
    put(out, "{:>5} ", signed_id(head.pid));
  } else if (fields_.has(Field::kTid)) {
    put(out, "{:>5} ", signed_id(head.tid));
  }
  if (fields_.has(Field::kCpu)) put(out, "[{:03}] ", signed_id(head.cpu));
  if (fields_.has(Field::kTime)) {
    put(out, "{:>5}.{:06}: ", head.time_ns / kNsPerSecond, head.time_ns % kNsPerSecond / 1000);
  }
  if (fields_.has(Field::kPeriod)) put(out, "{:>10} ", head.period);
  if (fields_.has(Field::kEvent)) put(out, "{:>{}}: ", head.event, event_width_);
}

void SampleText::append_place(const image::Layout& code, uint64_t address,
                              fmt::memory_buffer& out) {
  if (fields_.has(Field::kIp)) put(out, " {:>16x}", address);
  const bool needs_location =
      fields_.has(Field::kSym) || fields_.has(Field::kDso) || fields_.has(Field::kSrcline);
  if (!needs_location) return;
  auto& symbolizer = recording_.symbolizer();
  const image::Location location = symbolizer.locate(code, address);
  if (fields_.has(Field::kSym)) {
    put(out, " ");
    append_symbol(location, out);
  }
  if (fields_.has(Field::kDso)) {
    put(out, " ");
    append_dso(location, out);
  }
  if (fields_.has(Field::kSrcline)) {
    const std::string line = source_line(symbolizer, location);
    put(out, "\n  {}", line.empty() ? image::kUnknown : std::string_view(line));
  }
}

void SampleText::append_symbol(const image::Location& location, fmt::memory_buffer& out) {
  put(out, "{}", location.function_name());
  if (location.function != nullptr && fields_.has(Field::kSymoff)) {
    put(out, "+{:#x}", location.offset());
  }
}

void SampleText::append_dso(const image::Location& location, fmt::memory_buffer& out) {
  put(out, "({})",
      location.dso != nullptr ? std::string_view(location.dso->path) : image::kUnknown);
}

std::span<const decode::Branch> SampleText::newest(const WalkedSample& walked) const {
  return walked.history.last(max_branches_);
}

void SampleText::append_branch_stack(const WalkedSample& walked, fmt::memory_buffer& out) {
  // A trace that only states the sample's position has no branches, as perf sees it.
  if (walked.decoded.instructions == 0) return;
  const auto all = walked.history.branches();
  if (fields_.has(Field::kBrstack)) {
    std::vector<uint64_t> cycles;
    for (size_t i = 0; fields_.has(Field::kBrtime) && i < all.size(); ++i) {
      cycles.push_back(history::lbr_entry(walked.history, i).cycles.value_or(0));
    }
    put(out, " {}", history::brstack(all, max_branches_, cycles));
  }
  if (!fields_.has(Field::kBrstackSym)) return;
  const bool drop_end = !all.empty() && all.back().kind == decode::BranchKind::kTraceEnd;
  const auto shown = drop_end ? all.first(all.size() - 1) : all;
  const auto last = shown.last(std::min(max_branches_, shown.size()));
  for (auto branch = last.rbegin(); branch != last.rend(); ++branch) {
    const auto from = recording_.symbolizer().locate(walked.code, branch->from);
    const auto to = recording_.symbolizer().locate(walked.code, branch->to);
    put(out, "{}", from.function_name());
    if (from.function != nullptr) put(out, "+{:#x}", from.offset());
    put(out, "/{}", to.function_name());
    if (to.function != nullptr) put(out, "+{:#x}", to.offset());
    put(out, "{}", kNoFlags);
  }
}

// As perf prints callchains, but with the calls themselves, not where they return to.
void SampleText::append_call_stack(const WalkedSample& walked, fmt::memory_buffer& out) {
  functions_->set_code(walked.code);
  call_stack_->clear();
  for (const decode::Branch& branch : walked.history.branches()) call_stack_->on_branch(branch);
  const auto put_frame = [&](uint64_t address) {
    put(out, "\t");
    append_end(walked.code, address, "", out);
    put(out, "\n");
  };
  const auto put_mark = [&out](std::string_view mark) { put(out, "\t {:>16} {}\n", "", mark); };
  const uint64_t ip = walked.decoded.final_ip.value_or(walked.sample.ip);
  put_frame(ip);
  auto frames = call_stack_->frames();
  // The trace was left there: that is no call.
  if (!frames.empty() && frames.back().call_ip == ip) frames = frames.first(frames.size() - 1);
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    if (frame->kind == history::FrameKind::kUnknown) {
      put_mark(image::kUnknown);
    } else if (frame->kind == history::FrameKind::kUntraced) {
      put_mark("[untraced]");
    } else {
      put_frame(frame->call_ip);
    }
  }
  put_mark(image::kUnknown);
}

void SampleText::append_branch_list(const WalkedSample& walked, fmt::memory_buffer& out) {
  const size_t count = walked.history.branches().size();
  for (size_t i = count - newest(walked).size(); i < count; ++i) {
    const decode::Branch& branch = walked.history.branches()[i];
    const std::string_view kind = decode::name(branch.kind);
    append_end(walked.code, branch.from, branch.is_marker() ? kind : "", out);
    put(out, " => ");
    append_end(walked.code, branch.to, branch.is_marker() ? kind : "", out);
    if (!branch.is_marker()) put(out, "  {}", kind);
    if (fields_.has(Field::kBrtime)) {
      const history::LbrEntry entry = history::lbr_entry(walked.history, i);
      if (entry.cycles) put(out, "  +{} cycles", *entry.cycles);
      if (entry.tsc_ticks) put(out, "  +{} ticks", *entry.tsc_ticks);
    }
    put(out, "\n");
  }
}

void SampleText::append_end(const image::Layout& code, uint64_t address, std::string_view marker,
                            fmt::memory_buffer& out) {
  if (address == 0) {
    put(out, " {:>16}", marker.empty() ? std::string_view("0") : marker);
    return;
  }
  const image::Location location = recording_.symbolizer().locate(code, address);
  put(out, " {:>16x} {}", address, location.function_name());
  if (location.function != nullptr) put(out, "+{:#x}", location.offset());
  put(out, " ({})", location.dso_name());
}

}  // namespace auxtrail::analysis
