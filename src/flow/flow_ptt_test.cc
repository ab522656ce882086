// FlowDecoder and FlowText against libipt's own textual trace tests: line by line what ptxed
// prints, for every CPU.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "flow/flow_decoder.h"
#include "flow/flow_text.h"
#include "pt/testing/ptt_cases.h"

namespace auxtrail::flow {
namespace {

// Where we differ on purpose. By the .exp file's name, with the reason.
const std::map<std::string, std::string>& deliberate_differences() {
  static const std::string where =
      "the flow stands at an address that a PSB+ told; ptxed knows none before the first block";
  static const std::map<std::string, std::string> differences = {
      {"ptet-evd_cr2-cfe_iret-ptxed", where},
      {"ptet-evd_vmxq-cfe_intr-ptxed", where},
      {"ptet-evd_vmxr-cfe_rsm-ptxed", where},
      {"ptet-evd_vmxr-evd-cr2-ptxed", where},
  };
  return differences;
}

// What ptxed would be told.
struct Settings {
  pt::TraceConfig config;
  FlowTextOptions text;
  bool quiet = false;
  bool resync = false;
  bool counts_instructions = false;
  bool counts_blocks = false;
  bool counts = false;
  std::vector<std::string> raw;  // FILE:OFFSET[-END]:ADDRESS
};

class OptionReader {
 public:
  explicit OptionReader(const std::vector<std::string>& words) : words_(words) {}

  Settings read() {
    while (next_ < words_.size()) {
      const std::string& word = words_[next_++];
      const auto option = options().find(word);
      if (option == options().end()) {
        ADD_FAILURE() << "option unknown to this test: " << word;
      } else {
        option->second(*this);
      }
    }
    Settings& set = settings_;
    set.text.block_numbers = set.counts;
    if (set.counts && !set.counts_instructions && !set.counts_blocks) {
      set.counts_instructions = true;
      set.counts_blocks = !instruction_decoder_;
    }
    return set;
  }

 private:
  using Option = void (*)(OptionReader&);
  static const std::map<std::string, Option>& options();

  template <class Number>
  void number(Number& to) {
    to = static_cast<Number>(std::stoull(words_.at(next_++), nullptr, 0));
  }

  const std::vector<std::string>& words_;
  size_t next_ = 0;
  bool instruction_decoder_ = false;
  Settings settings_;
};

const std::map<std::string, OptionReader::Option>& OptionReader::options() {
  using R = OptionReader;
  static const std::map<std::string, Option> all = {
      {"--event:ip", [](R& r) { r.settings_.text.event_ip = true; }},
      {"--event:time", [](R& r) { r.settings_.text.event_time = true; }},
      {"--event:tick", [](R& r) { r.settings_.config.tick_events = true; }},
      {"--event:iflags", [](R& r) { r.settings_.config.interrupt_flag_events = true; }},
      {"--block:show-blocks", [](R& r) { r.settings_.text.blocks = true; }},
      {"--quiet", [](R& r) { r.settings_.quiet = true; }},
      {"--stat", [](R& r) { r.settings_.counts = true; }},
      {"--stat:insn", [](R& r) { r.settings_.counts = r.settings_.counts_instructions = true; }},
      {"--stat:blocks", [](R& r) { r.settings_.counts = r.settings_.counts_blocks = true; }},
      {"--resync-on-error",
       [](R& r) { r.settings_.resync = r.settings_.text.resync_errors = true; }},
      {"--mtc-freq", [](R& r) { r.number(r.settings_.config.mtc_freq); }},
      {"--nom-freq", [](R& r) { r.number(r.settings_.config.nom_freq); }},
      {"--cpuid-0x15.eax", [](R& r) { r.number(r.settings_.config.cpuid_0x15_eax); }},
      {"--cpuid-0x15.ebx", [](R& r) { r.number(r.settings_.config.cpuid_0x15_ebx); }},
      {"--block:keep-tcal-on-ovf",
       [](R& r) { r.settings_.config.keep_calibration_on_overflow = true; }},
      {"--filter:addr0_cfg", [](R& r) { r.number(r.settings_.config.ranges[0].kind); }},
      {"--filter:addr0_a", [](R& r) { r.number(r.settings_.config.ranges[0].start); }},
      {"--filter:addr0_b", [](R& r) { r.number(r.settings_.config.ranges[0].end); }},
      {"--raw", [](R& r) { r.settings_.raw.push_back(r.words_.at(r.next_++)); }},
      // Both of libipt's decoders print the same, and our blocks always end at calls.
      {"--insn-decoder", [](R& r) { r.instruction_decoder_ = true; }},
      {"--insn:keep-tcal-on-ovf", [](R&) {}},
      {"--block-decoder", [](R&) {}},
      {"--block:end-on-call", [](R&) {}},
  };
  return all;
}

// The code of a case, with what `--raw FILE:OFFSET:ADDRESS` puts over it.
struct Code {
  Code(const pt::test::PttArchive& archive, const pt::test::PttCase& ptt,
       const Settings& settings) {
    add(ptt.org, archive.bytes(ptt.base + ".bin"));
    for (const std::string& raw : settings.raw) {
      const size_t first = raw.find(':');
      const size_t last = raw.rfind(':');
      auto bytes = archive.bytes(raw.substr(0, first));
      const uint64_t offset = std::stoull(raw.substr(first + 1), nullptr, 0);
      bytes.erase(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(offset));
      add(std::stoull(raw.substr(last + 1), nullptr, 0), std::move(bytes));
    }
  }

