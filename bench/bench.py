#!/usr/bin/env python3
"""What recording costs: each workload natively and under each tool, in turns, and the medians of the ratios.

A round runs every workload once under each tool, in an order that rotates, with a native run before and after each
(slower tools get fewer rounds, and less work if they are many times slower); a tool's figure is the median over the
rounds of its time divided by the mean of the two native ones beside it. CPU time is user + system of the whole process
tree, the recorder's included; wall time is told beside it. Figures of the recordings themselves (branches per sample,
bits per branch, how windows ended, bytes per second) come from the summary of `auxtrail record` and from
`auxtrail verify --json`.

Other parts: `history`, the table of history_table.py; `decode`, decoding against libipt (decoding.py); and `micro`, the
Google Benchmark programs.

Everything printed is also written to the output file: {"results": [{"name", "value", "unit", "peer"}]}.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

import decoding
import history_table
import tools
import workloads
from measuring import Results, Run, decode, geometric_mean

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
PARTS = ("costs", "history", "decode", "micro")


class Measurement:
    """The runs of all rounds, and the ratios from them."""

    def __init__(self):
        self.runs = {}  # (workload name, tool name) -> [(native runs beside it, run)]
        self.failures = collections.Counter()  # runs by the same keys

    def add(self, workload, tool, natives, run):
        if run.ok and all(native.ok for native in natives):
            self.runs.setdefault((workload.name, tool.name), []).append((natives, run))
        else:
            self.failures[workload.name, tool.name] += 1
            print(f"  {workload.name} under {tool.name} failed: {run.errors.strip()[-300:]}", file=sys.stderr)

    def ratio(self, workload, tool, what):
        pairs = self.runs.get((workload.name, tool.name), [])
        ratios = [getattr(run, what) / statistics.mean(getattr(native, what) for native in natives)
                  for natives, run in pairs]
        return statistics.median(ratios) if ratios else None

    def complete(self):
        """Whether there is a figure for everything: one run of several may fail."""
        return all(key in self.runs for key in self.failures)


def measure(programs, used, rounds, slow_rounds):
    measurement = Measurement()
    for round_number in range(rounds):
        for workload in programs:
            turn = [tool for tool in used if round_number < (slow_rounds if tool.slow else tool.max_rounds)]
            shift = round_number % max(1, len(turn))
            beside = None  # the last native run and its size
            for tool in turn[shift:] + turn[:shift]:
                print(f"\r\033[Kround {round_number + 1}/{rounds}: {workload.name}, {tool.name}", end="", file=sys.stderr)
                size = workload.brief if tool.slow else workload
                before = beside[1] if beside and beside[0] is size else Run(size, None)
                run = Run(size, tool)
                beside = (size, Run(size, None))
                measurement.add(workload, tool, (before, beside[1]), run)
    print("\r\033[K", end="", file=sys.stderr)
    return measurement


def print_ratios(programs, used, measurement, results):
    print_ratio_table("CPU time (user + system, recorder included)", "cpu", programs, used, measurement, results)
    print_ratio_table("wall time", "wall", programs, used, measurement, results)


def print_ratio_table(title, what, programs, used, measurement, results):
    """A row per workload and a column per tool; below them each column's geometric mean and its worst workload."""
    rows = {label: "" for label in ["", *(workload.name for workload in programs), "geo. mean", "worst"]}
    for tool in used:
        found = {w.name: measurement.ratio(w, tool, f"{what}_s") for w in programs}
        ratios = {name: ratio for name, ratio in found.items() if ratio}
        for name, ratio in ratios.items():
            results.add(f"{tool.name}: {name}, {what}", ratio, "ratio", "native")
        cells = {"": tool.name, **{name: f"{ratio:.3f}" for name, ratio in ratios.items()}}
        if ratios:
            mean, worst = geometric_mean(ratios.values()), max(ratios, key=ratios.get)
            results.add(f"{tool.name}: geometric mean, {what}", mean, "ratio", "native")
            results.add(f"{tool.name}: worst, {what}", ratios[worst], "ratio", "native", workload=worst)
            cells |= {"geo. mean": f"{mean:.3f}", "worst": f"{worst} {ratios[worst]:.3f}"}
        width = max(15, len(tool.name)) + 2
        for label in rows:
            rows[label] += f"{cells.get(label, 'failed'):>{width}}"
    print(f"\nRatio to native, {title}:")
    for label, row in rows.items():
        print(f"{label:10}{row}")


def window_ends(errors):
    """The numbers of windows by the reason of their end, from the summary of `auxtrail record`."""
    found = re.search(r"Windows: (\d+) in all, (\d+) full(?:, ended early: ([^;\]]*))?", errors)
    if not found:
        return 0, {}
    parts = [part.strip().split(" ", 1) for part in (found[3] or "").split(",") if part.strip()]
    return int(found[1]), {"full": int(found[2]), **{reason.strip(): int(count) for count, reason in parts}}


