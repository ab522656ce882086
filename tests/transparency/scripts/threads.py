"""Threads with locks, queues, a pool, timers and thread-local data."""
import concurrent.futures
import hashlib
import queue
import threading


def worker(inbox, outbox):
    while (item := inbox.get()) is not None:
        outbox.put((item, sum(i * item % 7 for i in range(2000))))


inbox, outbox = queue.Queue(20), queue.Queue()
workers = [threading.Thread(target=worker, args=(inbox, outbox)) for _ in range(6)]
for thread in workers:
    thread.start()
for number in range(600):
    inbox.put(number)
for _ in workers:
    inbox.put(None)
for thread in workers:
    thread.join()
print(sum(value * item for item, value in (outbox.get() for _ in range(600))))

counter, lock = 0, threading.Lock()


def count():
    global counter
    for _ in range(20000):
        with lock:
            counter += 1


threads = [threading.Thread(target=count) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(counter)
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    block = bytes(range(256)) * 4096
    print(sorted(pool.map(lambda i: hashlib.sha256(block + bytes([i])).hexdigest()[:8], range(40))))
done = threading.Event()
threading.Timer(0.05, done.set).start()
print(done.wait(10), threading.active_count() <= 2)
