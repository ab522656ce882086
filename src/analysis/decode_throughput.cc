// How fast traces are decoded, with libipt's block decoder as the peer.
//
//   decode_throughput [--rounds N] [--pages TITLE:TRACE:STEM:FROM-TO]... [--perf-data
//   TITLE:FILE]...
//
// Prints JSON: per trace and consumer the seconds of both, as medians of rounds in which they take
// turns, and the ratio. libipt: one block decoder, its section cache warm but for cold starts, no
// consumer at all. Ours delivers every branch in batches, or counts edges.
#include <intel-pt.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "analysis/recording.h"
#include "analysis/trace_queues.h"
#include "decode/code_images.h"
#include "decode/native_decoder.h"
#include "decode/parallel_decoder.h"
#include "pt/packet_reader.h"

namespace auxtrail::analysis {
namespace {

using Bytes = std::vector<std::byte>;

struct Trace {
  std::string title;
  Bytes bytes;
  image::CodeMap code;
  decode::TraceConfig config;
};

Bytes read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> content{std::istreambuf_iterator<char>(file), {}};
  Bytes bytes(content.size());
  std::memcpy(bytes.data(), content.data(), content.size());
  return bytes;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  size_t from = 0;
  for (size_t at = 0; (at = text.find(':', from)) != std::string::npos; from = at + 1) {
    parts.push_back(text.substr(from, at - from));
  }
  parts.push_back(text.substr(from));
  return parts;
}

// TITLE:TRACE:STEM:FROM-TO, see decode/kvm_traces_test.cc.
bool load_pages(const std::string& argument, Trace& trace) {
  const auto parts = split(argument);
  if (parts.size() != 4) return false;
  trace.title = parts[0];
  trace.bytes = read_file(parts[1]);
  const Bytes addresses = read_file(parts[2] + ".addr");
  constexpr uint64_t kPageBytes = 4096;
  trace.code.id = 1;
  for (size_t page = 0; (page + 1) * 8 <= addresses.size(); ++page) {
    uint64_t address = 0;
    std::memcpy(&address, addresses.data() + page * 8, 8);
    trace.code.sections.push_back({parts[2] + ".dump", page * kPageBytes, kPageBytes, address});
  }
  trace.config.intel_cpu = true;
  trace.config.family = 6;
  trace.config.model = 94;
  unsigned long long from = 0;
  unsigned long long to = 0;
  if (std::sscanf(parts[3].c_str(), "%llx-%llx", &from, &to) != 2) return false;
  trace.config.filter_start = from;
  trace.config.filter_end = to;
  return !trace.bytes.empty() && !trace.code.sections.empty();
}

// TITLE:FILE, the full trace of one thread; its code as it was at the end.
bool load_recording(const std::string& argument, Trace& trace) {
  const auto parts = split(argument);
  if (parts.size() != 2) return false;
  auto recording = Recording::open(parts[1]);
  if (!recording) return false;
  TraceQueues queues(false);
  recording->reader().for_each_raw([&](const perfdata::DataRecord& record) {
    const auto auxtrace = perfdata::parse_auxtrace(record.record);
    if (auxtrace) queues.add(*auxtrace, record.payload);
    return true;
  });
  int32_t tid = -1;
  for (const auto& [index, queue] : queues.queues()) {
    Bytes bytes;
    for (const TraceSegment& segment : queue.segments) {
      for (const auto piece : segment.pieces) bytes.insert(bytes.end(), piece.begin(), piece.end());
    }
    if (bytes.size() <= trace.bytes.size()) continue;
    trace.bytes = std::move(bytes);
    tid = queue.tid;
  }
  trace.title = parts[0];
  trace.config = recording->trace_config();
  const auto layout = recording->spaces().layout(recording->pid_of(tid), ~uint64_t{0});
  trace.code = image::make_code_map(*layout, recording->dsos());
  return !trace.bytes.empty();
}

double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Every block of the trace, for nothing. Blocks end at branches, so that every branch can be told.
uint64_t run_libipt(const Trace& trace, decode::CodeImages& images) {
  pt_config config;
  pt_config_init(&config);
  config.flags.variant.block.end_on_call = 1;
  config.flags.variant.block.end_on_jump = 1;
  auto* first = reinterpret_cast<uint8_t*>(const_cast<std::byte*>(trace.bytes.data()));
  config.begin = first;
  config.end = first + trace.bytes.size();
  if (trace.config.intel_cpu) {
    config.cpu = {pcv_intel, trace.config.family, trace.config.model, trace.config.stepping};
    (void)pt_cpu_errata(&config.errata, &config.cpu);
  }
  if (trace.config.filter_end != 0) {
    config.addr_filter.config.addr_cfg = 1;
    config.addr_filter.addr0_a = trace.config.filter_start;
    config.addr_filter.addr0_b = trace.config.filter_end;
  }
  const std::unique_ptr<pt_block_decoder, decltype(&pt_blk_free_decoder)> decoder(
      pt_blk_alloc_decoder(&config), &pt_blk_free_decoder);
  const auto image = images.get(trace.code);
  (void)pt_blk_set_image(decoder.get(), image->image.get());
  uint64_t instructions = 0;
  for (int status = pt_blk_sync_forward(decoder.get()); status != -pte_eos;) {
    while (status >= 0 && (status & pts_event_pending) != 0) {
      pt_event event;
      status = pt_blk_event(decoder.get(), &event, sizeof event);
    }
    if (status >= 0 && (status & pts_eos) != 0) break;
    if (status >= 0) {
      pt_block block;
      status = pt_blk_next(decoder.get(), &block, sizeof block);
      instructions += block.ninsn;
    }
    if (status < 0 && status != -pte_eos) status = pt_blk_sync_forward(decoder.get());
  }
  return instructions;
}

class Sink : public decode::FlowConsumer {
 public:
  [[nodiscard]] unsigned wants() const override { return decode::kWantsBranches; }
  void on_branches(std::span<const decode::Branch> branches) override {
    for (const decode::Branch& branch : branches) sum_ += branch.to;
  }
  void on_branch(const decode::Branch& branch) override { sum_ += branch.to; }
  [[nodiscard]] uint64_t sum() const { return sum_; }

