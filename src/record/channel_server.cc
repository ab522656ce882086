#include "record/channel_server.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "record/clock.h"

namespace auxtrail::record {
namespace {

constexpr int kBacklog = 1024;
constexpr uint64_t kSilenceLimitNs = 10'000'000'000;
constexpr int kTickMs = 1000;

Result<std::string> make_private_folder() {
  const char* variable = std::getenv("TMPDIR");
  std::string base = variable != nullptr && *variable == '/' ? variable : "/tmp";
  // The socket's whole path must fit sockaddr_un.
  if (base.size() + sizeof("/auxtrail-XXXXXX/socket") > sizeof(sockaddr_un::sun_path)) {
    base = "/tmp";
  }
  std::string folder = base + "/auxtrail-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) {
    return fail_errno("make a folder for the socket", folder, errno,
                      "set TMPDIR to a folder that can be written");
  }
  return folder;
}

Result<UniqueFd> listen_on(const std::string& path) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fail_errno("make the recorder's socket", path, errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    return fail_errno("make the recorder's socket", path, errno);
  }
  return socket;
}

bool watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

// One message with its descriptors. The size is -1 on failure.
struct Message {
  ssize_t size = -1;
  std::vector<UniqueFd> descriptors;
};

Message receive_message(int socket, void* buffer, size_t size) {
  iovec part{buffer, size};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(channel::kMaxDescriptors * sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  Message message;
  message.size = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (message.size < 0) return message;
  for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr; item = CMSG_NXTHDR(&header, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(item) + i * sizeof(int), sizeof(int));
      message.descriptors.emplace_back(fd);
    }
  }
  return message;
}

tl::unexpected<Error> refuse(pid_t pid, std::string why) {
  return fail({"take in a trace unit", "pid " + std::to_string(pid), std::move(why), ""});
}

// A tmpfs memory object of exactly `size_bytes` that can neither shrink nor grow: reading it can
// never fault.
Status check_memory(int fd, size_t size_bytes, pid_t pid) {
  struct stat status {};
  struct statfs filesystem {};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
  if (seals < 0 || (seals & kNeeded) != kNeeded) return refuse(pid, "its memory is not sealed");
  if (::fstat(fd, &status) != 0 || status.st_size != static_cast<off_t>(size_bytes)) {
    return refuse(pid, "its memory has another size");
  }
  if (::fstatfs(fd, &filesystem) != 0 || filesystem.f_type != TMPFS_MAGIC) {
    return refuse(pid, "its memory is no ordinary memfd");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ChannelServer>> ChannelServer::create() {
  std::unique_ptr<ChannelServer> server(new ChannelServer);
  AUXTRAIL_ASSIGN(server->folder_, make_private_folder());
  server->socket_path_ = server->folder_ + "/socket";
  AUXTRAIL_ASSIGN(server->listener_, listen_on(server->socket_path_));
  server->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  server->stop_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->epoll_ || !server->stop_) {
    return fail_errno("watch the recorder's socket", server->socket_path_, errno);
  }
  return server;
}

ChannelServer::~ChannelServer() {
  stop();
  if (!socket_path_.empty()) ::unlink(socket_path_.c_str());
  if (!folder_.empty()) ::rmdir(folder_.c_str());
}

Status ChannelServer::start(const ServerOptions& options) {
  options_ = options;
  if (!watch(epoll_.get(), listener_.get()) || !watch(epoll_.get(), stop_.get())) {
    return fail_errno("watch the recorder's socket", socket_path_, errno);
  }
  thread_ = std::thread([this] { run(); });
  return {};
}

void ChannelServer::stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    (void)!::write(stop_.get(), &one, sizeof(one));
    thread_.join();
  }
  pending_.clear();
  listener_.reset();
}

std::vector<Connection> ChannelServer::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(accepted_, {});
}

