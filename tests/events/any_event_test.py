"""Samples of any event: each history ends at the event's own instruction, as the program's symbols tell it.

The expected addresses and counts are the program's (happenings.S), not the recorder's. Exit status 77: skipped.
"""
import argparse
import collections
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

SKIPPED = 77
MEANS_NO_RIGHT = ("perf_event_paranoid", "tracefs", "does not have it", "rights", "denied", "not permitted")


class Recording:
    """One run of the program under `auxtrail record`, and its samples as `auxtrail script` prints them."""

    def __init__(self, arguments, mode, options):
        work = pathlib.Path(arguments.work)
        work.mkdir(parents=True, exist_ok=True)
        self.file = work / f"{arguments.case}.data"  # cases run side by side
        result = subprocess.run([arguments.auxtrail, "record", *options, "-o", self.file, "--", arguments.program, mode],
                                capture_output=True, text=True, timeout=120, check=False)
        self.status, self.told = result.returncode, result.stderr
        self.samples = []
        if not self.file.exists():
            return
        text = subprocess.run([arguments.auxtrail, "script", "-i", self.file, "-F", "event,ip", "--no-itrace"], capture_output=True,
                              text=True, timeout=120, check=True).stdout
        for line in text.splitlines():
            event, _, address = line.strip().rpartition(" ")
            self.samples.append((event.strip(), int(address, 16), line))
        self.verified = subprocess.run([arguments.auxtrail, "verify", "-i", self.file], capture_output=True, text=True,
                                       timeout=120, check=False)

    def of(self, event):
        return [sample for sample in self.samples if sample[0].startswith(event)]


def symbols(program):
    listing = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    return {name: int(address, 16) for address, _, name in (line.split() for line in listing.splitlines() if len(line.split()) == 3)}


def check(condition, text, recording):
    if condition:
        return
    print(f"FAILED: {text}\nrecord said:\n{recording.told}\nfirst samples:")
    print("\n".join(sample[2] for sample in recording.samples[:10]))
    sys.exit(1)


def expect(condition, text, *outputs):
    if not condition:
        print("FAILED:", text, *outputs, sep="\n")
        sys.exit(1)


def check_verified(recording):
    check(recording.verified.returncode == 0, f"verify: {recording.verified.stdout[-2000:]}", recording)


def addresses(samples):
    return collections.Counter(address for _, address, _ in samples)


def watchpoints_fire(arguments, event):
    """Whether the kernel's own count of them is not 0: some virtual machines accept watchpoints that never fire."""
    if shutil.which("perf") is None:
        return True
    told = subprocess.run(["perf", "stat", "-x,", "-e", event, arguments.program, "store"], capture_output=True, text=True,
                          timeout=60, check=False).stderr
    return not any(line.startswith("0,") and ",mem:" in line for line in told.splitlines())


def store(arguments, at):
    event = f"mem:{at['watched']:#x}/4:w"
    recording = Recording(arguments, "store", ["-m", "2048", "-c", "1", "-e", event])
    check(recording.status == 0, "status", recording)
    found = addresses(recording.of("mem"))
    if not found and not watchpoints_fire(arguments, event):
        print("skipped: watchpoints do not fire here: perf stat counts none either")
        sys.exit(SKIPPED)
    check(found == {at["after_store"]: 1000}, f"1000 samples behind the store, {at['after_store']:#x}, not {found}", recording)
    check_verified(recording)


def touch(arguments, at):
    recording = Recording(arguments, "touch", ["-m", "2048", "-c", "1", "-e", "page-faults:u"])
    check(recording.status == 0, "status", recording)
    found = addresses(recording.of("page-faults"))
    check(found[at["touch"]] == 500, f"500 samples at the touch, {at['touch']:#x}, not {found}", recording)
    check_verified(recording)


