"""What AUX area sampling promises, measured on one program: a sample holds the branches that led up to it, as an LBR of
any depth would, with far less data than a full trace.

Each row is one way to record the same run. In a round every row is recorded once, in an order that rotates, with a
native run before and after each, and decoded by `auxtrail verify`, which walks all branches and prints a few numbers.
Figures are medians over the rounds; costs are CPU time divided by that of the native runs beside.
"""
import collections
import pathlib
import statistics
import sys

import tools
from measuring import Run, decode

UNITS = ("window", "continuous")
RATES_HZ = (99, 999)
SIZES = {"1 KiB": 1024, "4 KiB": 4096, "16 KiB": 16384}
LBR_DEPTH = 32
LBR_SIZES = (160, 192, 224, 256, 320, 384, 512, 768, 1024)
LONG_DECODING_S = 10  # a row whose decoding takes longer is decoded in the first round only

# The columns: heading and format of the printed table; name, unit and peer in the output file.
Column = collections.namedtuple("Column", "heading format name unit peer")
COLUMNS = (
    Column("AUX bytes", ".0f", "AUX sample size", "bytes", ""),
    Column("MB", ".3f", "recording", "MB", ""),
    Column("of full", ".2%", "recording, share", "ratio", "full trace"),
    Column("record", ".2f", "record, cpu", "ratio", "native"),
    Column("decode", ".2f", "decode, cpu", "ratio", "native"),
    Column("ns/branch", ".1f", "decode, cpu per branch", "ns", ""),
    Column("samples", ".0f", "samples", "count", ""),
    Column("per sample", ".0f", "branches taken per sample, mean", "branches", ""),
    Column("(median)", ".0f", "branches taken per sample, median", "branches", ""),
    Column("in all", ".0f", "branches taken", "branches", ""),
    Column("lost", ".0f", "trace lost", "bytes", ""),
    Column("bad", ".0f", "bad samples", "count", ""),
)


class Row:
    """One way to record, and its figures in all rounds by the names of COLUMNS."""

    def __init__(self, name, tool, size=None, snapshots=False):
        self.name = name
        self.tool = tool
        self.snapshots = snapshots  # each record of trace counts as a sample
        self.figures = collections.defaultdict(list)
        if size:
            self.figures["AUX sample size"] = [size]
        self.decoding_s = 0

    def measure(self, workload, before, binary):
        """One round, after the native run `before`. Returns the native run after it."""
        run = Run(workload, self.tool)
        after = Run(workload, None)
        native_s = statistics.mean((before.cpu_s, after.cpu_s))
        if run.ok:
            self._add({"recording": run.recording_bytes / 1e6, "record, cpu": run.cpu_s / native_s})
            found = decode(binary, self.tool.output) if self.decoding_s < LONG_DECODING_S else None
            if found:
                self.decoding_s = found["cpu_s"]
                self._add(self._contents(found, native_s))
        else:
            print(f"\n{self.name} failed: {run.errors.strip()[-300:]}", file=sys.stderr)
        remove_recording(self.tool)
        return after

    def median(self, name):
        return statistics.median(self.figures[name]) if name in self.figures else None

    def _add(self, figures):
        for name, value in figures.items():
            self.figures[name].append(value)

    def _contents(self, found, native_s):
        trace = found["full_trace"]
        taken = found["branches"] + trace["branches"]
        branches = taken + found["branches_not_taken"] + trace["branches_not_taken"]
        figures = {"decode, cpu": found["cpu_s"] / native_s,
                   "decode, cpu per branch": found["cpu_s"] * 1e9 / max(1, branches),
                   "branches taken": taken,
                   "trace lost": trace["lost_bytes"],
                   "bad samples": found["samples_with_errors"] + found["samples_ending_elsewhere"]}
        samples = trace["records"] if self.snapshots else found["samples"]
        if samples:
            figures |= {"samples": samples, "branches taken per sample, mean": taken / samples}
        if found["samples"]:
            figures["branches taken per sample, median"] = found["branches_per_sample"]["50%"]
        return figures


def remove_recording(tool):
    """A full trace is large, and auxtrail would keep it as FILE.old."""
    pathlib.Path(tool.output).unlink(missing_ok=True)


def lbr_size(workload, binary, work, unit, hz):
    """The smallest AUX sample that is as good as an LBR: in nine of ten samples it holds so many branches, or more."""
    for size in LBR_SIZES:
        tool = tools.auxtrail_samples("history", binary, work, unit, hz, size)
        found = decode(binary, tool.output) if Run(workload, tool).ok else None
        remove_recording(tool)
        if found and found["branches_per_sample"]["10%"] >= LBR_DEPTH:
            return size
    print(f"{unit}: no AUX sample up to {LBR_SIZES[-1]} bytes holds {LBR_DEPTH} branches", file=sys.stderr)
    return None


def make_rows(workload, binary, work):
    def trace(name, *options, **more):
        return Row(name, tools.auxtrail("history", binary, work, "-e", "intel_pt//u", *options), **more)

    def samples(name, unit, hz, size):
        return Row(f"{unit}, {hz} Hz, {name}", tools.auxtrail_samples("history", binary, work, unit, hz, size), size)

    rows = [trace("full trace"), trace("snapshot at the end", "-Se", snapshots=True)]
    for unit in UNITS:
        lbr = lbr_size(workload, binary, work, unit, RATES_HZ[-1])
        rows += [samples(f"LBR of {LBR_DEPTH}", unit, RATES_HZ[-1], lbr)] if lbr else []
        rows += [samples(name, unit, hz, size) for hz in RATES_HZ for name, size in SIZES.items()]
    return rows


def measure(rows, workload, binary, rounds):
    """Returns the median CPU time of the native runs."""
    natives = [Run(workload, None)]
    for number in range(rounds):
        shift = number * len(rows) // rounds
        for row in rows[shift:] + rows[:shift]:
            print(f"\r\033[Khistory, round {number + 1}/{rounds}: {row.name}", end="", file=sys.stderr)
            natives.append(row.measure(workload, natives[-1], binary))
    print("\r\033[K", end="", file=sys.stderr)
    return statistics.median(native.cpu_s for native in natives)


def print_table(rows, results):
    print(f"{'':30}" + "".join(f"{column.heading:>11}" for column in COLUMNS))
    full = rows[0].median("recording")
    for row in rows:
        if full and row.median("recording"):
            row.figures["recording, share"] = [row.median("recording") / full]
        line = ""
        for column in COLUMNS:
            value = row.median(column.name)
            line += f"{'-' if value is None else format(value, column.format):>11}"
            if value is not None:
                results.add(f"history: {row.name}: {column.name}", value, column.unit, column.peer)
        print(f"{row.name:30}{line}")


def run(workload, binary, work, rounds, results):
    """Measures, prints and keeps the table. Returns whether every row has its figures."""
    rows = make_rows(workload, binary, work)
    native_s = measure(rows, workload, binary, rounds)
    words = " ".join(pathlib.Path(word).name for word in workload.command)
    print(f"\nHistory against bytes: {words}, natively {native_s:.2f} s of CPU time.\n"
          "record, decode: CPU time, ratio to native. From \"per sample\" on: branches taken, as an LBR would have them.")
    print_table(rows, results)
    return all(row.median("decode, cpu") is not None for row in rows)
