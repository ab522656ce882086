#include "pt/testing/ptt_cases.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

namespace auxtrail::pt::test {
namespace {

std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// "cpu_6_142" or "cpu_6_85_7".
Cpu parse_cpu(const std::string& text) {
  unsigned family = 0;
  unsigned model = 0;
  unsigned stepping = 0;
  Cpu cpu;
  if (std::sscanf(text.c_str(), "cpu_%u_%u_%u", &family, &model, &stepping) < 2) return cpu;
  cpu.intel = true;
  cpu.family = static_cast<uint16_t>(family);
  cpu.model = static_cast<uint8_t>(model);
  cpu.stepping = static_cast<uint8_t>(stepping);
  return cpu;
}

void parse_source(const std::string& text, const std::string& tool, PttCase& parsed) {
  std::istringstream in(text);
  std::string line;
  while (std::getline(in, line)) {
    const auto parts = words(line);
    if (parts.size() == 2 && parts[0] == "org") parsed.org = std::stoull(parts[1], nullptr, 0);
    if (parts.size() < 2 || parts[0] != ";" || parts[1] != "opt:" + tool) continue;
    parsed.options.insert(parsed.options.end(), parts.begin() + 2, parts.end());
  }
}

}  // namespace

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), std::istream_iterator<std::string>()};
}

bool PttCase::has(const std::string& option) const {
  return std::find(options.begin(), options.end(), option) != options.end();
}

uint32_t PttCase::number(const std::string& option) const {
  const auto at = std::find(options.begin(), options.end(), option);
  if (at == options.end() || at + 1 == options.end()) return 0;
  return static_cast<uint32_t>(std::stoul(*(at + 1), nullptr, 0));
}

TraceConfig config_of(const PttCase& ptt) {
  TraceConfig config;
  (void)errata_of(ptt.cpu, config.errata);
  config.mtc_freq = static_cast<uint8_t>(ptt.number("--mtc-freq"));
  config.nom_freq = static_cast<uint8_t>(ptt.number("--nom-freq"));
  config.cpuid_0x15_eax = ptt.number("--cpuid-0x15.eax");
  config.cpuid_0x15_ebx = ptt.number("--cpuid-0x15.ebx");
  config.keep_calibration_on_overflow = ptt.has("--keep-tcal-on-ovf");
  return config;
}

std::filesystem::path data_directory() {
  const char* given = std::getenv("AUXTRAIL_TEST_DATA");
  return given != nullptr ? given : AUXTRAIL_TEST_DATA_DEFAULT;
}

PttArchive::PttArchive() {
  const auto archive = data_directory() / "libipt_ptt.tar.xz";
  if (!std::filesystem::exists(archive)) {
    obstacle_ = "no " + archive.string();
    return;
  }
  std::string name = (std::filesystem::temp_directory_path() / "auxtrail-ptt-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    obstacle_ = "cannot create " + name;
    return;
  }
  directory_ = name;
  const std::string command =
      "tar -xJf '" + archive.string() + "' --strip-components=1 -C '" + name + "'";
  if (std::system(command.c_str()) != 0) obstacle_ = "failed: " + command;
}

PttArchive::~PttArchive() {
  std::error_code ignored;
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
}

std::vector<PttCase> PttArchive::cases(const std::string& tool) const {
  std::vector<PttCase> cases;
  const std::string mark = "-" + tool;
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    if (entry.path().extension() != ".exp") continue;
    PttCase parsed;
    parsed.name = entry.path().stem().string();
    size_t end = parsed.name.rfind(mark + "-cpu_");
    if (end != std::string::npos) {
      parsed.cpu = parse_cpu(parsed.name.substr(end + mark.size() + 1));
    } else if (parsed.name.ends_with(mark)) {
      end = parsed.name.size() - mark.size();
    } else {
      continue;
    }
    parsed.base = parsed.name.substr(0, end);
    parse_source(file_text(directory_ / (parsed.base + ".ptt")), tool, parsed);
    parsed.expected = normalised_lines(file_text(entry.path()));
    cases.push_back(std::move(parsed));
  }
  std::sort(cases.begin(), cases.end(),
            [](const PttCase& a, const PttCase& b) { return a.name < b.name; });
  return cases;
}

std::vector<uint8_t> PttArchive::bytes(const std::string& file) const {
  const std::string text = file_text(directory_ / file);
  return {text.begin(), text.end()};
}

std::vector<std::string> normalised_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  std::string line;
  while (std::getline(in, line)) {
    std::string normal;
    for (const std::string& word : words(line.substr(0, line.find('#')))) {
      normal += (normal.empty() ? "" : " ") + word;
    }
    if (!normal.empty()) lines.push_back(std::move(normal));
  }
  return lines;
}

}  // namespace auxtrail::pt::test
