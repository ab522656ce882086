#include "record/testing/fake_unit.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <new>

#include "base/bytes.h"
#include "event/data_ring.h"

namespace auxtrail::record::testing {
namespace {

bool send_hello(int socket, const channel::Hello& hello, int memory_fd) {
  channel::Hello copy = hello;
  iovec part{&copy, sizeof(copy)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (memory_fd >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* item = CMSG_FIRSTHDR(&header);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(item), &memory_fd, sizeof(int));
  }
  return ::sendmsg(socket, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(copy));
}

void append_address(ByteWriter& out, uint8_t opcode, uint64_t ip) {
  out.u8(opcode);
  for (int byte = 0; byte < 6; ++byte) out.u8(static_cast<uint8_t>(ip >> (8 * byte)));
}

}  // namespace

bool FakeUnit::connect(const char* socket_path, const FakeUnitFaults& faults) {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_path, sizeof(address.sun_path) - 1);
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      ::recv(socket.get(), &config_, sizeof(config_), 0) != sizeof(config_) ||
      !create_memory(config_, faults)) {
    return false;
  }
  channel::Hello hello;
  if (faults.wrong_version) ++hello.version;
  hello.pid = static_cast<uint32_t>(::getpid());
  hello.declined = faults.declined;
  hello.trigger = channel::Trigger::kKernelEvent;
  return send_hello(socket.get(), hello, faults.no_memory ? -1 : memory_fd_.get());
}

bool FakeUnit::create_memory(const channel::SessionConfig& config, const FakeUnitFaults& faults) {
  config_ = config;
  const size_t bytes = channel::memory_bytes(config.data_pages, config.aux_pages) -
                       (faults.short_memory ? channel::kPageBytes : 0);
  memory_fd_.reset(::memfd_create("fake-unit", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (::ftruncate(memory_fd_.get(), static_cast<off_t>(bytes)) != 0) return false;
  if (!faults.unsealed) ::fcntl(memory_fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd_.get(), 0);
  if (at == MAP_FAILED) return false;
  memory_ = Mapping(at, bytes);
  new (at) channel::ProcessHeader();
  return true;
}

channel::SlotView FakeUnit::claim(uint32_t tid) {
  const auto slot = begin_claim();
  finish_claim(slot, tid);
  return slot;
}

channel::SlotView FakeUnit::begin_claim() {
  for (uint32_t index = 0;; ++index) {
    const auto slot =
        channel::slot_view(memory_.data(), index, config_.data_pages, config_.aux_pages);
    auto expected = channel::SlotState::kFree;
    if (slot.header->state.compare_exchange_strong(expected, channel::SlotState::kPreparing)) {
      return slot;
    }
  }
}

void FakeUnit::finish_claim(const channel::SlotView& slot, uint32_t tid) const {
  channel::SlotHeader& header = *slot.header;
  header.tid = tid;
  for (auto* position :
       {&header.aux_written, &header.aux_read, &header.aux_lost, &header.aux_lost_at}) {
    *position = 0;
  }
  if (slot.control->data_size == 0) {
    event::DataRing::init_control_page(*slot.control, channel::kPageBytes,
                                       size_t{config_.data_pages} * channel::kPageBytes);
  }
  header.state.store(channel::SlotState::kClaimed, std::memory_order_release);
}

void FakeUnit::write(const channel::SlotView& slot, std::span<const std::byte> record) const {
  const uint64_t size = uint64_t{config_.data_pages} * channel::kPageBytes;
  const uint64_t head = slot.control->data_head;
  for (size_t i = 0; i < record.size(); ++i) slot.data[(head + i) & (size - 1)] = record[i];
  __atomic_store_n(&slot.control->data_head, head + record.size(), __ATOMIC_RELEASE);
}

std::vector<std::byte> FakeUnit::sample(uint32_t tid, uint64_t ip, uint64_t time_ns) const {
  const std::vector<std::byte> aux = empty_window(ip, time_ns);
  ByteWriter out;
  out.u32(PERF_RECORD_SAMPLE);
  out.u16(PERF_RECORD_MISC_USER);
  out.u16(static_cast<uint16_t>(8 + 6 * 8 + 8 + aux.size()));
  out.u64(config_.samplers[0].id);
  out.u64(ip);
  out.u32(static_cast<uint32_t>(::getpid()));
  out.u32(tid);
  out.u64(time_ns);
  out.u32(0);  // cpu
  out.u32(0);
  out.u64(1);  // period
  out.u64(aux.size());
  out.append(aux);
  return {out.bytes().begin(), out.bytes().end()};
}

std::vector<std::byte> empty_window(uint64_t ip, uint64_t tsc) {
  ByteWriter out;
  for (int i = 0; i < 8; ++i) out.u16(0x8202);  // PSB
  out.u8(0x19);                                 // TSC
  for (int i = 0; i < 7; ++i) out.u8(static_cast<uint8_t>(tsc >> (8 * i)));
  out.u16(0x0199);                // MODE.Exec, 64 bits
  append_address(out, 0x7d, ip);  // FUP
  out.u16(0x2302);                // PSBEND
  append_address(out, 0x7d, ip);  // FUP
  out.u8(0x01);                   // TIP.PGD
  while (out.size() < 48) out.u8(0);
  return {out.bytes().begin(), out.bytes().end()};
}

}  // namespace auxtrail::record::testing
