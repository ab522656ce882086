#!/usr/bin/env python3
"""`report` says where the time goes, not where the trace packets come from: on a program whose time and packets are in
different functions."""
import argparse
import json
import pathlib
import subprocess


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--auxtrail", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--work", required=True)
    arguments = parser.parse_args()
    work = pathlib.Path(arguments.work)
    work.mkdir(parents=True, exist_ok=True)
    for aux_bytes in (512, 4096):
        recording = work / "perf.data"
        subprocess.run([arguments.auxtrail, "record", "-q", f"--aux-sample={aux_bytes}", "-o", recording, "--",
                        arguments.program], check=True, stdout=subprocess.DEVNULL)
        report = json.loads(subprocess.run([arguments.auxtrail, "report", "--json", "--sort", "sym", "-i", recording],
                                           check=True, capture_output=True, text=True).stdout)
        event = report["events"][0]
        samples = {row["symbol"]: row["samples"] for row in event["rows"]}
        total = sum(samples.values())
        share = samples.get("Divisions", 0) / total
        print(f"--aux-sample={aux_bytes}: {share:.1%} of {total} samples in Divisions()")
        if total < 50 or share < 0.9:
            raise SystemExit("that is not where the time went")


if __name__ == "__main__":
    main()