 private:
  uint64_t sum_ = 0;
};

class Contest {
 public:
  Contest(const Trace& trace, unsigned rounds) : trace_(trace), rounds_(rounds) {}

  nlohmann::ordered_json run() {
    const decode::DecodeSummary totals = decoder_.decode(trace_.code, trace_.bytes, sink_);
    const uint64_t instructions = run_libipt(trace_, images_);
    nlohmann::ordered_json json = {{"trace", trace_.title},
                                   {"bytes", trace_.bytes.size()},
                                   {"branches", totals.branches + totals.not_taken},
                                   {"instructions", totals.instructions},
                                   {"instructions_libipt", instructions},
                                   {"errors", totals.error_count()}};
    repeat_ = std::max<uint64_t>(1, 4'000'000 / (totals.branches + totals.not_taken + 1));

    const auto libipt = [&] { run_libipt(trace_, images_); };
    compare(json, "every_branch", libipt,
            [&] { decoder_.decode(trace_.code, trace_.bytes, sink_); });
    decode::EdgeProfile profile;
    compare(json, "edges", libipt,
            [&] { decoder_.count_edges(trace_.code, trace_.bytes, profile); });
    decode::ParallelDecoder one(trace_.config, 1);
    decode::ParallelDecoder two(trace_.config, 2);
    // Both as warm as the other.
    for (unsigned i = 0; i < 2; ++i) {
      one.count_edges(trace_.code, trace_.bytes, profile);
      two.count_edges(trace_.code, trace_.bytes, profile);
      one.decode(trace_.code, trace_.bytes, sink_);
      two.decode(trace_.code, trace_.bytes, sink_);
    }
    if (trace_.bytes.size() > (size_t{1} << 20)) {  // a small trace is but one piece
      compare(
          json, "edges_two_threads_vs_one",
          [&] { one.count_edges(trace_.code, trace_.bytes, profile); },
          [&] { two.count_edges(trace_.code, trace_.bytes, profile); });
      compare(
          json, "every_branch_two_threads_vs_one",
          [&] { one.decode(trace_.code, trace_.bytes, sink_); },
          [&] { two.decode(trace_.code, trace_.bytes, sink_); });
    }
    repeat_ = 1;
    rounds_ = std::max(rounds_, trace_.bytes.size() < (size_t{1} << 20) ? 21u : rounds_);
    compare(
        json, "cold",
        [&] {
          decode::CodeImages images;
          run_libipt(trace_, images);
        },
        [&] {
          decode::NativeDecoder decoder(trace_.config);
          decoder.decode(trace_.code, trace_.bytes, sink_);
        });
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    json["peak_memory_mb"] = usage.ru_maxrss / 1024;
    return json;
  }

 private:
  void compare(nlohmann::ordered_json& json, const char* name, const std::function<void()>& peer,
               const std::function<void()>& ours) {
    std::vector<double> peer_s;
    std::vector<double> ours_s;
    std::vector<double> ratios;
    for (unsigned round = 0; round < rounds_; ++round) {
      peer_s.push_back(timed(peer));
      ours_s.push_back(timed(ours));
      ratios.push_back(peer_s.back() / ours_s.back());
    }
    json[name] = {
        {"peer_s", median(peer_s)}, {"ours_s", median(ours_s)}, {"ratio", median(ratios)}};
  }

  double timed(const std::function<void()>& work) const {
    return seconds([&] {
             for (uint64_t i = 0; i < repeat_; ++i) work();
           }) /
           static_cast<double>(repeat_);
  }

  const Trace& trace_;
  unsigned rounds_;
  uint64_t repeat_ = 1;
  decode::CodeImages images_;
  decode::NativeDecoder decoder_{trace_.config};
  Sink sink_;
};

int run(const std::vector<std::string>& arguments) {
  unsigned rounds = 5;
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (size_t i = 0; i + 1 < arguments.size(); i += 2) {
    if (arguments[i] == "--rounds") {
      rounds = static_cast<unsigned>(std::stoul(arguments[i + 1]));
      continue;
    }
    Trace trace;
    const bool loaded = arguments[i] == "--pages"       ? load_pages(arguments[i + 1], trace)
                        : arguments[i] == "--perf-data" ? load_recording(arguments[i + 1], trace)
                                                        : false;
    if (!loaded) {
      std::fprintf(stderr, "decode_throughput: can't load %s %s\n", arguments[i].c_str(),
                   arguments[i + 1].c_str());
      return 1;
    }
    all.push_back(Contest(trace, rounds).run());
  }
  std::printf("%s\n", all.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace auxtrail::analysis

int main(int count, char** values) { return auxtrail::analysis::run({values + 1, values + count}); }