def ask(arguments, at):
    recording = Recording(arguments, "ask", ["-m", "2048", "-c", "1", "-e", "syscalls:sys_enter_getppid"])
    if recording.status != 0 and any(word in recording.told for word in MEANS_NO_RIGHT):
        print("skipped: no tracepoints here:", recording.told)
        sys.exit(SKIPPED)
    found = addresses(recording.of("syscalls"))
    check(found == {at["after_ask"]: 200}, f"200 samples at the call, {at['after_ask']:#x}, not {found}", recording)
    check_verified(recording)


def sleep(arguments, _at):
    recording = Recording(arguments, "sleep", ["-c", "1", "-e", "context-switches"])
    if recording.status != 0 and any(word in recording.told for word in MEANS_NO_RIGHT):
        print("skipped: no right to see context switches:", recording.told)
        sys.exit(SKIPPED)
    count = len(recording.of("context-switches"))
    check(count >= 50, f"a sample for each of 50 sleeps, not {count}", recording)
    check_verified(recording)


def segv(arguments, at):
    recording = Recording(arguments, "segv", ["--unit=continuous"])
    check(recording.status in (-11, 139), f"death by SIGSEGV, not {recording.status}", recording)
    found = addresses(recording.of("fatal-signal"))
    check(found == {at["fault"]: 1}, f"one sample at the fault, {at['fault']:#x}, not {found}", recording)
    check_verified(recording)


def abort(arguments, at):
    recording = Recording(arguments, "abort", ["--unit=continuous"])
    check(recording.status in (-6, 134), f"death by SIGABRT, not {recording.status}", recording)
    found = addresses(recording.of("fatal-signal"))
    check(found == {at["after_fatal_call"]: 1}, f"one sample behind the call, {at['after_fatal_call']:#x}, not {found}",
          recording)
    check_verified(recording)


def branches(arguments, recording):
    """Taken branches of the trace by the address they leave from."""
    text = subprocess.run([arguments.auxtrail, "script", "-i", recording.file, "-F", "ip,addr"], capture_output=True,
                          text=True, timeout=120, check=True).stdout
    return collections.Counter(int(line.split()[0], 16) for line in text.splitlines() if "=>" in line)


def check_loops(arguments, at, recording):
    """How often the loops of `store` went round is in the trace, exactly."""
    check(recording.status == 0, "status", recording)
    check_verified(recording)
    found = branches(arguments, recording)
    inner = sum(i & 31 for i in range(1, 1001))
    check(found[at["inner"]] == inner, f"{inner} rounds of the inner loop, not {found[at['inner']]}", recording)
    check(found[at["outer"]] == 999, f"999 rounds of the outer loop, not {found[at['outer']]}", recording)


def full(arguments, at):
    check_loops(arguments, at, Recording(arguments, "store", ["-e", "intel_pt//u"]))


def full_without_return_compression(arguments, at):
    check_loops(arguments, at, Recording(arguments, "store", ["-e", "intel_pt/noretcomp,psb_period=0/u"]))


def full_in_a_small_area(arguments, at):
    for pages in ("128,1", "128,2"):
        recording = Recording(arguments, "store", ["-e", "intel_pt//u", "-m", pages])
        check("pages instead of" in recording.told, "a warning that the area was made larger", recording)
        check_loops(arguments, at, recording)


def record_with_pause(arguments, area_bytes, rounds, first_bytes, pause):
    """A full trace whose recorder does not read while `pause`(its process) lasts. The recorder, the file, what was told."""
    file = pathlib.Path(arguments.work) / f"{arguments.case}.data"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    with subprocess.Popen([arguments.auxtrail, "record", "-e", "intel_pt//u", "-m", f",{area_bytes // 4096}", "-o", file, "--",
                           sys.executable, "-S", "-c", f"for i in range({rounds}): pass"],
                          stderr=subprocess.PIPE, text=True) as recorder:
        deadline = time.monotonic() + 120
        while not (file.exists() and file.stat().st_size > first_bytes) and time.monotonic() < deadline:
            time.sleep(0.001)
        recorder.send_signal(signal.SIGSTOP)
        pause(recorder)
        recorder.send_signal(signal.SIGCONT)
        told = recorder.communicate(timeout=120)[1]
    return recorder, file, told


