// DifferentialCase: one trace to decode, with all that decoders need to know, made from two
// numbers.
//
// Cases share programs and circumstances (CPU, filter, clocks), so that decoders and their images
// of the code can be kept from case to case: circumstances with the same key are the same.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "decode/branch_decoder.h"
#include "decode/testing/simulated_program.h"
#include "decode/testing/simulated_walk.h"

namespace auxtrail::decode::testing {

// A trace from elsewhere, to be mutated, with its code.
struct RealTrace {
  std::string title;
  std::vector<std::byte> bytes;
  image::CodeMap code;
  TraceConfig config;
  std::vector<size_t> psbs;
};

struct CaseOptions {
  uint64_t seed = 1;
  bool mutate = false;
  size_t programs = 64;
};

struct DifferentialCase {
  uint64_t number = 0;
  uint64_t circumstances = 0;  // the key of `config`
  TraceConfig config;
  const image::CodeMap* code = nullptr;
  SimulatedTrace trace;
  bool is_genuine = true;  // `trace.truth` holds
  WalkOptions walk;        // of a simulated trace
  std::string description;
};

class CaseMaker {
 public:
  CaseMaker(const CaseOptions& options, std::vector<RealTrace> real_traces);
  DifferentialCase make(uint64_t number);

 private:
  struct Program {
    explicit Program(uint64_t seed);
    SimulatedProgram code;
    uint64_t filter_start = 0;
    uint64_t filter_end = 0;
  };

  Program& program(size_t index);
  void simulate(DifferentialCase& made, size_t index, Random& random);
  void take_real(DifferentialCase& made, Random& random);
  void damage(DifferentialCase& made, Random& random);

  CaseOptions options_;
  std::vector<std::unique_ptr<Program>> programs_;
  std::vector<RealTrace> real_traces_;
};

// One decoder for each of the circumstances.
class DecoderPool {
 public:
  using Factory = std::function<std::unique_ptr<BranchDecoder>(const TraceConfig&)>;
  explicit DecoderPool(Factory factory) : factory_(std::move(factory)) {}
  BranchDecoder& get(const DifferentialCase& made) {
    auto& decoder = decoders_[made.circumstances];
    if (!decoder) decoder = factory_(made.config);
    return *decoder;
  }
  // Decoders that remember something from case to case begin anew.
  void clear() { decoders_.clear(); }

 private:
  Factory factory_;
  std::unordered_map<uint64_t, std::unique_ptr<BranchDecoder>> decoders_;
};

}  // namespace auxtrail::decode::testing
