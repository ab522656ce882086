"""Signals in an interpreter: setitimer, faulthandler, signal.sigwait, wakeup descriptors, asyncio."""
import asyncio
import faulthandler
import os
import signal
import tempfile

ticks = 0


def tick(*_):
    global ticks
    ticks += 1


signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
total = 0
while ticks < 200:
    total = (total * 31 + 1) % 1000003
signal.setitimer(signal.ITIMER_REAL, 0)
print("ticks", ticks >= 200)

with tempfile.TemporaryFile() as log:
    faulthandler.register(signal.SIGUSR1, file=log, all_threads=False)
    for _ in range(50):
        os.kill(os.getpid(), signal.SIGUSR1)
    log.seek(0)
    print("tracebacks", log.read().count(b"most recent call first"))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
os.kill(os.getpid(), signal.SIGUSR2)
print(signal.sigwait([signal.SIGUSR2]).name)


async def main():
    loop = asyncio.get_running_loop()
    got = asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, got.set)
    os.kill(os.getpid(), signal.SIGHUP)
    await asyncio.wait_for(got.wait(), 10)

    async def work(number):
        value = number
        for i in range(500):
            value = (value * 17 + i) % 10007
            if i % 50 == 0:
                await asyncio.sleep(0)
        return value

    print(sum(await asyncio.gather(*(work(i) for i in range(200)))))
    process = await asyncio.create_subprocess_exec("echo", "child", stdout=asyncio.subprocess.PIPE)
    print((await process.communicate())[0], process.returncode)


asyncio.run(main())
pid = os.fork()
if pid == 0:
    faulthandler.enable(file=open(os.devnull, "w"))
    os.kill(os.getpid(), signal.SIGSEGV)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