def full_loss(arguments, _at):
    """The recorder does not read for a while: what is lost is told, and stands in the packets where the trace goes on."""
    # OVF, the position if tracing is on (FUP, six bytes of it; then a PAD), PSB.
    goes_on = re.compile(rb"\x02\xf3(\x7d.{6}\x00)?(\x02\x82){8}", re.DOTALL)
    # How long the program waits for the recorder, and how far it is when that is back, depends on the machine.
    for pause_s in (0.1, 0.2, 0.4, 0.1, 0.2, 0.4):
        recorder, file, told = record_with_pause(arguments, 16 * 4096, 800000, 1 << 20, lambda _, pause_s=pause_s: time.sleep(pause_s))
        expect(recorder.returncode == 0, "status", told)
        has_loss = "bytes of trace found no room in the AUX area" in told
        verified = subprocess.run([arguments.auxtrail, "verify", "-i", file], capture_output=True, text=True, timeout=120, check=False)
        expect(verified.returncode == 0, "verify", verified)
        went_on = goes_on.search(file.read_bytes()) is not None
        file.unlink()
        expect(has_loss or not went_on, "a loss must be told", told)
        if went_on:
            expect("lost between two AUXTRACE records" in verified.stderr, "verify must tell the loss", verified)
            return
    expect(False, "no trace went on behind a loss")


def loss_at_the_end(arguments, _at):
    """A program that ends while the recorder does not read: what it lost is told, though its trace never went on."""
    def end_of_program(recorder):
        children = pathlib.Path(f"/proc/{recorder.pid}/task/{recorder.pid}/children").read_text().split()
        program = pathlib.Path(f"/proc/{children[0]}/stat")
        deadline = time.monotonic() + 120
        while program.read_text().rpartition(")")[2].split()[0] != "Z" and time.monotonic() < deadline:
            time.sleep(0.005)

    area = 1 << 20
    recorder, file, told = record_with_pause(arguments, area, 300000, 1 << 16, end_of_program)
    lost = re.search(r"(\d+) bytes of trace found no room in the AUX area", told)
    # It writes several times the area; another loss, before the recorder stopped, is smaller than that.
    expect(recorder.returncode == 0 and lost and int(lost[1]) > area, "the loss must be told", told)
    dumped = subprocess.run([arguments.auxtrail, "dump", "-i", file], capture_output=True, text=True, timeout=120, check=True).stdout
    flags = [int(found, 16) for found in re.findall(r" AUX: .* flags (\w+)", dumped)]
    expect(flags and flags[-1] & 1, "the last AUX record is TRUNCATED", flags)
    file.unlink()


def snapshot(arguments, at):
    check_loops(arguments, at, Recording(arguments, "store", ["-e", "intel_pt//u", "-Se"]))


def snapshot_sizes(arguments, _at):
    """A thread that wrote enough has a snapshot of just the size that was asked for, and it can be decoded."""
    file = pathlib.Path(arguments.work) / "snapshot_sizes.data"
    file.parent.mkdir(parents=True, exist_ok=True)
    for option, pages, size, warns in (("-Se4096", ",8", 4096, False), ("-Se16384", ",4", 16384, True), ("-Se65536", None, 65536, False)):
        recorded = subprocess.run([arguments.auxtrail, "record", "-e", "intel_pt//u", option, *(["-m", pages] if pages else []), "-o", file,
                                   "--", sys.executable, "-S", "-c", "for i in range(100000): pass"],
                                  capture_output=True, text=True, timeout=120, check=True)
        expect(("pages instead of" in recorded.stderr) == warns and "cut short" not in recorded.stderr, option, recorded.stderr)
        dumped = subprocess.run([arguments.auxtrail, "dump", "-i", file], capture_output=True, text=True, timeout=120, check=True).stdout
        sizes = [int(found, 0) for found in re.findall(r"AUXTRACE: size (\w+)", dumped)]
        expect(sizes == [size], f"{option}: one snapshot of {size} bytes, not {sizes}")
        verified = subprocess.run([arguments.auxtrail, "verify", "-i", file], capture_output=True, text=True, timeout=120, check=False)
        expect(verified.returncode == 0, f"{option}: verify", verified)
        text = subprocess.run([arguments.auxtrail, "script", "-i", file, "-F", "ip,addr"], capture_output=True, text=True, timeout=120,
                              check=True).stdout
        # A taken branch takes eight bytes at most, a TIP, and much of a snapshot lies behind its first PSB.
        expect(text.count("=>") > size / 16, f"{option}: branches of half of it", text[-500:])
    file.unlink()


