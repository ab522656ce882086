// Loaded late: the trace of its function alone (filter_test.py).
extern "C" int plugin_work(int value) {
  int sum = value;
  for (int i = 0; i < (value & 3); ++i) {
    asm volatile("" : "+r"(sum));
    sum += i;
  }
  return sum;
}
