#include "record/recorder_signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

namespace auxtrail::record {

Result<RecorderSignals> RecorderSignals::block() {
  sigset_t forwarded;
  sigemptyset(&forwarded);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    struct sigaction action {};
    ::sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&forwarded, number);
  }
  sigset_t blocked = forwarded;
  sigaddset(&blocked, SIGPIPE);
  RecorderSignals signals;
  ::pthread_sigmask(SIG_BLOCK, &blocked, &signals.original_mask_);
  signals.fd_.reset(::signalfd(-1, &forwarded, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.fd_) return fail_errno("watch for signals", "", errno);
  return signals;
}

bool RecorderSignals::forward(pid_t command, const std::function<bool(pid_t)>& is_traced,
                              bool takes_usr2) {
  bool took = false;
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    if (takes_usr2 && info.ssi_signo == SIGUSR2) {
      took = true;
      continue;
    }
    const bool from_terminal = info.ssi_code == SI_KERNEL;
    if (from_terminal || is_traced(static_cast<pid_t>(info.ssi_pid))) continue;
    ::kill(command, static_cast<int>(info.ssi_signo));
  }
  return took;
}

}  // namespace auxtrail::record
