// The command line of `auxtrail decode`: ptxed's options where it has them, as values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/commands.h"
#include "decode/branch_decoder.h"

namespace auxtrail::cli {

// FILE[:FROM[-TO]]: the bytes [from, to) of a file.
struct FileRange {
  std::string path;
  uint64_t from = 0;
  std::optional<uint64_t> to;  // the file's end
};

// FILE[:FROM[-TO]]:ADDRESS
struct RawCode {
  FileRange file;
  uint64_t address = 0;
};

// FILE[:BASE]: the loadable segments, at their own addresses, or the lowest of them at BASE.
struct ElfCode {
  std::string path;
  std::optional<uint64_t> base;
};

// ADDRS:DUMP: page i of DUMP lies at the i-th u64 of ADDRS.
struct PagesCode {
  std::string addresses;
  std::string dump;
};

enum class DecodeOutput : uint8_t { kStat, kBranches, kInstructions, kEvents };

struct DecodeArguments {
  FileRange trace;
  // Where they overlap, a later one hides an earlier one, and `raw` hides `pages` hides `elf`.
  std::vector<ElfCode> elf;
  std::vector<PagesCode> pages;
  std::vector<RawCode> raw;

  decode::TraceConfig config;
  decode::DecoderKind decoder = decode::DecoderKind::kNative;

  DecodeOutput output = DecodeOutput::kStat;
  bool json = false;
  // What is printed of instructions and events.
  bool event_ip = false;
  bool event_time = false;
  bool event_tick = false;
  bool event_iflags = false;
  bool blocks = false;
  bool keep_calibration = false;
  bool resync = true;

  std::vector<std::string> warnings;
};

Result<FileRange> parse_file_range(std::string_view option, std::string_view text);
Result<RawCode> parse_raw_code(std::string_view text);
Result<ElfCode> parse_elf_code(std::string_view text);
Result<PagesCode> parse_pages_code(std::string_view text);
// A-B or stop:A-B, both inclusive.
Result<pt::AddressRange> parse_address_range(std::string_view text);
// F/M[/S], "none", or "auto": the CPU that this runs on.
Result<pt::Cpu> parse_cpu(std::string_view text);

// The whole command line. A value is the exit status with which the command must end now, after
// help or a message.
std::optional<int> parse_decode_arguments(const Arguments& words, DecodeArguments& arguments);

}  // namespace auxtrail::cli