  void add(uint64_t address, std::vector<uint8_t> bytes) {
    storage.push_back(std::move(bytes));
    memory.add(address, storage.back());
  }

  std::vector<std::vector<uint8_t>> storage;
  CodeMemory memory;
};

std::vector<std::string> decoded_lines(const pt::test::PttArchive& archive,
                                       const pt::test::PttCase& ptt) {
  Settings settings = OptionReader(ptt.options).read();
  (void)pt::errata_of(ptt.cpu, settings.config.errata);
  const Code code(archive, ptt, settings);
  const auto trace = archive.bytes(ptt.base + ".pt");
  FlowDecoder flow(settings.config, std::as_bytes(std::span(trace)), code.memory);
  flow.set_resync(settings.resync);
  FlowText text(settings.text, code.memory);

  std::string out;
  uint64_t instructions = 0;
  uint64_t blocks = 0;
  FlowItem item;
  for (auto kind = flow.next(item); kind != FlowItemKind::kEnd; kind = flow.next(item)) {
    blocks += kind == FlowItemKind::kBlock;
    instructions += kind == FlowItemKind::kBlock ? item.block.instructions : 0;
    if (!settings.quiet || kind == FlowItemKind::kError) text.append(kind, item, out);
  }
  if (!settings.quiet) FlowText::append_end(flow, out);
  if (settings.counts_instructions) out += fmt::format("insn: {}.\n", instructions);
  if (settings.counts_blocks) out += fmt::format("blocks: {}.\n", blocks);
  return pt::test::normalised_lines(out);
}

TEST(FlowPtt, PrintsWhatPtxedPrints) {
  const pt::test::PttArchive archive;
  if (archive.obstacle()) GTEST_SKIP() << *archive.obstacle();
  const auto cases = archive.cases("ptxed");
  ASSERT_GE(cases.size(), 380);
  size_t differing = 0;
  for (const pt::test::PttCase& ptt : cases) {
    SCOPED_TRACE(ptt.name);
    const auto lines = decoded_lines(archive, ptt);
    if (deliberate_differences().count(ptt.name) != 0) {
      EXPECT_NE(lines, ptt.expected) << "no difference any more: take it off the list";
      ++differing;
    } else {
      EXPECT_EQ(lines, ptt.expected);
    }
  }
  EXPECT_EQ(differing, deliberate_differences().size()) << "a listed case does not exist";
}

}  // namespace
}  // namespace auxtrail::flow
