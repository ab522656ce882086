// See recorder.h.
#include "recorder.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "tracee.h"

namespace auxtrail::lockstep {
namespace {

constexpr uint32_t kDataPages = 128;
constexpr uint32_t kAuxPages = 16;
constexpr uint64_t kSampleType = 0x110187;  // IP TID TIME CPU PERIOD IDENTIFIER AUX
constexpr uint64_t kNeverNs = uint64_t{1} << 60;
constexpr uint32_t kPsbPeriodBytes = 2048;         // as auxtrail record has it
constexpr uint64_t kUncompressedReturns = 0x2c01;  // branch tracing, TSC, uncompressed returns
constexpr uint64_t kCompressedReturns = 0x2401;
constexpr int kHandshakeMs = 60000;

perf_event_attr NeverAttr() {
  perf_event_attr attr{};
  attr.type = PERF_TYPE_SOFTWARE;
  attr.size = sizeof attr;
  attr.config = PERF_COUNT_SW_TASK_CLOCK;
  attr.sample_period = kNeverNs;
  attr.exclude_kernel = 1;
  attr.exclude_hv = 1;
  return attr;
}

channel::SessionConfig MakeConfig(const RecorderOptions& options) {
  channel::SessionConfig config;
  config.end_by_trap = options.end_by_trap ? 1 : 0;
  config.continuous = options.continuous ? 1 : 0;
  config.all_packets = options.deferred ? 0 : 1;
  config.psb_period_bytes = kPsbPeriodBytes;
  config.data_pages = kDataPages;
  config.aux_pages = kAuxPages;
  config.entry = NeverAttr();
  config.entry.sigtrap = 1;
  config.entry.remove_on_exec = 1;
  config.samplers[0].trigger = config.entry;
  config.samplers[0].attr = NeverAttr();
  config.samplers[0].attr.sample_type = kSampleType;
  config.samplers[0].attr.aux_sample_size = options.aux_sample_bytes;
  config.leader.type = 8;
  config.leader.size = sizeof config.leader;
  config.leader.config = options.return_compression ? kCompressedReturns : kUncompressedReturns;
  config.leader.sample_type = 0x10087;
  config.samplers[0].id = 101;
  config.leader_id = 11;
  return config;
}

UniqueFd Listen(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) Die("socket path too long");
  std::memcpy(address.sun_path, path.data(), path.size());
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(fd.get(), 1) != 0) {
    Die("cannot listen on " + path);
  }
  return fd;
}

// The memfd of the unit's Hello; the events' descriptors that come with it are closed.
UniqueFd ReceiveMemory(int fd) {
  channel::Hello hello;
  iovec part{&hello, sizeof hello};
  alignas(cmsghdr) char control[CMSG_SPACE(channel::kMaxDescriptors * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) != sizeof hello) return {};
  const cmsghdr* rights = CMSG_FIRSTHDR(&message);
  if (rights == nullptr || hello.magic != channel::kMagic) return {};
  int descriptors[channel::kMaxDescriptors] = {};
  const size_t bytes = rights->cmsg_len - CMSG_LEN(0);
  std::memcpy(descriptors, CMSG_DATA(rights), bytes);
  for (size_t i = 1; i < bytes / sizeof(int); ++i) close(descriptors[i]);
  return UniqueFd(descriptors[0]);
}

void Add(Reasons& sum, const channel::Counters& counters) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += counters.ended_by[i].load();
}

}  // namespace

Channel::Channel(UniqueFd memory) {
  const size_t bytes = channel::memory_bytes(kDataPages, kAuxPages);
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) Die("mmap of the shared memory");
  memory_ = Mapping(mapped, bytes);
}

std::vector<TakenSample> Channel::samples() {
  std::vector<TakenSample> taken;
  const abi::SampleFormat format{.sample_type = kSampleType};
  for (uint32_t i = 0; i < channel::kSlotCount; ++i) {
    const auto slot = channel::slot_view(memory_.data(), i, kDataPages, kAuxPages);
    if (slot.control->data_size == 0) continue;
    if (!known_[i]) {
      readers_[i] =
          event::RingReader(slot.control, slot.data, uint64_t{kDataPages} * channel::kPageBytes);
      known_[i] = true;
    }
    readers_[i].drain(scratch_, [&](std::span<const std::byte> bytes) {
      abi::Record record;
      abi::Sample sample;
      if (abi::first_record(bytes, record) != abi::RecordStatus::kOk) Die("bad record");
      if (record.type != PERF_RECORD_SAMPLE) return;
      if (abi::parse_sample(record, format, sample) != abi::ParseStatus::kOk) Die("bad sample");
      taken.push_back({sample.ip, sample.id.time_ns, {sample.aux.begin(), sample.aux.end()}});
    });
  }
  return taken;
}

bool Channel::append_aux(std::vector<std::byte>& bytes) {
  const auto slot = channel::slot_view(memory_.data(), 0, kDataPages, kAuxPages);
  constexpr uint64_t kAuxBytes = uint64_t{kAuxPages} * channel::kPageBytes;
  const uint64_t written = slot.header->aux_written.load(std::memory_order_acquire);
  if (written - aux_read_ > kAuxBytes - channel::kAuxAheadBytes) return false;
  for (; aux_read_ != written; ++aux_read_) bytes.push_back(slot.aux[aux_read_ % kAuxBytes]);
  return true;
}

Reasons Channel::reasons() const {
  Reasons sum{};
  for (uint32_t i = 0; i < channel::kSlotCount; ++i) {
    Add(sum, channel::slot_view(memory_.data(), i, kDataPages, kAuxPages).header->counters);
  }
  Add(sum, reinterpret_cast<const channel::ProcessHeader*>(memory_.data())->process);
  return sum;
}

Recorder::Recorder(const RecorderOptions& options) : config_(MakeConfig(options)) {
  char directory[] = "/tmp/lockstep.XXXXXX";
  if (mkdtemp(directory) == nullptr) Die("mkdtemp");
  path_ = std::string(directory) + "/socket";
  listener_ = Listen(path_);
}

Recorder::~Recorder() {
  if (server_.joinable()) server_.join();
  (void)unlink(path_.c_str());
  (void)rmdir(path_.substr(0, path_.rfind('/')).c_str());
}

void Recorder::expect() {
  server_ = std::thread([this] { serve(); });
}

void Recorder::serve() {
  pollfd wanted{listener_.get(), POLLIN, 0};
  if (poll(&wanted, 1, kHandshakeMs) <= 0) return;
  const UniqueFd peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (send(peer.get(), &config_, sizeof config_, 0) != sizeof config_) return;
  received_ = ReceiveMemory(peer.get());
}

std::unique_ptr<Channel> Recorder::channel() {
  if (server_.joinable()) server_.join();
  if (!received_) return nullptr;
  return std::make_unique<Channel>(std::move(received_));
}

}  // namespace auxtrail::lockstep
