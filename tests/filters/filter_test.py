"""What is traced with --filter: exactly the branches within the named functions, those that enter and those that leave.

What is expected follows from the program (ways.S) alone. Branches are those of auxtrail's decoder, which is libipt's, and of
Linux perf where it is installed.
"""
import argparse
import collections
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys

ROUNDS = 1000


def run(*words, status=0):
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120, check=False)
    check(status is None or result.returncode == status, f"{' '.join(map(str, words))}: status {result.returncode}\n"
          f"{result.stdout[-2000:]}{result.stderr[-2000:]}")
    return result


def check(condition, text):
    if not condition:
        print("FAILED:", text)
        sys.exit(1)


def symbols(file):
    listing = subprocess.run(["nm", file], capture_output=True, text=True, check=True).stdout
    return {name: int(address, 16) for address, _, name in (line.split() for line in listing.splitlines() if len(line.split()) == 3)}


class Test:
    def __init__(self, arguments):
        self.arguments = arguments
        work = pathlib.Path(arguments.work)
        work.mkdir(parents=True, exist_ok=True)
        self.file = work / f"{arguments.case}.data"  # cases run side by side
        self.at = symbols(arguments.program)

    def record(self, options, command, filters):
        recorded = run(self.arguments.auxtrail, "record", "-o", self.file, *options,
                       *(word for text in filters for word in ("--filter", text)), "--", *command)
        self.told = recorded.stderr
        # A sample that found the unit at work is no loss of trace, and a matter of time.
        told = re.sub(r"Lost: \d+ overflows came while the trace unit was at work.*", "", self.told)
        check("lost" not in told.lower(), f"all must be in the file: {self.told}")
        self.verified = json.loads(run(self.arguments.auxtrail, "verify", "--json", "-i", self.file).stdout)

    def filter_of(self, function, action="filter"):
        return f"{action} {function} @{self.arguments.program}"

    def ours(self):
        return edges(run(self.arguments.auxtrail, "script", "-i", self.file, "-F", "ip,addr").stdout)

    def perfs(self):
        """None without perf."""
        if shutil.which("perf") is None:
            return None
        result = run("perf", "script", "-i", self.file, "--itrace=be", "-F", "ip,addr")
        check("error" not in result.stderr, f"perf: {result.stderr[-1000:]}")
        found = edges(result.stdout)
        # A conditional that leaves a filter's region: perf 6.1 tells where it leads in place of where it stands.
        cold = found.pop((self.at["cold"], self.at["cold"]), 0)
        if cold:
            found[self.at["leaves_if"], self.at["cold"]] += cold
        return found


def edges(text):
    """Branches with how often they were taken: (from, to); 0: the trace begins or ends."""
    return collections.Counter(tuple(int(word, 16) for word in line.split() if word != "=>")
                               for line in text.splitlines() if "=>" in line)


def expected(at, rounds):
    """All that work(i) does, for each i of `rounds`."""
    count = collections.Counter()
    back = {i: at["falls_into_work_back"] if i <= 500 else at["work_back"] for i in rounds}
    for i in rounds:
        count[0, at["work"]] += 1
        count[at["work_loop"], at["work_again"]] += i & 7
        count[at["calls_inner"], at["inner"]] += 1
        count[at["inner_return"], at["after_inner"]] += 1
        if i & 3 == 0:
            count[at["leaves_if"], at["cold"]] += 1
        elif i & 3 == 1:
            count[at["to_jump"], at["leaves_jump"]] += 1
            count[at["leaves_jump"], at["tail"]] += 1
        elif i & 3 == 2:
            count[at["to_call"], at["leaves_call"]] += 1
            count[at["leaves_call"], at["helper"]] += 1
            count[0, at["after_call"]] += 1
            count[at["leaves_indirect"], at["helper2"]] += 1
            count[0, at["after_indirect"]] += 1
            count[at["leaves_return"], back[i]] += 1
        else:
            count[at["to_ask"], at["ask"]] += 1
            count[at["asks"], 0] += 1
            count[0, at["after_ask"]] += 1
            count[at["behind"], 0] += 1  # it runs out without a branch
    return +count


def check_same(found, wanted, whose):
    if found is None or found == wanted:
        return
    lines = [f"{start:#x} => {to:#x}: {found[start, to]}, not {wanted[start, to]}" for start, to in {*found, *wanted}
             if found[start, to] != wanted[start, to]]
    check(False, f"{whose} branches differ from what the program does:\n" + "\n".join(lines[:40]))


def check_all(test, wanted):
    check_same(test.ours(), wanted, "our")
    check_same(test.perfs(), wanted, "perf's")


def full(test, event="intel_pt//u"):
    test.record(["-e", event], [test.arguments.program], [test.filter_of("work")])
    check_all(test, expected(test.at, range(1, ROUNDS + 1)))


