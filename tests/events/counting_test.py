"""What the trace unit counts itself: as many instructions and branches as there are, and samples where they should be.

The truths are counted by hand (counted.S, happenings.S) or single-stepped (tests/truth). Exit status 77: skipped.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys

SKIPPED = 77
TIMEOUT = 120


def run(command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=TIMEOUT, check=False)


def fail(text, *outputs):
    print("FAILED:", text, *outputs, sep="\n")
    sys.exit(1)


class Recording:
    """A run of `command` under `auxtrail record`, without address randomisation."""

    def __init__(self, arguments, name, options, command):
        work = pathlib.Path(arguments.work)
        work.mkdir(parents=True, exist_ok=True)
        self.arguments = arguments
        self.file = work / f"{arguments.case}.{name}.data"
        result = run(["setarch", "-R", arguments.auxtrail, "record", "-m", "4096", *options, "-o", self.file, "--", *command])
        self.told = result.stderr
        if result.returncode != 0:
            fail(f"status {result.returncode}", self.told)
        verified = run([arguments.auxtrail, "verify", "-i", self.file])
        if verified.returncode != 0:
            fail("verify", verified.stdout[-2000:])

    def samples(self):
        """(event, period, address) of each, in order."""
        text = run([self.arguments.auxtrail, "script", "-i", self.file, "-F", "event,period,ip", "--no-itrace"]).stdout
        found = []
        for line in text.splitlines():
            period, event, address = line.split()
            found.append((event.rstrip(":"), int(period), int(address, 16)))
        return found

    def counted(self):
        """Instructions and branches, as the summary tells."""
        match = re.search(r"Counted: (\d+) instructions, (\d+) branches", self.told)
        return (int(match[1]), int(match[2])) if match else fail("no counts", self.told)


def symbols(program):
    listing = run(["nm", program]).stdout
    return {name: int(address, 16) for address, _, name in (line.split() for line in listing.splitlines() if len(line.split()) == 3)}


def expected(rounds):
    each = [(25 + 2 * (i & 15) + (i & 1), 10 + (i & 15)) for i in range(1, rounds + 1)]
    return tuple(sum(column) for column in zip(*each))


def check_elsewhere(arguments, how):
    """In a new process or thread, which begins natively: what is counted of the rounds, in periods."""
    number, period = 2000, 97
    at = symbols(arguments.counted)
    for event, wanted in zip(("instructions", "branches"), expected(number)):
        recording = Recording(arguments, event, ["-e", f"{event}:u", "-c", str(period)], [arguments.counted, number, how])
        there = [address for _, _, address in recording.samples() if at["rounds"] <= address < at["rounds_end"]]
        if abs(len(there) - wanted / period) > 1:
            fail(f"{number} rounds are {wanted} {event}, but {len(there)} periods of {period}", recording.told)


def check_totals(arguments):
    """What more rounds add. All else is the same in both runs, but for what follows the last call of an interposed function: that is
    counted if the entry event comes before the end, which is seldom. So of some runs the least is taken."""
    few, many = 1000, 3001
    counts = [min(Recording(arguments, f"{rounds}.{i}", ["-e", "instructions:u", "-c", "100000"], [arguments.counted, rounds]).counted()
                  for i in range(3))
              for rounds in (few, many)]
    added = tuple(b - a for a, b in zip(*counts))
    wanted = tuple(b - a for a, b in zip(expected(few), expected(many)))
    if added != wanted:
        fail(f"{many - few} rounds more are {wanted} instructions and branches, not {added}")


def totals(arguments):
    check_totals(arguments)


def fork(arguments):
    check_elsewhere(arguments, "fork")


def thread(arguments):
    check_elsewhere(arguments, "thread")


def dense(arguments):
    """However dense they are, samples do not find the data ring full: the program waits for the recorder."""
    period = 101
    recording = Recording(arguments, "dense", ["-m", "128", "-e", f"instructions/period={period}/u"], [arguments.counted, "8000"])
    if "no room in the data ring" in recording.told:
        fail("samples are lost", recording.told)
    least = expected(8000)[0] // period
    if len(recording.samples()) < least:
        fail(f"less than {least} samples", recording.told)


def repeat(arguments):
    """Two runs of a program that does the same have the same samples."""
    options = ["-e", "instructions/period=997/u,branches/period=211/u"]
    first, second = (Recording(arguments, name, options, [arguments.counted, "2000"]).samples() for name in ("a", "b"))
    if first != second:
        fail("two runs differ", [pair for pair in zip(first, second) if pair[0] != pair[1]][:5], len(first), len(second))
    if len([sample for sample in first if sample[0] == "branches:u"]) < 100:
        fail("too few samples", len(first))


def steps(arguments, rounds):
    """(address behind it, whether it is a branch) of each instruction of the rounds."""
    file = pathlib.Path(arguments.work) / f"{arguments.case}.steps"
    at = symbols(arguments.counted)
    run([arguments.step_truth, "--all", "--start", hex(at["rounds"]), "--output", file, "--", arguments.counted, rounds])
    found = []
    for line in file.read_text(encoding="ascii").splitlines():
        start, to, kind = line.split()
        if not at["rounds"] <= int(start, 16) < at["rounds_end"]:
            break
        found.append((int(to, 16), kind not in "-FS"))
    return found


def is_on_grid(found, places, period):
    """Whether `found` is every period-th of `places`, from some one of the first period on."""
    for first in range(min(period, len(places))):
        wanted = places[first::period]
        if len(wanted) <= len(found) <= len(wanted) + 1 and found[:len(wanted)] == wanted:
            return True
    return False


def truth(arguments):
    """Each sample is where single steps say that so many instructions, or branches, have been executed."""
    at = symbols(arguments.counted)
    stepped = steps(arguments, 300)
    if len(stepped) < 10000:
        fail("too few steps", len(stepped))
    for event, period in (("instructions", 89), ("instructions", 1), ("branches", 31)):
        recording = Recording(arguments, f"{event}{period}", ["-e", f"{event}:u", "-c", period, "--aux-sample=256"],
                              [arguments.counted, "300"])
        found = [address for _, _, address in recording.samples() if at["rounds"] <= address < at["rounds_end"]]
        places = [to for to, is_branch in stepped if event == "instructions" or is_branch]
        # The first round's first instruction comes behind what is not stepped.
        inside = [to for to in places if at["rounds"] <= to < at["rounds_end"]]
        if period == 1:
            inside.insert(0, at["rounds"])
            if found[-len(inside):] != inside:
                fail("not every instruction has its sample", len(found), len(inside))
        elif not any(is_on_grid(found[skip:], inside, period) for skip in (0, 1)):
            fail(f"samples of every {period} {event} are somewhere else", [hex(ip) for ip in found[:20]])


def perf_periods(recording):
    """What perf makes of the values that samples tell: how much was counted between them."""
    text = run(["perf", "script", "-i", recording.file, "-F", "event,period", "--no-itrace"])
    if text.returncode != 0:
        fail("perf script", text.stderr)
    return [(event.rstrip(":"), int(period)) for period, event in (line.split() for line in text.stdout.splitlines())]


def group(arguments):
    if shutil.which("perf") is None:
        print("skipped: no perf")
        sys.exit(SKIPPED)
    # The loop that touches pages has one branch for each.
    recording = Recording(arguments, "faults", ["-e", "{intel_pt//u,page-faults:u,branches:u}:S", "--aux-sample", "-c", "1"],
                          [arguments.happenings, "touch"])
    if perf_periods(recording)[-998:] != [("page-faults:u", 1), ("branches:u", 1)] * 499:
        fail("one branch for each page fault", perf_periods(recording)[-10:])
    # Between the samples of two whole rounds lies what two rounds have.
    period = 2 * 160 + sum(i & 15 for i in range(16)) * 2
    recording = Recording(arguments, "instructions", ["-e", f"{{branches/period={period}/u,instructions:u}}:S"],
                          [arguments.counted, "3200"])
    wanted = 2 * (16 * 25 + 2 * sum(range(16)) + 8)
    found = [count for event, count in perf_periods(recording) if event == "instructions:u"][2:-1]
    if len(found) < 80 or set(found) != {wanted}:
        fail(f"{wanted} instructions in every {period} branches", set(found), len(found))
    # A program that executes another, and a child: values go on, and are the first process's alone.
    recording = Recording(arguments, "exec", ["-e", "{instructions/period=1000/u,branches:u}:S"],
                          ["sh", "-c", f"{arguments.counted} 20000; exec {arguments.counted} 3000"])
    periods = perf_periods(recording)
    least, most = expected(3000)[0] // 1000, expected(20000)[0] // 1000
    count = len([period for event, period in periods if event == "instructions:u"])
    if not least <= count < most or any(not 0 < period < 100000 for _, period in periods):
        fail("values go on behind an exec", count, [pair for pair in periods if pair[1] >= 100000][:5])
    report = run(["perf", "report", "-i", recording.file, "--stdio", "--no-itrace"])
    if report.returncode != 0 or "instructions:u" not in report.stdout:
        fail("perf report", report.stdout, report.stderr)


def full(arguments):
    """Beside full trace, samples end and begin it again."""
    recording = Recording(arguments, "full", ["-e", "{intel_pt//u,branches:u}", "-c", "1000"], [arguments.counted, "3000"])
    if len(recording.samples()) < expected(3000)[1] // 1000:
        fail("too few samples", len(recording.samples()))


def frequency(arguments):
    recording = Recording(arguments, "frequency", ["-e", "instructions:u", "-F", "2000"], [arguments.counted, "400000"])
    periods = [period for _, period, _ in recording.samples()]
    if len(periods) < 20 or len(set(periods)) < 5:
        fail("the period does not follow the frequency", periods[:20])


def many(arguments):
    events = ",".join(f"instructions/period={period}/u" for period in range(1001, 1032))
    recording = Recording(arguments, "many", ["-e", events], [arguments.counted, "3000"])
    counted = recording.counted()[0]
    found = sorted(period for _, period, _ in recording.samples())
    wanted = sorted(period for period in range(1001, 1032) for _ in range(counted // period))
    if found != wanted:
        fail("as many samples of each event as its period gives", len(found), len(wanted))


CASES = {"totals": totals, "fork": fork, "thread": thread, "dense": dense, "repeat": repeat, "truth": truth, "group": group, "full": full,
         "frequency": frequency, "many": many}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("auxtrail", "counted", "happenings", "work"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--step-truth", help="tests/truth's tool; without it that case is skipped")
    parser.add_argument("case", choices=CASES)
    arguments = parser.parse_args()
    if run(["setarch", "-R", "true"]).returncode != 0 or (arguments.case == "truth" and not arguments.step_truth):
        print("skipped: setarch -R or the stepping tool is missing")
        sys.exit(SKIPPED)
    CASES[arguments.case](arguments)
    print("all as expected")


if __name__ == "__main__":
    main()
