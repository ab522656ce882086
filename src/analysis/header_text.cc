// The front of a perf.data file: what was recorded, where and how.
#include <fmt/format.h>

#include <iterator>
#include <string>

#include "abi/sample_layout.h"
#include "analysis/record_text.h"

namespace auxtrail::analysis {
namespace {

template <class... Args>
void put(fmt::memory_buffer& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

std::string sample_type_text(uint64_t sample_type) {
  std::string text;
  for (const abi::SampleFieldInfo& info : abi::kSampleFields) {
    if ((sample_type & info.sample_type_bits) == 0) continue;
    if (!text.empty()) text += '|';
    text += info.name;
  }
  return text;
}

void put_event(const perfdata::Event& event, fmt::memory_buffer& out) {
  const perf_event_attr& attr = event.attr;
  put(out, "# event: {} type {} config {:#x} {} {} sample_type {}", event.name, uint32_t{attr.type},
      uint64_t{attr.config}, attr.freq != 0 ? "frequency" : "period", uint64_t{attr.sample_period},
      sample_type_text(attr.sample_type));
  if (attr.aux_sample_size != 0) put(out, " aux_sample_size {}", uint32_t{attr.aux_sample_size});
  put(out, " ids");
  for (const uint64_t id : event.ids) put(out, " {}", id);
  put(out, "\n");
}

void put_text(std::string_view name, const std::string& value, fmt::memory_buffer& out) {
  if (!value.empty()) put(out, "# {}: {}\n", name, value);
}

}  // namespace

void append_header_text(perfdata::Reader& reader, fmt::memory_buffer& out) {
  const perfdata::Features& features = reader.features();
  put_text("hostname", features.hostname, out);
  put_text("os release", features.os_release, out);
  put_text("recorded by", features.version, out);
  put_text("arch", features.arch, out);
  put_text("cpu", features.cpu_description, out);
  put_text("cpuid", features.cpuid, out);
  std::string command;
  for (const std::string& word : features.command_line)
    command += (command.empty() ? "" : " ") + word;
  put_text("command line", command, out);
  for (const perfdata::Event& event : reader.events()) put_event(event, out);
  for (const perfdata::BuildId& known : features.build_ids) {
    put(out, "# build id: ");
    for (const std::byte byte : known.id) put(out, "{:02x}", static_cast<unsigned>(byte));
    put(out, " {}\n", known.path);
  }
  put(out, "# data: {} bytes at {:#x} of {}\n#\n", reader.data_bytes(), reader.data_offset(),
      reader.file_bytes());
}

}  // namespace auxtrail::analysis