def snapshot_when_asked(arguments, _at):
    """Snapshots at SIGUSR2, of a thread that goes on writing: of the size asked for, or told to be shorter."""
    file = pathlib.Path(arguments.work) / "snapshot_when_asked.data"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    with subprocess.Popen([arguments.auxtrail, "record", "-e", "intel_pt//u", "-S4096", "-o", file, "--", sys.executable, "-S", "-c",
                           "print('on', flush=True)\nwhile True: pass"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as recorder:
        recorder.stdout.readline()
        for _ in range(10):
            time.sleep(0.1)
            recorder.send_signal(signal.SIGUSR2)
        time.sleep(0.1)
        recorder.send_signal(signal.SIGTERM)
        told = recorder.communicate(timeout=120)[1]
    dumped = subprocess.run([arguments.auxtrail, "dump", "-i", file], capture_output=True, text=True, timeout=120, check=True).stdout
    sizes = [int(found, 0) for found in re.findall(r"AUXTRACE: size (\w+)", dumped)]
    expect(sizes and max(sizes) <= 4096, "snapshots of at most 4096 bytes", sizes, told)
    expect(min(sizes) == 4096 or "snapshots were cut short" in told, "shorter ones are told", sizes, told)
    verified = subprocess.run([arguments.auxtrail, "verify", "-i", file], capture_output=True, text=True, timeout=120, check=False)
    expect(verified.returncode == 0, "verify", verified)
    file.unlink()


def unopened(arguments, _at):
    """A process without descriptors to spare: events that can't be opened there are told, and no timer stands in for page faults."""
    file = pathlib.Path(arguments.work) / "unopened.data"
    file.parent.mkdir(parents=True, exist_ok=True)
    # Three of its own, the recorder's socket and the shared memory.
    command = f"ulimit -n 5; exec {arguments.program} touch"
    told = subprocess.run([arguments.auxtrail, "record", "-c", "1000", "-e", "page-faults:u,minor-faults:u", "-o", file, "--", "sh", "-c", command],
                          capture_output=True, text=True, timeout=120, check=True).stderr
    for event in ("page-faults:u", "minor-faults:u"):
        expect(f"{event} could not be opened in 1 process (perf_event_open: EMFILE)" in told, event, told)
    expect("bring threads back into the trace in 1 process (perf_event_open: EMFILE)" in told, "the entry event", told)
    expect("thread timers at" not in told, "a timer is no page fault", told)
    file.unlink()


CASES = {"full": full, "full_without_return_compression": full_without_return_compression,
         "full_in_a_small_area": full_in_a_small_area, "full_loss": full_loss, "loss_at_the_end": loss_at_the_end, "snapshot": snapshot, "snapshot_sizes": snapshot_sizes,
         "snapshot_when_asked": snapshot_when_asked,
         "unopened": unopened, "store": store, "touch": touch, "ask": ask, "sleep": sleep, "segv": segv, "abort": abort}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--auxtrail", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("case", choices=CASES)
    arguments = parser.parse_args()
    CASES[arguments.case](arguments, symbols(arguments.program))
    print("all as expected")


if __name__ == "__main__":
    main()
