// Real: libc's function behind one that the unit exports under the same name.
#pragma once

#include <dlfcn.h>

namespace auxtrail::unit {

// libc's own function of that name, looked up once. dlsym is not async-signal-safe and signal() is,
// so resolve_interposed() looks all of them up before the program runs.
template <class Function>
class Real {
 public:
  constexpr explicit Real(const char* name) : name_(name) {}
  Function* get() {
    if (function_ == nullptr) function_ = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name_));
    return function_;
  }
  template <class... Arguments>
  auto operator()(Arguments... arguments) {
    return get()(arguments...);
  }

 private:
  const char* name_;
  Function* function_ = nullptr;
};

}  // namespace auxtrail::unit