def print_contents(programs, tool, binary, results):
    """What is in the recordings of one more run of each workload."""
    print(f"\nThe recordings at {tool.name}:")
    print(f"{'':10}{'samples':>9}{'branches/sample':>17}{'bits/branch':>13}{'KB/s':>9}{'errors':>8}  windows ended by")
    for workload in programs:
        run = Run(workload, tool)
        found = decode(binary, tool.output) if run.ok else None
        if not found:
            print(f"{workload.name:10} failed")
            continue
        branches = found["branches"] + found["branches_not_taken"]
        per_sample = branches / max(1, found["samples"])
        # Padding apart, a sample's bits belong to all of its branches, taken or not.
        bits = 8 * found["aux_bytes"] / max(1, branches)
        rate = run.recording_bytes / run.wall_s / 1000
        bad = found["samples_with_errors"] + found["samples_ending_elsewhere"]
        windows, ends = window_ends(run.errors)
        shares = {reason: count / max(1, windows) for reason, count in ends.items()}
        listing = ", ".join(f"{reason} {share:.1%}" for reason, share in shares.items())
        print(f"{workload.name:10}{found['samples']:9}{per_sample:17.0f}{bits:13.2f}{rate:9.0f}{bad:8}  {listing}")
        prefix = f"{tool.name}: {workload.name}"
        results.add(f"{prefix}, samples", found["samples"], "count")
        results.add(f"{prefix}, branches per sample", per_sample, "branches")
        results.add(f"{prefix}, bits per branch", bits, "bits")
        results.add(f"{prefix}, bits per branch taken", found["bits_per_branch"], "bits")
        results.add(f"{prefix}, recording", rate, "KB/s")
        results.add(f"{prefix}, bad samples", bad, "count")
        for reason, share in shares.items():
            results.add(f"{prefix}, windows ended by {reason}", share, "share")


def run_micro(build, results):
    """Every Google Benchmark program of the build, briefly."""
    programs = sorted(p for p in pathlib.Path(build).glob("src/*/*_benchmark") if os.access(p, os.X_OK))
    for program in programs:
        done = subprocess.run([program, "--benchmark_format=json", "--benchmark_min_time=0.2"], capture_output=True,
                              text=True, check=False)
        try:
            rows = json.loads(done.stdout)["benchmarks"]
        except (json.JSONDecodeError, KeyError):
            print(f"{program.name}: {done.stderr.strip()[-200:]}", file=sys.stderr)
            continue
        print(f"\n{program.name}:")
        for row in rows:
            if row.get("error_occurred"):
                continue
            print(f"  {row['name']:50}{row['cpu_time']:14.2f} {row['time_unit']}")
            results.add(f"{program.name}: {row['name']}", row["cpu_time"], row["time_unit"])


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/release", help="the build folder whose auxtrail is measured")
    parser.add_argument("--output", default="bench-results.json")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slow-rounds", type=int, default=1, help="rounds for valgrind and QEMU")
    parser.add_argument("--only", default="", help="workloads, separated by commas")
    parser.add_argument("--tools", default="", help="tools whose name contains one of these words, separated by commas")
    parser.add_argument("--history-rounds", type=int, default=3, help="rounds of the history table")
    parser.add_argument("--decode-rounds", type=int, default=3, help="rounds of decoding against libipt")
    parser.add_argument("--parts", default=",".join(PARTS), help="what to measure (%(default)s)")
    arguments = parser.parse_args()
    arguments.parts = arguments.parts.split(",")
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return arguments


def run_costs(arguments, binary, work, results):
    """Returns whether every figure could be measured."""
    programs = [w for w in workloads.make(work / "inputs")
                if not arguments.only or w.name in arguments.only.split(",")]
    for workload in list(programs):
        if shutil.which(workload.command[0]) is None:
            print(f"{workload.name}: left out: {workload.command[0]} is not installed")
            programs.remove(workload)
    everything = tools.all_tools(binary, str(work), REPOSITORY)
    wanted = [t for t in everything if not arguments.tools or any(w in t.name for w in arguments.tools.split(","))]
    for tool in wanted:
        if tool.skipped:
            print(f"{tool.name}: left out: {tool.skipped}")
    used = [tool for tool in wanted if not tool.skipped]

    measurement = measure(programs, used, arguments.rounds, arguments.slow_rounds)
    print_ratios(programs, used, measurement, results)
    for tool in used:
        if tool.name.startswith("auxtrail"):
            print_contents(programs, tool, binary, results)
    for (workload, tool), count in measurement.failures.items():
        results.add(f"{tool}: {workload}, failed runs", count, "count")
    return measurement.complete()


def main():
    arguments = parse()
    binary = str(pathlib.Path(arguments.build).resolve() / "src/cli/auxtrail")
    if not os.access(binary, os.X_OK):
        sys.exit(f"bench: no {binary}; run `make release`")
    work = pathlib.Path(arguments.build).resolve() / "bench-work"
    work.mkdir(exist_ok=True)
    results = Results()
    ok = True
    if "costs" in arguments.parts:
        ok &= run_costs(arguments, binary, work, results)
    if "history" in arguments.parts:
        ok &= history_table.run(workloads.one_second(work / "inputs"), binary, work, arguments.history_rounds, results)
    if "decode" in arguments.parts:
        ok &= decoding.run(arguments.build, binary, work, arguments.decode_rounds, results)
    if "micro" in arguments.parts:
        run_micro(arguments.build, results)
    results.write(arguments.output)
    print(f"\nwrote {arguments.output}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
