"""The programs whose cost is measured, each about three seconds of CPU time (and a tenth of that for tools that are many
times slower), on inputs made from system files."""
import dataclasses
import pathlib
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "transparency"
sys.path.insert(0, str(TESTS))
import inputs  # noqa: E402  (the same inputs as those of the transparency tests)


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    command: tuple
    stdin: str = "/dev/null"
    brief: "Workload" = None  # less of the same


def _cc1plus():
    """The compiler proper, without the driver (QEMU does not follow children), with what the driver would tell it."""
    def ask(option):
        return subprocess.run(["g++", option], capture_output=True, text=True, check=False).stdout.strip()
    multiarch = ask("-print-multiarch")
    return (ask("-print-prog-name=cc1plus") or "cc1plus", "-quiet", *(["-imultiarch", multiarch] if multiarch else []),
            "-D_GNU_SOURCE")


def _sized(name, make_command, long_size, brief_size):
    """A workload whose command depends on a size."""
    return Workload(name, make_command(long_size), brief=Workload(name, make_command(brief_size)))


def make(folder):
    """All workloads, with their inputs made in `folder`."""
    at = inputs.make(folder)
    scripts = TESTS / "scripts"
    return [
        _sized("xz", lambda file: ("xz", "-6", "-T1", "-k", "-c", f"{at}/{file}"), "large_text", "text"),
        _sized("zstd", lambda file: ("zstd", "-q", "-T1", "-17", "-c", f"{at}/{file}"), "large_text", "text"),
        _sized("gzip", lambda files: ("gzip", "-9", "-n", "-c", *[f"{at}/{file}" for file in files]), ["large_text"] * 6,
               ["text"]),
        _sized("python", lambda scale: ("/usr/bin/python3", f"{scripts}/compute.py", f"{at}/text", scale), "25", "2"),
        _sized("perl", lambda scale: ("perl", f"{scripts}/work.pl", f"{at}/text", scale), "14", "1"),
        Workload("sqlite3", ("sqlite3", ":memory:"), f"{at}/huge.sql",
                 Workload("sqlite3", ("sqlite3", ":memory:"), f"{at}/small.sql")),
        _sized("openssl", lambda count: ("openssl", "kdf", "-keylen", "64", "-kdfopt", "digest:SHA512", "-kdfopt",
                                         "pass:secret", "-kdfopt", "salt:salt", "-kdfopt", f"iter:{count}", "PBKDF2"),
               5000000, 400000),
        _sized("g++", lambda file: (*_cc1plus(), "-O2", "-std=c++17", f"{at}/{file}", "-o", "/dev/null"), "large.cc",
               "small.cc"),
    ]


def one_second(folder):
    """A program of about a second, whose full trace takes some 250 MB."""
    at = inputs.make(folder)
    return Workload("gzip", ("gzip", "-9", "-n", "-c", *[f"{at}/large_text"] * 2))