void ChannelServer::run() {
  while (true) {
    std::array<epoll_event, 64> events{};
    const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), kTickMs);
    bool stopping = false;
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<size_t>(i)].data.fd;
      if (fd == stop_.get()) {
        stopping = true;
      } else if (fd == listener_.get()) {
        accept_all();
      } else {
        receive(fd);
      }
    }
    if (stopping) {
      receive_all();
      return;
    }
    drop_silent(monotonic_ns());
  }
}

void ChannelServer::accept_all() {
  while (true) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    greet(std::move(socket));
  }
}

channel::SessionConfig ChannelServer::config_for(pid_t pid) const {
  channel::SessionConfig config = options_.config;
  if (pid == options_.first_pid) return config;
  for (channel::Sampler& sampler : config.samplers) {
    if (sampler.attr.inherit != 0 || sampler.kind == channel::Sampler::kFatalSignal) continue;
    sampler.kind = channel::Sampler::kNone;
  }
  return config;
}

void ChannelServer::greet(UniqueFd socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      peer.uid != ::geteuid()) {
    ++refused_;
    return;
  }
  if (options_.only_pid != 0 && peer.pid != options_.only_pid) return;
  Pending pending;
  pending.connection.pid = peer.pid;
  pending.connection.time_ns = monotonic_ns();
  pending.connection.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
  if (options_.read_processes) pending.connection.process = read_process(peer.pid);
  const channel::SessionConfig config = config_for(peer.pid);
  const ssize_t sent = ::send(socket.get(), &config, sizeof(config), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(sizeof(config))) return;
  const int fd = socket.get();
  if (!watch(epoll_.get(), fd)) return;
  pending.socket = std::move(socket);
  pending_.emplace(fd, std::move(pending));
}

void ChannelServer::receive(int socket) {
  const auto found = pending_.find(socket);
  if (found == pending_.end()) return;
  Connection connection = std::move(found->second.connection);
  Message message = receive_message(socket, &connection.hello, sizeof(connection.hello));
  pending_.erase(found);          // one message is all; closing tells the peer nothing more comes
  if (message.size <= 0) return;  // gone before its hello, or killed
  if (message.size != static_cast<ssize_t>(sizeof(connection.hello)) ||
      !admit(connection, std::move(message.descriptors))) {
    ++refused_;
    return;
  }
  const std::lock_guard lock(mutex_);
  accepted_.push_back(std::move(connection));
}

// A process may have said hello and ended before its message was looked at.
void ChannelServer::receive_all() {
  std::vector<int> sockets;
  for (const auto& [socket, pending] : pending_) sockets.push_back(socket);
  for (const int socket : sockets) receive(socket);
}

void ChannelServer::drop_silent(uint64_t now_ns) {
  std::erase_if(pending_, [now_ns](const auto& entry) {
    return now_ns - entry.second.connection.time_ns > kSilenceLimitNs;
  });
}

Status ChannelServer::admit(Connection& connection, std::vector<UniqueFd> descriptors) const {
  const channel::Hello& hello = connection.hello;
  const channel::SessionConfig& config = options_.config;
  if (hello.magic != channel::kMagic || hello.version != channel::kVersion) {
    return refuse(connection.pid, "it speaks another version");
  }
  if (hello.declined != channel::Declined::kNo) {
    if (hello.declined < channel::Declined::kCount) return {};
    return refuse(connection.pid, "it declines for an unknown reason");
  }
  if (descriptors.empty()) return refuse(connection.pid, "it sent no memory");
  const size_t size_bytes = channel::memory_bytes(config.data_pages, config.aux_pages);
  connection.memory_fd = std::move(descriptors[0]);
  descriptors.erase(descriptors.begin());
  connection.triggers = std::move(descriptors);
  AUXTRAIL_TRY(check_memory(connection.memory_fd.get(), size_bytes, connection.pid));
  void* address = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                         connection.memory_fd.get(), 0);
  if (address == MAP_FAILED) return fail_errno("map a trace unit's memory", "", errno);
  connection.memory = Mapping(address, size_bytes);
  return {};
}

}  // namespace auxtrail::record
