// auxtrail dump: what a perf.data file holds, record by record, packet by packet.

#include <unistd.h>

#include <CLI/CLI.hpp>

#include "analysis/record_text.h"
#include "cli/commands.h"
#include "cli/progress_bar.h"
#include "cli/reading.h"
#include "cli/text_output.h"
#include "perfdata/reader.h"

namespace auxtrail::cli {
namespace {

constexpr std::string_view kCommand = "dump";

struct DumpOptions {
  std::string input = "perf.data";
  bool records = false;  // the default if nothing else is asked for
  bool packets = false;
  bool header = false;
};

void add_options(CLI::App& app, DumpOptions& options) {
  app.add_option("-i,--input", options.input, "The perf.data file to read (perf.data)");
  app.add_flag("--header", options.header, "Print what the file says about the recording");
  app.add_flag("--records", options.records, "Print one line per record: the default");
  app.add_flag("--packets", options.packets,
               "Print each record that holds trace data, and its Intel PT packets with their\n"
               "offsets below it");
}

void dump_record(perfdata::Reader& reader, const perfdata::DataRecord& record,
                 const DumpOptions& options, fmt::memory_buffer& lines) {
  const auto trace = options.packets ? analysis::trace_bytes(record) : std::span<const std::byte>();
  if (options.records || !trace.empty()) analysis::append_record_text(reader, record, lines);
  analysis::append_packet_text(trace, lines);
}

}  // namespace

int run_dump(const Arguments& arguments) {
  DumpOptions options;
  CLI::App app("Prints the records of a perf.data file in the file's order.", "auxtrail dump");
  add_options(app, options);
  if (const auto status = parse_command_line(app, arguments, kCommand)) return *status;
  if (!options.packets && !options.header) options.records = true;
  auto reader = perfdata::Reader::open(options.input);
  if (!reader) {
    complain(kCommand, reader.error().message());
    return kStatusFailure;
  }

  TextOutput out(STDOUT_FILENO);
  fmt::memory_buffer lines;
  if (options.header) {
    analysis::append_header_text(*reader, lines);
    out.write({lines.data(), lines.size()});
  }
  if (options.records || options.packets) {
    ProgressBar bar("Reading", ::isatty(STDOUT_FILENO) == 0);
    reader->for_each([&](const perfdata::DataRecord& record) {
      lines.clear();
      dump_record(*reader, record, options, lines);
      out.write({lines.data(), lines.size()});
      bar.update(static_cast<double>(record.file_offset) /
                 static_cast<double>(reader->file_bytes()));
      return out.open();
    });
  }
  const int status = out.finish(kCommand);
  if (out.open()) print_warnings(kCommand, reader->statistics().messages());
  return status;
}

}  // namespace auxtrail::cli
