"""multiprocessing with fork and spawn, a manager, shared memory; subprocess with closed descriptors."""
import multiprocessing
import os
import subprocess
import sys


def square(number):
    total = 0
    for i in range(3000):
        total += i * number & 0xFF
    return number * number + total


def add(shared, lock, count):
    for _ in range(count):
        with lock:
            shared.value += 1


def main():
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        with context.Pool(3) as pool:
            print(method, sum(pool.map(square, range(300), chunksize=7)))
        shared, lock = context.Value("q", 0), context.Lock()
        processes = [context.Process(target=add, args=(shared, lock, 1500)) for _ in range(3)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        print(shared.value, [process.exitcode for process in processes])
    with multiprocessing.Manager() as manager:
        table = manager.dict()
        for i in range(100):
            table[i] = i * i
        print(sum(table.values()))
    for i in range(20):
        result = subprocess.run([sys.executable, "-c", f"import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:3]); raise SystemExit({i})"],
                                capture_output=True, check=False)
        assert result.returncode == i, result
    print(result.stdout, os.WEXITSTATUS(os.system("exit 5")))
    process = subprocess.Popen(["sleep", "60"])
    process.terminate()
    print(process.wait())


if __name__ == "__main__":
    main()
