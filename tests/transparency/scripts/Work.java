import java.util.*;

/** A managed runtime: null checks by SIGSEGV, code made at run time, its own threads. */
public class Work {
  static int thrown = 0;

  static int length(String text) {
    try {
      return text.length();
    } catch (NullPointerException e) {
      return ++thrown & 1;
    }
  }

  public static void main(String[] arguments) throws Exception {
    Map<Integer, List<Integer>> groups = new TreeMap<>();
    long sum = 0;
    for (int i = 0; i < 2000000; i++) {
      sum = sum * 31 + length(i % 50 == 0 ? null : "abc");
      if (i % 100 == 0) groups.computeIfAbsent(i % 97, k -> new ArrayList<>()).add(i);
    }
    Thread[] threads = new Thread[4];
    long[] results = new long[threads.length];
    for (int i = 0; i < threads.length; i++) {
      final int n = i;
      threads[i] = new Thread(() -> {
        long value = n;
        for (int k = 0; k < 10000000; k++) value = value * 6364136223846793005L + k;
        results[n] = value;
      });
      threads[i].start();
    }
    for (Thread thread : threads) thread.join();
    System.gc();
    System.out.println(sum + " " + thrown + " " + groups.size() + " " + Arrays.toString(results));
    System.exit(4);
  }
}
