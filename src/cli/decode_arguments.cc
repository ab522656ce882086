// The options of `auxtrail decode` and what goes together.
#include "cli/decode_arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/reading.h"

namespace auxtrail::cli {
namespace {

constexpr std::string_view kCommand = "decode";

constexpr const char* kDescription =
    "Decodes a raw Intel PT trace against the code that it ran: branches, instructions, events, "
    "or\n"
    "totals. What cannot be decoded is counted and told at the end, decoding goes on behind it.\n"
    "Exit status: 0, or 1 if anything failed to decode or a file can't be read, 2 for wrong usage.";

// Options as words; they are looked at together, after parsing.
struct Words {
  std::string trace;
  std::vector<std::string> raw;
  std::vector<std::string> elf;
  std::vector<std::string> pages;
  std::vector<std::string> filters;
  std::string cpu = "none";
  unsigned mode = 0;
  bool branches = false;
  bool insns = false;
  bool events = false;
  bool stat = false;
  bool noretcomp = false;
  bool no_resync = false;
};

void add_trace_options(CLI::App& app, Words& words, DecodeArguments& arguments) {
  decode::TraceConfig& config = arguments.config;
  app.add_option("--pt", words.trace,
                 "The trace: FILE, or its bytes FILE:FROM-TO or FILE:FROM (to its end)")
      ->required();
  app.add_option("--raw", words.raw, "Code: FILE[:FROM[-TO]]:ADDRESS, bytes as they lie in memory")
      ->take_all();
  app.add_option("--elf", words.elf,
                 "Code: FILE[:BASE], the segments of an ELF file; the lowest of them at BASE")
      ->take_all();
  app.add_option("--pages", words.pages,
                 "Code: ADDRESSES:DUMP, pages of 4096 bytes and the file of their addresses (u64)")
      ->take_all();
  app.add_option("--filter", words.filters,
                 "An address range that the trace was made with, FIRST-LAST, or stop:FIRST-LAST;\n"
                 "up to four")
      ->take_all();
  app.add_option(
      "--cpu", words.cpu,
      "Work around the faults of this CPU: FAMILY/MODEL[/STEPPING], none, or auto (none)");
  app.add_flag("--noretcomp", words.noretcomp, "The trace was made without return compression");
  app.add_option("--mode", words.mode,
                 "The code is of so many bits, 16, 32 or 64, where the trace does not tell")
      ->check(CLI::IsMember({16, 32, 64}));
  app.add_option("--mtc-freq", config.mtc_freq,
                 "The period of MTC packets, as IA32_RTIT_CTL has it");
  app.add_option("--nom-freq", config.nom_freq,
                 "The nominal frequency, as MSR_PLATFORM_INFO has it");
  app.add_option("--cpuid-0x15.eax", config.cpuid_0x15_eax, "CPUID leaf 0x15: EAX");
  app.add_option("--cpuid-0x15.ebx", config.cpuid_0x15_ebx, "CPUID leaf 0x15: EBX");
}

void add_output_options(CLI::App& app, Words& words, DecodeArguments& arguments) {
  app.add_flag("--stat", words.stat, "Print totals (the default)");
  app.add_flag("--json", arguments.json, "Print the totals as JSON");
  app.add_flag("--branches", words.branches, "Print every branch taken: from, to, kind");
  app.add_flag("--insns", words.insns, "Print every instruction's address, and events, as ptxed");
  app.add_flag("--events", words.events, "Print the events alone");
  app.add_flag("--event-ip", arguments.event_ip, "Print the addresses of events");
  app.add_flag("--event-time", arguments.event_time, "Print the times of events");
  app.add_flag("--event-tick", arguments.event_tick, "Print an event whenever time goes on");
  app.add_flag("--event-iflags", arguments.event_iflags,
               "Print an event when the interrupt flag changes");
  app.add_flag("--show-blocks", arguments.blocks, "Print a line before every block");
  app.add_flag("--keep-tcal-on-ovf", arguments.keep_calibration,
               "Keep the clock's calibration over an overflow");
  app.add_flag("--no-resync", words.no_resync,
               "After an error go on at the next PSB only (--insns, --events)");
}

Error contradiction(std::string what, std::string why, std::string fix) {
  return {std::move(what), "", std::move(why), std::move(fix)};
}

template <class Value>
Status parse_each(const std::vector<std::string>& words, Result<Value> (*parse)(std::string_view),
                  std::vector<Value>& to) {
  for (const std::string& word : words) {
    AUXTRAIL_ASSIGN(Value value, parse(word));
    to.push_back(std::move(value));
  }
  return {};
}

Status parse_files(const Words& words, DecodeArguments& arguments) {
  AUXTRAIL_ASSIGN(arguments.trace, parse_file_range("--pt", words.trace));
  AUXTRAIL_TRY(parse_each(words.raw, &parse_raw_code, arguments.raw));
  AUXTRAIL_TRY(parse_each(words.elf, &parse_elf_code, arguments.elf));
  AUXTRAIL_TRY(parse_each(words.pages, &parse_pages_code, arguments.pages));
  if (words.raw.empty() && words.elf.empty() && words.pages.empty()) {
    return fail(contradiction("decode the trace", "the code that ran is not given",
                              "name it with --elf, --raw or --pages"));
  }
  return {};
}

Status parse_circumstances(const Words& words, DecodeArguments& arguments) {
  decode::TraceConfig& config = arguments.config;
  if (words.filters.size() > config.ranges.size()) {
    return fail(contradiction("read --filter", fmt::format("{} are given", words.filters.size()),
                              "Intel PT has four address ranges at most"));
  }
  for (size_t i = 0; i < words.filters.size(); ++i) {
    AUXTRAIL_ASSIGN(config.ranges[i], parse_address_range(words.filters[i]));
  }
  AUXTRAIL_ASSIGN(const pt::Cpu cpu, parse_cpu(words.cpu));
  config.intel_cpu = cpu.intel;
  config.family = cpu.family;
  config.model = cpu.model;
  config.stepping = cpu.stepping;
  config.return_compression = !words.noretcomp;
  config.assumed_mode_bits = static_cast<uint8_t>(words.mode);
  pt::Errata errata;
  if (pt::errata_of(cpu, errata) == pt::CpuKnowledge::kUnknown) {
    arguments.warnings.push_back(fmt::format(
        "the faults of CPU {}/{} are not known; those workarounds apply that harm no other CPU",
        cpu.family, cpu.model));
  }
  return {};
}

Status parse_outputs(const Words& words, DecodeArguments& arguments) {
  if (words.branches + words.insns + words.events + words.stat > 1) {
    return fail(contradiction("choose the output", "several are asked for",
                              "name one of --stat, --branches, --insns and --events"));
  }
  if (words.branches) arguments.output = DecodeOutput::kBranches;
  if (words.insns) arguments.output = DecodeOutput::kInstructions;
  if (words.events) arguments.output = DecodeOutput::kEvents;
  arguments.resync = !words.no_resync;
  if (arguments.json && arguments.output != DecodeOutput::kStat) {
    return fail(contradiction("choose the output", "--json is for the totals", "leave it out"));
  }
  const bool is_flow = words.insns || words.events;
  const bool has_flow_options = arguments.event_ip || arguments.event_time ||
                                arguments.event_tick || arguments.event_iflags ||
                                arguments.blocks || arguments.keep_calibration || words.no_resync;
  if (has_flow_options && !is_flow) {
    return fail(contradiction("choose the output",
                              "--event-*, --show-blocks, --keep-tcal-on-ovf and --no-resync are "
                              "for instructions and events",
                              "add --insns or --events"));
  }
  const bool native_only = is_flow || words.noretcomp || words.mode != 0;
  if (native_only && arguments.decoder == decode::DecoderKind::kLibipt) {
    return fail(contradiction("decode with libipt",
                              "--insns, --events, --noretcomp and --mode are not for libipt",
                              "leave out --decoder=libipt"));
  }
  return {};
}

Status interpret(const Words& words, DecodeArguments& arguments) {
  AUXTRAIL_TRY(parse_files(words, arguments));
  AUXTRAIL_TRY(parse_circumstances(words, arguments));
  return parse_outputs(words, arguments);
}

}  // namespace

std::optional<int> parse_decode_arguments(const Arguments& words, DecodeArguments& arguments) {
  Words parsed;
  CLI::App app(kDescription, "auxtrail decode");
  add_trace_options(app, parsed, arguments);
  add_decoder_option(app, arguments.decoder);
  add_output_options(app, parsed, arguments);
  if (const auto status = parse_command_line(app, words, kCommand)) return *status;
  if (const auto status = interpret(parsed, arguments); !status) {
    complain(kCommand,
             fmt::format("{}; see auxtrail {} --help", status.error().message(), kCommand));
    return kStatusUsage;
  }
  return std::nullopt;
}

}  // namespace auxtrail::cli
