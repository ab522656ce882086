"""How fast traces are decoded, against libipt's block decoder with its section cache, on the same traces in turns.

The traces: real ones of hardware, if the test data is there, and full traces of large programs that our own unit records
here. The work is done by the program decode_throughput; this is what feeds it.
"""
import json
import os
import pathlib
import subprocess
import sys
import sysconfig

import tools
from measuring import Run
from workloads import Workload

HERE = pathlib.Path(__file__).resolve().parent
# Title, trace, code pages, address filter: see ../shared/README.md.
HARDWARE_TRACES = (("Unzip", "Unzip/trace", "Unzip/data", "400000-427000"),
                   ("foo", "foo/trace", "foo/data", "7ffff7819000-7ffff79ca000"),
                   ("avscript_32", "avscript_32/failed_trace_12709_1", "avscript_32/page_cache", "1000-7ffffffff000"))
MODULES = 52  # of Python's library: more than 200 MB of trace
# What the program reports, the name of its worst ratio here, and against whom.
FIGURES = (("every_branch", "decode_every_branch_vs_libipt", "libipt"),
           ("edges", "decode_edges_vs_libipt", "libipt"),
           ("cold", "decode_cold_vs_libipt", "libipt"),
           ("edges_two_threads_vs_one", "decode_edges_two_threads", "one thread"),
           ("every_branch_two_threads_vs_one", "decode_every_branch_two_threads", "one thread"))


def record(binary, work):
    """The recordings of large programs, as arguments of the program."""
    library = sysconfig.get_path("stdlib", vars={"installed_base": "/usr"})
    command = ("/usr/bin/python3", str(HERE / "decode_workload.py"), library, str(MODULES))
    tool = tools.auxtrail("decode", binary, str(work), "-e", "intel_pt//u")
    run = Run(Workload("python", command), tool)
    if not run.ok:
        print(f"decode: recording failed: {run.errors.strip()[-300:]}", file=sys.stderr)
        return [], None
    return ["--perf-data", f"python:{tool.output}"], tool.output


def run(build, binary, work, rounds, results):
    """Returns whether every figure could be measured."""
    program = pathlib.Path(build) / "src/analysis/decode_throughput"
    if not os.access(program, os.X_OK):
        print(f"decode: left out: no {program}", file=sys.stderr)
        return False
    data = pathlib.Path(os.environ.get("AUXTRAIL_TEST_DATA", HERE.parent.parent / "shared/traces")) / "kvm_pt"
    arguments = []
    for title, trace, pages, window in HARDWARE_TRACES:
        if (data / trace).exists():
            arguments += ["--pages", f"{title}:{data / trace}:{data / pages}:{window}"]
    if not arguments:
        print(f"decode: no hardware traces at {data}")
    recorded, recording = record(binary, work)
    done = subprocess.run([program, "--rounds", str(rounds), *arguments, *recorded], capture_output=True, text=True,
                          check=False)
    if recording:
        pathlib.Path(recording).unlink(missing_ok=True)
    try:
        traces = json.loads(done.stdout)
    except json.JSONDecodeError:
        print(f"decode: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return False
    print("\nDecoding, times libipt's speed (two threads: times one thread's):")
    print(f"{'':14}{'MB':>8}{'branches':>12}" + "".join(f"{key.replace('_vs_one', ''):>27}" for key, _, _ in FIGURES))
    for trace in traces:
        cells = "".join(f"{trace[key]['ratio']:27.2f}" if key in trace else f"{'-':>27}" for key, _, _ in FIGURES)
        print(f"{trace['trace']:14}{trace['bytes'] / 1e6:8.1f}{trace['branches']:12}{cells}")
        title = trace["trace"]
        for key, _, peer in FIGURES:
            if key in trace:
                results.add(f"decode: {title}, {key}", trace[key]["ratio"], "ratio", peer)
                results.add(f"decode: {title}, {key}, per branch", trace[key]["ours_s"] * 1e9 / trace["branches"], "ns")
        results.add(f"decode: {title}, errors", trace["errors"], "count")
        results.add(f"decode: {title}, peak memory of the program so far", trace["peak_memory_mb"], "MB")
    for key, name, peer in FIGURES:
        found = [trace for trace in traces if key in trace]
        if found:
            worst = min(found, key=lambda trace: trace[key]["ratio"])
            results.add(name, worst[key]["ratio"], "ratio", peer, workload=worst["trace"])
            print(f"{name}: {worst[key]['ratio']:.2f} ({worst['trace']})")
    return bool(traces and recorded)
