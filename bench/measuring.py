"""One run of a workload under a tool, one decoding of a recording, and the figures that go to the output file."""
import json
import math
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time


class Results:
    """The figures of the output file: {"results": [{"name", "value", "unit", "peer"}]}; of the worst: "workload", too."""

    def __init__(self):
        self.rows = []

    def add(self, name, value, unit, peer="", **more):
        self.rows.append({"name": name, "value": round(value, 6), "unit": unit, "peer": peer, **more})

    def write(self, path):
        pathlib.Path(path).write_text(json.dumps({"results": self.rows}, indent=1) + "\n")


class Run:
    """One run of a workload under a tool (or natively, with tool None)."""

    def __init__(self, workload, tool):
        command = tool.command(workload) if tool else list(workload.command)
        environment = {**os.environ, "LC_ALL": "C", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        with open(workload.stdin, "rb") as source, tempfile.TemporaryFile() as errors:
            started = time.monotonic()
            process = subprocess.Popen(command, stdin=source, stdout=subprocess.DEVNULL, stderr=errors, env=environment)
            _, status, usage = os.wait4(process.pid, 0)
            self.wall_s = time.monotonic() - started
            process.returncode = os.waitstatus_to_exitcode(status)
            errors.seek(0)
            self.errors = errors.read().decode(errors="replace")
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.ok = process.returncode == 0
        self.recording_bytes = os.path.getsize(tool.output) if tool and tool.output and self.ok else 0


def geometric_mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def decode(binary, recording):
    """What `auxtrail verify` finds in a recording, and under "cpu_s" the CPU time that took; None if it can't read it."""
    before = _children_cpu_s()
    result = subprocess.run([binary, "verify", "--json", "-i", recording], capture_output=True, text=True, check=False)
    try:
        return {**json.loads(result.stdout), "cpu_s": _children_cpu_s() - before}
    except json.JSONDecodeError:
        print(f"verify: {result.stderr.strip()}", file=sys.stderr)
        return None


def _children_cpu_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