def full_without_return_compression(test):
    full(test, "intel_pt/noretcomp,psb_period=0/u")


def snapshot(test):
    test.record(["-e", "intel_pt//u", "-Se"], [test.arguments.program], [test.filter_of("work")])
    check_all(test, expected(test.at, range(1, ROUNDS + 1)))


def samples(test):
    """At page faults inside and outside; a history's last branch is the one before, or the one that left."""
    test.record(["-m", "2048", "-c", "1", "-e", "page-faults:u"], [test.arguments.program], [test.filter_of("work")])
    check(test.verified["samples_ending_elsewhere"] == 0, "histories end at their samples, or where the trace went off")
    check(test.verified["samples_outside_filters"] >= 250, f"{test.verified['samples_outside_filters']} samples outside")
    inside = set(expected(test.at, range(1, ROUNDS + 1)))
    ends = collections.Counter()
    address = None
    text = run(test.arguments.auxtrail, "script", "-i", test.file, "-F", "ip,brstack").stdout
    for line in text.splitlines():
        words = line.split()
        address = int(words[0], 16)
        if address not in (test.at["helper_touch"], test.at["work_touch"]):
            continue
        newest = [int(word, 16) for word in words[1].split("/")[:2]]
        ends[address, newest[0], newest[1]] += 1
        for word in words[1:]:
            edge = tuple(int(part, 16) for part in word.split("/")[:2])
            check(edge in inside or edge[0] == test.at["work_touch"] and edge[1] == 0 or
                  edge == (0, test.at["work_touch"]), f"a branch of nothing filtered: {edge[0]:#x} => {edge[1]:#x}")
    at = test.at
    check(ends[at["helper_touch"], at["leaves_call"], at["helper"]] == 250, f"250 samples behind the call, not {ends}")
    check(ends[at["work_touch"], at["inner_return"], at["after_inner"]] == 250, f"250 samples inside, not {ends}")
    for edge in test.perfs() or ():
        # A sample's own end, the trace on from there; and samples before the first trace have their own position.
        known = edge in inside or test.at["work_touch"] in edge or edge[0] != 0 and edge[1] == 0
        check(known, f"perf has a branch of nothing filtered: {edge[0]:#x} => {edge[1]:#x}")


def random_ranges(test):
    """Ranges that begin and end anywhere, in the midst of instructions, too: each has its part of the whole trace."""
    def at_fixed_addresses(edges_found):
        """libc, to which main returns, lies elsewhere each time."""
        fixed = collections.Counter()
        for edge, count in edges_found.items():
            fixed[tuple(min(address, 1 << 32) for address in edge)] += count
        return fixed

    test.record(["-e", "intel_pt//u"], [test.arguments.program], [])
    whole = at_fixed_addresses(test.ours())
    first, last = test.at["main"], test.at["stopper"]
    offset = first - int(run("readelf", "-SW", test.arguments.program).stdout.split(" .text ")[1].split()[1], 16)
    offset += int(run("readelf", "-SW", test.arguments.program).stdout.split(" .text ")[1].split()[2], 16)
    random.seed(1)
    for _ in range(16):
        ranges = []
        for _ in range(random.choice((1, 1, 2, 4))):
            start = random.randrange(first, last)
            ranges.append((start, start + random.choice((1, 2, 5, 12, 30, 80))))

        def inside(address):
            return any(start <= address < end for start, end in ranges)
        filters = [f"filter {start - first + offset:#x}/{end - start:#x} @{test.arguments.program}" for start, end in ranges]
        test.record(["-e", "intel_pt//u"], [test.arguments.program], [",".join(filters)])
        found, perfs = at_fixed_addresses(test.ours()), test.perfs()
        wanted = {edge: count for edge, count in whole.items() if inside(edge[0]) and edge[1] != 0}
        check_same(collections.Counter({edge: count for edge, count in found.items() if 0 not in edge}),
                   collections.Counter(wanted), f"{filters}: our")
        enter = collections.Counter()
        for (start, to), count in whole.items():
            if inside(to) and not inside(start):
                enter[to] += count
        for to, count in enter.items():
            check(found[0, to] >= count, f"{filters}: {count} branches into it at {to:#x}, not {found[0, to]}")
        for start, to in found:
            check(start != 0 or inside(to), f"{filters}: the trace begins outside, at {to:#x}")
        if perfs is not None:  # but for its conditionals that leave, see perfs()
            strange = [edge for edge in at_fixed_addresses(perfs) if edge not in found and edge[0] != edge[1]]
            check(not strange, f"{filters}: perf has other branches: {strange}")


