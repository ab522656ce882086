// The words of `auxtrail decode`'s options: files with ranges and addresses, filters, CPUs.
#include <cpuid.h>
#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <limits>

#include "cli/decode_arguments.h"

namespace auxtrail::cli {
namespace {

constexpr std::string_view kNumbers = "numbers are decimal, or hexadecimal with 0x";

std::optional<uint64_t> parse_number(std::string_view text) {
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    text.remove_prefix(2);
    base = 16;
  }
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  if (text.empty() || error != std::errc() || stop != end) return std::nullopt;
  return value;
}

tl::unexpected<Error> refuse(std::string_view option, std::string_view text, std::string why,
                             std::string fix) {
  return fail({fmt::format("read {}", option), std::string(text), std::move(why), std::move(fix)});
}

// FROM or FROM-TO; nothing if it is no range at all.
struct Range {
  uint64_t from = 0;
  std::optional<uint64_t> to;
};
std::optional<Range> parse_range(std::string_view text) {
  const size_t dash = text.find('-');
  const auto from = parse_number(text.substr(0, dash));
  if (!from) return std::nullopt;
  if (dash == std::string_view::npos) return Range{*from, std::nullopt};
  const auto to = parse_number(text.substr(dash + 1));
  if (!to) return std::nullopt;
  return Range{*from, *to};
}

// Something that was meant to be a number: file names hardly begin so behind a colon.
bool begins_like_number(std::string_view text) {
  return !text.empty() && text.front() >= '0' && text.front() <= '9';
}

pt::Cpu this_cpu() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  pt::Cpu cpu;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0) return cpu;
  char vendor[12];
  std::memcpy(vendor, &ebx, 4);
  std::memcpy(vendor + 4, &edx, 4);
  std::memcpy(vendor + 8, &ecx, 4);
  if (std::string_view(vendor, sizeof(vendor)) != "GenuineIntel") return cpu;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return cpu;
  const unsigned family = eax >> 8 & 0xf;
  cpu.intel = true;
  cpu.family = static_cast<uint16_t>(family == 0xf ? family + (eax >> 20 & 0xff) : family);
  cpu.model = static_cast<uint8_t>((eax >> 4 & 0xf) | (eax >> 12 & 0xf0));
  cpu.stepping = static_cast<uint8_t>(eax & 0xf);
  return cpu;
}

}  // namespace

Result<FileRange> parse_file_range(std::string_view option, std::string_view text) {
  FileRange result;
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || !begins_like_number(text.substr(colon + 1))) {
    result.path = text;
  } else {
    const auto range = parse_range(text.substr(colon + 1));
    if (!range) {
      return refuse(option, text, "the part behind the last colon is no range",
                    fmt::format("write FILE, FILE:FROM or FILE:FROM-TO; {}", kNumbers));
    }
    if (range->to && *range->to <= range->from) {
      return refuse(option, text, "the range ends before it begins",
                    "FROM is the first byte, TO is behind the last");
    }
    result = {std::string(text.substr(0, colon)), range->from, range->to};
  }
  if (result.path.empty()) return refuse(option, text, "no file is named", "write FILE[:FROM-TO]");
  return result;
}

Result<RawCode> parse_raw_code(std::string_view text) {
  const size_t colon = text.rfind(':');
  const auto address =
      colon == std::string_view::npos ? std::nullopt : parse_number(text.substr(colon + 1));
  if (!address) {
    return refuse("--raw", text, "it does not end with an address",
                  fmt::format("write FILE:ADDRESS or FILE:FROM-TO:ADDRESS; {}", kNumbers));
  }
  RawCode code;
  code.address = *address;
  AUXTRAIL_ASSIGN(code.file, parse_file_range("--raw", text.substr(0, colon)));
  return code;
}

Result<ElfCode> parse_elf_code(std::string_view text) {
  const size_t colon = text.rfind(':');
  ElfCode code{std::string(text), std::nullopt};
  if (colon != std::string_view::npos && begins_like_number(text.substr(colon + 1))) {
    code = {std::string(text.substr(0, colon)), parse_number(text.substr(colon + 1))};
    if (!code.base) {
      return refuse("--elf", text, "the part behind the last colon is no address",
                    fmt::format("write FILE or FILE:BASE; {}", kNumbers));
    }
  }
  if (code.path.empty()) return refuse("--elf", text, "no file is named", "write FILE[:BASE]");
  return code;
}

Result<PagesCode> parse_pages_code(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == text.size()) {
    return refuse("--pages", text, "two files are needed",
                  "write ADDRESSES:DUMP, the file of page addresses and that of the pages");
  }
  return PagesCode{std::string(text.substr(0, colon)), std::string(text.substr(colon + 1))};
}

Result<pt::AddressRange> parse_address_range(std::string_view text) {
  std::string_view rest = text;
  auto kind = pt::AddressRange::Kind::kFilter;
  if (rest.starts_with("stop:")) {
    rest.remove_prefix(5);
    kind = pt::AddressRange::Kind::kStop;
  }
  const auto range = parse_range(rest);
  if (!range || !range->to || *range->to < range->from) {
    return refuse("--filter", text, "it is no range of addresses",
                  fmt::format("write FIRST-LAST, or stop:FIRST-LAST for TraceStop; {}", kNumbers));
  }
  return pt::AddressRange{kind, range->from, *range->to};
}

Result<pt::Cpu> parse_cpu(std::string_view text) {
  if (text == "none") return pt::Cpu{};
  if (text == "auto") return this_cpu();
  constexpr uint64_t kLimits[] = {std::numeric_limits<uint16_t>::max(), 0xff, 0xf};
  uint64_t numbers[3] = {};
  size_t count = 0;
  std::string_view rest = text;
  for (bool more = true; more; ++count) {
    const size_t slash = rest.find('/');
    more = slash != std::string_view::npos;
    const auto number = parse_number(rest.substr(0, slash));
    if (count == std::size(numbers) || !number || *number > kLimits[count]) {
      count = 0;
      break;
    }
    numbers[count] = *number;
    if (more) rest.remove_prefix(slash + 1);
  }
  if (count < 2) {
    return refuse("--cpu", text, "it is no CPU",
                  "write FAMILY/MODEL or FAMILY/MODEL/STEPPING as /proc/cpuinfo has them (6/94), "
                  "or none, or auto");
  }
  return pt::Cpu{true, static_cast<uint16_t>(numbers[0]), static_cast<uint8_t>(numbers[1]),
                 static_cast<uint8_t>(numbers[2])};
}

}  // namespace auxtrail::cli
