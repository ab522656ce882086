#include "decode/testing/differential_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "decode/testing/trace_mutation.h"

namespace auxtrail::decode::testing {
namespace {

struct Clocks {
  uint8_t mtc_freq;
  uint8_t nom_freq;
  uint32_t eax;
  uint32_t ebx;
};
constexpr std::array kClocks = {Clocks{3, 32, 2, 176}, Clocks{0, 16, 2, 168},
                                Clocks{9, 24, 3, 216}};

struct CpuModel {
  bool intel;
  uint8_t model;
  const char* name;
};
// Whose errata libipt knows, and none of whose errata changes what a trace without faults means.
constexpr std::array kCpus = {CpuModel{false, 0, "no CPU"}, CpuModel{true, 0x5e, "Skylake"},
                              CpuModel{true, 0x3d, "Broadwell"}};
constexpr size_t kFilters = 2;
constexpr uint64_t kRealCircumstances = uint64_t{1} << 32;
constexpr size_t kMaxRealBytes = 3000;

EncoderOptions random_encoder_options(Random& random, const Clocks& clocks) {
  EncoderOptions options;
  options.compress_returns = random.one_in(2);
  options.defer_tips = random.one_in(5);
  options.long_tnt = random.one_in(4);
  options.shortest_ip = !random.one_in(4);
  options.psb_bytes = random.one_in(2) ? 0 : static_cast<uint32_t>(random.between(60, 600));
  options.tsc = random.one_in(2);
  options.mtc = options.tsc && random.one_in(2);
  options.cyc = random.one_in(4);
  options.cbr = random.one_in(3);
  options.pip = random.one_in(3);
  options.power = random.one_in(5);
  options.ptw = random.one_in(4);
  options.ptw_ip = random.one_in(2);
  options.mnt = random.one_in(8);
  options.pad = random.one_in(3);
  options.mtc_freq = clocks.mtc_freq;
  options.nom_freq = clocks.nom_freq;
  options.cpuid_0x15_eax = clocks.eax;
  options.cpuid_0x15_ebx = clocks.ebx;
  return options;
}

WalkOptions random_walk_options(Random& random, const Clocks& clocks) {
  WalkOptions options;
  options.encoder = random_encoder_options(random, clocks);
  options.steps = random.one_in(12) ? random.between(300, 3000) : random.between(10, 300);
  options.interrupt_percent = static_cast<uint8_t>(random.one_in(3) ? 0 : random.below(5));
  options.overflow_per_mille = static_cast<uint8_t>(random.one_in(2) ? 0 : random.below(20));
  options.transactions = random.one_in(2);
  options.user_only = random.one_in(3);
  options.open_end = random.one_in(5);
  options.start_in_psb = random.one_in(2);
  return options;
}

std::string describe(const WalkOptions& walk) {
  const EncoderOptions& has = walk.encoder;
  std::string text = fmt::format("{} steps", walk.steps);
  const auto add = [&text](bool is_set, std::string_view word) {
    if (is_set) text.append(", ").append(word);
  };
  add(has.compress_returns, "compressed returns");
  add(has.defer_tips, "deferred TIPs");
  add(has.long_tnt, "TNT.64");
  add(!has.shortest_ip, "any IP compression");
  if (has.psb_bytes != 0) text += fmt::format(", PSB+ every {} bytes", has.psb_bytes);
  add(has.tsc, "TSC");
  add(has.mtc, "MTC");
  add(has.cyc, "CYC");
  add(has.cbr, "CBR");
  add(has.pip, "PIP");
  add(has.power, "power");
  add(has.ptw, has.ptw_ip ? "PTW with IP" : "PTW");
  add(has.mnt, "MNT");
  add(has.pad, "PAD");
  add(walk.transactions, "TSX");
  add(walk.user_only, "user only");
  add(walk.skl014, "SKL014");
  add(walk.open_end, "open end");
  add(walk.start_in_psb, "starts in PSB+");
  if (walk.filter_end != 0) {
    text += fmt::format(", filter {:#x}..{:#x}", walk.filter_start, walk.filter_end);
  }
  return text;
}

}  // namespace

CaseMaker::Program::Program(uint64_t seed) : code(seed) {
  Random random(~seed);
  const auto& insns = code.insns();
  const SimSection& section = code.sections()[random.below(code.sections().size())];
  const auto first = section.first + random.below((section.end - section.first) / 2);
  const auto last = random.between(first + 1, section.end - 1);
  filter_start = insns[first].ip;
  filter_end = insns[last].next_ip() - 1;
}

CaseMaker::CaseMaker(const CaseOptions& options, std::vector<RealTrace> real_traces)
    : options_(options), programs_(options.programs), real_traces_(std::move(real_traces)) {}

CaseMaker::Program& CaseMaker::program(size_t index) {
  auto& made = programs_[index];
  if (!made) made = std::make_unique<Program>(Random(options_.seed * 1000 + index).next());
  return *made;
}

DifferentialCase CaseMaker::make(uint64_t number) {
  Random random(Random(options_.seed).next() ^ Random(number).next());
  DifferentialCase made;
  made.number = number;
  const bool is_real = options_.mutate && !real_traces_.empty() && random.one_in(20);
  if (is_real) {
    take_real(made, random);
  } else {
    simulate(made, number % programs_.size(), random);
  }
  if (options_.mutate && (is_real || !random.one_in(8))) damage(made, random);
  return made;
}

void CaseMaker::simulate(DifferentialCase& made, size_t index, Random& random) {
  Program& code = program(index);
  const size_t clocks = random.below(kClocks.size());
  const size_t cpu = random.below(kCpus.size());
  const bool has_filter = random.one_in(3);
  made.circumstances =
      ((index * kClocks.size() + clocks) * kCpus.size() + cpu) * kFilters + (has_filter ? 1 : 0);
  WalkOptions walk = random_walk_options(random, kClocks[clocks]);
  if (has_filter) {
    walk.filter_start = code.filter_start;
    walk.filter_end = code.filter_end;
    walk.skl014 = kCpus[cpu].model == 0x5e && random.one_in(2);
  }
  made.config.intel_cpu = kCpus[cpu].intel;
  made.config.family = 6;
  made.config.model = kCpus[cpu].model;
  made.config.filter_start = walk.filter_start;
  made.config.filter_end = walk.filter_end;
  made.config.mtc_freq = kClocks[clocks].mtc_freq;
  made.config.nom_freq = kClocks[clocks].nom_freq;
  made.config.cpuid_0x15_eax = kClocks[clocks].eax;
  made.config.cpuid_0x15_ebx = kClocks[clocks].ebx;
  made.code = &code.code.code();
  made.walk = walk;
  made.description =
      fmt::format("program {}, {}, clocks {}, {}", index, kCpus[cpu].name, clocks, describe(walk));
  made.trace = SimulatedWalk(code.code, walk, random.next()).run();
  if (options_.mutate && random.one_in(16)) {
    made.code = &code.code.incomplete_code();
    made.is_genuine = false;
    made.description += ", code missing";
  }
}

void CaseMaker::take_real(DifferentialCase& made, Random& random) {
  const size_t index = random.below(real_traces_.size());
  const RealTrace& real = real_traces_[index];
  const size_t begin = real.psbs[random.below(real.psbs.size())];
  const size_t size = std::min(random.between(100, kMaxRealBytes), real.bytes.size() - begin);
  const auto first = real.bytes.begin() + static_cast<std::ptrdiff_t>(begin);
  made.trace.bytes.assign(first, first + static_cast<std::ptrdiff_t>(size));
  made.circumstances = kRealCircumstances + index;
  made.config = real.config;
  made.code = &real.code;
  made.is_genuine = false;
  made.description = fmt::format("{}, {} bytes from {:#x}", real.title, size, begin);
}

void CaseMaker::damage(DifferentialCase& made, Random& random) {
  // Not the trace of the case before: a case must be the same when it is replayed alone.
  WalkOptions walk = random_walk_options(random, kClocks[0]);
  walk.steps = random.between(10, 80);
  const auto other = SimulatedWalk(program(0).code, walk, random.next()).run().bytes;
  made.description += "; " + mutate(made.trace.bytes, other, random);
  made.is_genuine = false;
}

}  // namespace auxtrail::decode::testing
