// loads_plugin PLUGIN [PLUGIN]: loads each, calls its function 1000 times and unloads it. Between
// the two it works for some time, for libc's dlclose() has it run natively for a moment.
#include <dlfcn.h>

#include <cstdio>
#include <ctime>

int main(int argc, char** argv) {
  long sum = 0;
  for (int at = 1; at < argc; ++at) {
    void* const plugin = dlopen(argv[at], RTLD_NOW);
    if (plugin == nullptr) return 1;
    const auto work = reinterpret_cast<int (*)(int)>(dlsym(plugin, "plugin_work"));
    if (work == nullptr) return 2;
    const clock_t started = clock();
    while (at != 1 && clock() - started < CLOCKS_PER_SEC / 20) {
    }
    for (int i = 0; i < 1000; ++i) sum += work(i);
    dlclose(plugin);
  }
  std::printf("%ld\n", sum);
  return 0;
}
