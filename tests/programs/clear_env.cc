// A program that runs itself with an empty environment, with one variable, and after clearenv; and
// that looks at its environment in between. Variables that a tracer needs to pass on are its own
// business; every other one must be as it was set.
#include <sys/wait.h>

#include <string>

#include "check.h"

extern char** environ;

namespace {

bool IsTracers(const char* variable) {
  return std::strncmp(variable, "LD_PRELOAD=", 11) == 0 ||
         std::strncmp(variable, "AUXTRAIL", 8) == 0;
}

void Print(const char* when) {
  std::printf("%s:", when);
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    if (!IsTracers(*at)) std::printf(" %s", *at);
  }
  std::printf("; work %016llx\n", check::Llu(check::Burn(7, 20000000)));
}

void Run(const char* name, char* const* environment) {
  std::fflush(stdout);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    char* const arguments[] = {const_cast<char*>("clear_env"), const_cast<char*>(name), nullptr};
    if (environment == nullptr) {
      clearenv();
      execv("/proc/self/exe", arguments);
    } else {
      execve("/proc/self/exe", arguments, environment);
    }
    _exit(1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    Print(argv[1]);
    return 0;
  }
  char* const none[] = {nullptr};
  char* const one[] = {const_cast<char*>("ONLY=this"), nullptr};
  Run("empty", none);
  Run("one", one);
  Run("cleared", nullptr);
  CHECK(clearenv() == 0);
  Print("self");
  return 0;
}
