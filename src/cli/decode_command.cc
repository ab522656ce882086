// auxtrail decode: a raw Intel PT trace, as ptxed is for libipt.

#include <unistd.h>

#include <array>
#include <string>

#include "cli/commands.h"
#include "cli/decode_arguments.h"
#include "cli/decode_inputs.h"
#include "cli/decode_outputs.h"
#include "cli/decode_totals.h"
#include "cli/reading.h"
#include "cli/text_output.h"
#include "decode/decoder_config.h"
#include "decode/program_code.h"
#include "flow/flow_decoder.h"
#include "flow/flow_text.h"
#include "pt/packet_reader.h"

namespace auxtrail::cli {
namespace {

constexpr std::string_view kCommand = "decode";
constexpr size_t kStatuses = static_cast<size_t>(flow::Status::kTooManyEvents) + 1;

struct Inputs {
  TraceFile trace;
  image::CodeMap code;
};

Result<Inputs> open_inputs(const DecodeArguments& arguments) {
  Inputs inputs;
  AUXTRAIL_ASSIGN(inputs.trace, TraceFile::open(arguments.trace));
  AUXTRAIL_ASSIGN(inputs.code, open_code(arguments));
  return inputs;
}

// Offsets are told in the trace's file.
void tell_errors(const DecodeArguments& arguments, const decode::DecodeSummary& summary,
                 const ErrorKeeper& kept) {
  for (const decode::DecodeError& error : kept.errors()) {
    complain(kCommand,
             fmt::format("{} at offset {:#x} of {}, after ip {:#x}", name(error.cause),
                         arguments.trace.from + error.offset, arguments.trace.path, error.ip));
  }
  if (summary.error_count() > kept.errors().size()) complain(kCommand, "...");
  for (size_t i = 0; i < decode::kErrorCauseCount; ++i) {
    if (summary.errors[i] == 0) continue;
    complain(kCommand, fmt::format("{} decode errors: {}", summary.errors[i],
                                   name(static_cast<decode::ErrorCause>(i))));
  }
  if (summary.overflows != 0) {
    complain(kCommand, fmt::format("{} overflows: the trace unit lost packets", summary.overflows));
  }
}

int show_branches(const DecodeArguments& arguments, const Inputs& inputs, TextOutput& out) {
  const auto decoder = make_decoder(arguments.decoder, arguments.config);
  BranchPrinter printer(out);
  decode::DecodeSummary summary;
  try {
    summary = decoder->decode(inputs.code, inputs.trace.bytes(), printer);
    printer.flush();
  } catch (const BranchPrinter::Closed&) {
    return out.finish(kCommand);
  }
  tell_errors(arguments, summary, printer);
  return summary.error_count() != 0 ? kStatusFailure : out.finish(kCommand);
}

int show_totals(const DecodeArguments& arguments, const Inputs& inputs, TextOutput& out) {
  const auto decoder = make_decoder(arguments.decoder, arguments.config);
  BranchTotals branches;
  const auto summary = decoder->decode(inputs.code, inputs.trace.bytes(), branches);
  const auto errata = to_pt_config(arguments.config).errata;
  const DecodeTotals totals{summary, count_packets(inputs.trace.bytes(), errata), branches};
  arguments.json ? print_totals_json(out, totals) : print_totals(out, totals);
  const int status = out.finish(kCommand);
  tell_errors(arguments, summary, branches);
  return summary.error_count() != 0 ? kStatusFailure : status;
}

pt::TraceConfig flow_config(const DecodeArguments& arguments) {
  pt::TraceConfig config = to_pt_config(arguments.config);
  config.status_events = true;
  config.tick_events = arguments.event_tick;
  config.interrupt_flag_events = arguments.event_iflags;
  config.keep_calibration_on_overflow = arguments.keep_calibration;
  return config;
}

flow::FlowTextOptions text_options(const DecodeArguments& arguments) {
  flow::FlowTextOptions options;
  options.blocks = arguments.blocks;
  options.event_ip = arguments.event_ip;
  options.event_time = arguments.event_time;
  options.resync_errors = arguments.resync;
  return options;
}

bool has_psb(std::span<const std::byte> trace) { return pt::PacketReader(trace).sync_forward(); }

// Instructions and events, or events alone.
int show_flow(const DecodeArguments& arguments, const Inputs& inputs, TextOutput& out) {
  const bool wants_blocks = arguments.output == DecodeOutput::kInstructions;
  decode::ProgramCache programs;
  const auto program = programs.get(inputs.code);
  flow::FlowDecoder flow(flow_config(arguments), inputs.trace.bytes(), program->memory());
  flow.set_resync(arguments.resync);
  flow::FlowText text(text_options(arguments), program->memory());
  std::array<uint64_t, kStatuses> errors{};
  bool failed = false;
  std::string lines;
  flow::FlowItem item;
  for (auto kind = flow.next(item); kind != flow::FlowItemKind::kEnd && out.open();
       kind = flow.next(item)) {
    if (kind == flow::FlowItemKind::kError) {
      ++errors[static_cast<size_t>(item.error)];
      failed = true;
    }
    if (kind == flow::FlowItemKind::kBlock && !wants_blocks) continue;
    item.offset += arguments.trace.from;
    lines.clear();
    text.append(kind, item, lines);
    out.write(lines);
  }
  lines.clear();
  flow::FlowText::append_end(flow, lines);
  out.write(lines);
  const int status = out.finish(kCommand);
  if (!failed && !has_psb(inputs.trace.bytes())) {
    complain(kCommand, name(decode::ErrorCause::kNoPsb));
    failed = true;
  }
  for (size_t i = 0; i < errors.size(); ++i) {
    if (errors[i] == 0) continue;
    complain(kCommand, fmt::format("{} decode errors: {}", errors[i],
                                   flow::text(static_cast<flow::Status>(i))));
  }
  return failed ? kStatusFailure : status;
}

}  // namespace

int run_decode(const Arguments& words) {
  DecodeArguments arguments;
  if (const auto status = parse_decode_arguments(words, arguments)) return *status;
  print_warnings(kCommand, arguments.warnings);
  const auto inputs = open_inputs(arguments);
  if (!inputs) {
    complain(kCommand, inputs.error().message());
    return kStatusFailure;
  }
  TextOutput out(STDOUT_FILENO);
  switch (arguments.output) {
    case DecodeOutput::kStat:
      return show_totals(arguments, *inputs, out);
    case DecodeOutput::kBranches:
      return show_branches(arguments, *inputs, out);
    case DecodeOutput::kInstructions:
    case DecodeOutput::kEvents:
      break;
  }
  return show_flow(arguments, *inputs, out);
}

}  // namespace auxtrail::cli
