// A server with a flight recorder. It handles requests; one is slow, and its sample shows what the
// server did for it, although nobody logs. Then somebody asks from outside, by a signal.
//
//   $ user_pmu
//   slow request 7, 496 bytes of history:
//     ...
//     request 7: shard 3 does not answer, try again
//     request 7: done after 41 ms
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string_view>
#include <thread>

#include "abi/sample.h"
#include "flight_recorder.h"

namespace {

using user_pmu::FlightRecorder;

constexpr uint32_t kSampleBytes = 512;
constexpr int kBudgetMs = 20;
constexpr uint64_t kAsked = ~uint64_t{0};  // the reason of a sample that was asked for

FlightRecorder* recorder = nullptr;

void handle_request(int number) {
  int ms = 0;
  const auto step = [&](std::string_view what, int takes_ms) {
    recorder->note(fmt::format("request {}: {}", number, what));
    ms += takes_ms;
  };
  step("read, 204 bytes", 0);
  step(fmt::format("ask shard {}", number % 4), 3);
  if (number == 7) step("shard 3 does not answer, try again", 38);
  step(fmt::format("done after {} ms", ms), 0);
  if (ms > kBudgetMs) recorder->sample(static_cast<uint64_t>(number));
}

// The consumer's side: takes samples out of the ring and prints their lines.
class Printer {
 public:
  explicit Printer(FlightRecorder& of)
      : reader_(of.reader()), format_(auxtrail::abi::SampleFormat::from_attr(of.sampler_attr())) {}

  void drain() {
    reader_.drain(scratch_, [this](std::span<const std::byte> record) { print(record); });
  }
  [[nodiscard]] int samples() const { return samples_; }

 private:
  void print(std::span<const std::byte> record) {
    auxtrail::abi::Record parsed;
    auxtrail::abi::Sample sample;
    if (first_record(record, parsed) != auxtrail::abi::RecordStatus::kOk) return;
    if (parse_sample(parsed, format_, sample) != auxtrail::abi::ParseStatus::kOk) return;
    ++samples_;
    std::string_view lines(reinterpret_cast<const char*>(sample.aux.data()), sample.aux.size());
    // Before the first line ever there are zeros, and the oldest line may have lost its begin.
    lines.remove_prefix(std::min(lines.find_first_not_of('\0'), lines.size()));
    if (lines.size() == kSampleBytes) lines.remove_prefix(lines.find('\n') + 1);
    const std::string reason = sample.address == kAsked
                                   ? "asked for (SIGUSR1)"
                                   : fmt::format("slow request {}", sample.address);
    fmt::print("{}, {} bytes of history:\n", reason, lines.size());
    while (!lines.empty()) {
      const size_t end = std::min(lines.find('\n'), lines.size() - 1);
      fmt::print("  {}\n", lines.substr(0, end));
      lines.remove_prefix(end + 1);
    }
  }

  auxtrail::event::RingReader reader_;
  auxtrail::event::RecordScratch scratch_;
  auxtrail::abi::SampleFormat format_;
  int samples_ = 0;
};

}  // namespace

int main() {
  FlightRecorder flight_recorder(static_cast<uint32_t>(getpid()), kSampleBytes);
  recorder = &flight_recorder;
  signal(SIGUSR1, [](int) { recorder->sample(kAsked); });

  // The recorder is this thread's alone, so the signal must not find another.
  sigset_t usr1;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &usr1, nullptr);
  std::atomic<bool> done = false;
  Printer printer(flight_recorder);
  std::thread consumer([&] {
    while (!done) {
      printer.drain();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    printer.drain();
  });
  pthread_sigmask(SIG_UNBLOCK, &usr1, nullptr);

  for (int number = 1; number <= 10; ++number) handle_request(number);
  pthread_kill(pthread_self(), SIGUSR1);  // kill -USR1 from a shell does as well
  done = true;
  consumer.join();
  fmt::print("{} samples, {} lost\n", printer.samples(), flight_recorder.lost());
}