def trace_stop(test):
    test.record(["-e", "intel_pt//u"], [test.arguments.program, "stop"],
                [test.filter_of("work") + "," + test.filter_of("stopper", "tracestop")])
    check("1 trace stop" in test.told, test.told)
    check_all(test, expected(test.at, range(501, ROUNDS + 1)))


def trace_stop_alone(test):
    test.record(["-e", "intel_pt//u"], [test.arguments.program, "stop"], [test.filter_of("stopper", "tracestop")])
    for found in (test.ours(), test.perfs()):
        if found is not None:
            check(found[test.at["calls_work"], test.at["work"]] == 500, "500 calls before the stop")
            check(found[test.at["calls_stopper"], test.at["stopper"]] == 1, "the last branch leads to where it stops")
            check(found[test.at["falls_into_work_call"], test.at["falls_into_work"]] == 0, "nothing behind it")


def outside_for_long(test):
    """With little traced, there is a PSB where the trace begins, and the next only after its period of bytes."""
    test.record(["-e", "intel_pt/psb_period=0/u"], [test.arguments.program], [test.filter_of("stopper")])
    check(not test.ours(), "it is not called")
    check(test.verified["full_trace"]["bytes"] == 0, f"not a byte: {test.verified['full_trace']}")
    test.record(["-e", "intel_pt/psb_period=0/u"], [test.arguments.program], [test.filter_of("work")])
    dump = run(test.arguments.auxtrail, "dump", "--packets", "-i", test.file).stdout
    psbs = [line for line in dump.splitlines() if line.strip().endswith(" PSB")]
    trace_bytes = test.verified["full_trace"]["bytes"]
    check(trace_bytes // 2200 <= len(psbs) <= trace_bytes // 2048 + 1,
          f"a PSB each 2048 bytes: {len(psbs)} in {trace_bytes} bytes")


def never_inside(test):
    """Samples without any trace say where they are, and no more."""
    test.record(["-m", "2048", "-c", "1", "-e", "page-faults:u"], [test.arguments.program], [test.filter_of("stopper")])
    check(test.verified["samples"] >= 500, f"{test.verified['samples']} samples")
    check(test.verified["branches"] == 0, f"{test.verified['branches']} branches")
    check(test.verified["samples_outside_filters"] == 0, "each history is the sample's own position")
    check(test.verified["ok"], "verified")


def late_library(test):
    plugin = test.arguments.plugin
    start = symbols(plugin)["plugin_work"]
    test.record(["-e", "intel_pt//u"], [test.arguments.loader, plugin, plugin], [f"filter plugin_work @{plugin}"])
    for found in (test.ours(), test.perfs()):
        if found is None:
            continue
        begins = {to: count for (start_of, to), count in found.items() if start_of == 0}
        first = [count for to, count in begins.items() if to & 0xfff == start & 0xfff]
        check(sum(first) == sum(begins.values()), f"the trace begins at the function alone: {begins}")
        check(sum(first) > ROUNDS, f"{ROUNDS} calls of the library loaded first, and some of the other: {first}")
    test.record(["-e", "intel_pt//u"], [test.arguments.loader, plugin], [f"filter plugin_work @{plugin}"])
    for found in (test.ours(), test.perfs()):
        if found is not None:
            begins = sum(count for (start_of, _), count in found.items() if start_of == 0)
            check(begins == ROUNDS, f"{ROUNDS} calls, not {begins}")


def refused(test):
    def told(*options):
        return run(test.arguments.auxtrail, "record", "-o", test.file, *options, "--", test.arguments.program, status=None)
    five = told("-e", "intel_pt//u", "--filter", ",".join([test.filter_of("work")] * 5))
    check(five.returncode == 2 and "4 address ranges" in five.stderr, five.stderr)
    window = told("--unit=window", "--filter", test.filter_of("work"))
    check(window.returncode == 2 and "--unit=continuous" in window.stderr, window.stderr)
    counted = told("-e", "branches:u", "-c", "1000", "--filter", test.filter_of("work"))
    check(counted.returncode == 2 and "counts branches:u itself" in counted.stderr, counted.stderr)
    unmapped = told("-e", "intel_pt//u", "--filter", f"filter plugin_work @{test.arguments.plugin}")
    check(unmapped.returncode == 0 and "no process had code of" in unmapped.stderr, unmapped.stderr)


CASES = {case.__name__: case for case in (full, full_without_return_compression, snapshot, samples, random_ranges, trace_stop,
                                          trace_stop_alone, outside_for_long, never_inside, late_library, refused)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("--auxtrail", "--program", "--loader", "--plugin", "--work"):
        parser.add_argument(option, required=True)
    parser.add_argument("case", choices=CASES)
    arguments = parser.parse_args()
    CASES[arguments.case](Test(arguments))
    print("all as expected")


if __name__ == "__main__":
    main()
