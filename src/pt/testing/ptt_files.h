// libipt's textual trace tests (NAME.ptt, NAME.pt, NAME-TOOL[-cpu_F_M].exp), unpacked from the
// archive libipt_ptt.tar.xz of the test data directory. They are not ours to copy; without the
// archive the tests that want them skip.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "pt/trace_config.h"

namespace auxtrail::pt::test {

inline std::filesystem::path test_data() {
  const char* variable = std::getenv("AUXTRAIL_TEST_DATA");
  return variable != nullptr ? variable : AUXTRAIL_TEST_DATA_DEFAULT;
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

inline std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

// One run of a tool that has an expected output.
struct PttCase {
  std::string name;  // of the .ptt
  Cpu cpu{};         // intel: the expectation is for that CPU
  std::filesystem::path trace;
  std::filesystem::path expected;
  std::vector<std::string> options;  // of the tool
  [[nodiscard]] bool has(const std::string& option) const {
    return std::find(options.begin(), options.end(), option) != options.end();
  }
  [[nodiscard]] uint32_t number(const std::string& option) const {
    const auto at = std::find(options.begin(), options.end(), option);
    if (at == options.end() || at + 1 == options.end()) return 0;
    return static_cast<uint32_t>(std::stoul(*(at + 1), nullptr, 0));
  }
};

// The trace's circumstances as the options tell them.
inline TraceConfig config_of(const PttCase& test) {
  TraceConfig config;
  errata_of(test.cpu, config.errata);
  config.mtc_freq = static_cast<uint8_t>(test.number("--mtc-freq"));
  config.nom_freq = static_cast<uint8_t>(test.number("--nom-freq"));
  config.cpuid_0x15_eax = test.number("--cpuid-0x15.eax");
  config.cpuid_0x15_ebx = test.number("--cpuid-0x15.ebx");
  config.keep_calibration_on_overflow = test.has("--keep-tcal-on-ovf");
  return config;
}

class PttArchive {
 public:
  PttArchive() {
    const auto archive = test_data() / "libipt_ptt.tar.xz";
    if (!std::filesystem::exists(archive)) return;
    std::string pattern = (std::filesystem::temp_directory_path() / "ptt-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) return;
    directory_ = pattern;
    const std::string command = "tar -xJf '" + archive.string() + "' -C '" + pattern + "'";
    available_ = std::system(command.c_str()) == 0;
  }
  ~PttArchive() {
    std::error_code ignored;
    if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
  }
  PttArchive(const PttArchive&) = delete;
  PttArchive& operator=(const PttArchive&) = delete;

  // False: the archive is missing, or could not be unpacked.
  [[nodiscard]] bool available() const { return available_; }

  // All runs of `tool` ("ptdump", "ptxed") that have an expectation, sorted.
  [[nodiscard]] std::vector<PttCase> cases(const std::string& tool) const {
    std::vector<PttCase> found;
    const std::regex pattern("(.*)-" + tool + "(-cpu_(\\d+)_(\\d+))?\\.exp");
    for (const auto& entry : std::filesystem::directory_iterator(directory_ / "libipt_ptt")) {
      const std::string file = entry.path().filename().string();
      std::smatch match;
      if (!std::regex_match(file, match, pattern)) continue;
      PttCase test;
      test.name = match[1];
      test.expected = entry.path();
      test.trace = entry.path().parent_path() / (test.name + ".pt");
      if (match[2].matched) {
        test.cpu = {.intel = true,
                    .family = static_cast<uint16_t>(std::stoul(match[3])),
                    .model = static_cast<uint8_t>(std::stoul(match[4]))};
      }
      test.options = options_of(entry.path().parent_path() / (test.name + ".ptt"), tool);
      found.push_back(std::move(test));
    }
    std::sort(found.begin(), found.end(), [](const PttCase& left, const PttCase& right) {
      return left.expected < right.expected;
    });
    return found;
  }

 private:
  static std::vector<std::string> options_of(const std::filesystem::path& ptt,
                                             const std::string& tool) {
    std::vector<std::string> options;
    const std::string marker = "opt:" + tool + " ";
    for (const std::string& line : lines_of(read_text(ptt))) {
      const size_t at = line.find(marker);
      if (at == std::string::npos) continue;
      const auto words = words_of(line.substr(at + marker.size()));
      options.insert(options.end(), words.begin(), words.end());
    }
    return options;
  }

  std::filesystem::path directory_;
  bool available_ = false;
};

}  // namespace auxtrail::pt::test
