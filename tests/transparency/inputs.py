"""Inputs for the transparency and cost cases, made from files that every Debian system has.

The contents differ between systems and are the same on one system, which is all that a comparison of two runs
needs. Made once per build directory; a file that exists is left alone.
"""
import hashlib
import pathlib
import random


def _text_sources():
    """Files of text in a fixed order."""
    yield from sorted(pathlib.Path("/usr/share/common-licenses").glob("*"))
    for folder in ("/usr/include", "/usr/include/linux", "/usr/include/c++/12/bits", "/usr/share/perl5"):
        yield from sorted(p for p in pathlib.Path(folder).glob("*") if p.is_file())


def _make_text(path, size):
    parts, total = [], 0
    while total < size:
        before = total
        for source in _text_sources():
            data = source.read_bytes()
            parts.append(data)
            total += len(data)
            if total >= size:
                break
        if total == before:
            raise RuntimeError("no text files found to make inputs from")
    path.write_bytes(b"".join(parts)[:size])


def _make_binary(path, size):
    data = b""
    for source in sorted(pathlib.Path("/usr/lib/x86_64-linux-gnu").glob("lib*.so.*")):
        if source.is_file() and not source.is_symlink():
            data += source.read_bytes()
        if len(data) >= size:
            break
    path.write_bytes(data[:size])


def _make_numbers(path, count):
    generator = random.Random(20240501)
    path.write_text("".join(f"{generator.randrange(10**9)} {generator.choice('abcdefgh')}{i % 97}\n"
                            for i in range(count)))


def _make_json(path, count):
    generator = random.Random(7)
    rows = (f'{{"id": {i}, "name": "n{generator.randrange(5000)}", "tags": ["a{i % 13}", "b{i % 7}"], '
            f'"value": {generator.random():.6f}}}' for i in range(count))
    path.write_text("[" + ",\n".join(rows) + "]\n")


def _make_source(path, functions):
    """A C++ file with templates, containers and switch statements: work for a compiler."""
    lines = ["#include <algorithm>", "#include <cstdio>", "#include <map>", "#include <string>",
             "#include <vector>", "template <int N> struct Fold {",
             "  static long go(long x) { return Fold<N - 1>::go(x * N + 1) ^ N; }", "};",
             "template <> struct Fold<0> { static long go(long x) { return x; } };"]
    for i in range(functions):
        cases = " ".join(f"case {k}: v += Fold<{(i + k) % 40 + 1}>::go(v); break;" for k in range(8))
        lines.append(f"long f{i}(std::vector<long>& a, long v) {{ std::map<std::string, long> m;\n"
                     f"  for (auto& x : a) {{ switch ((x + {i}) & 7) {{ {cases} }} m[std::to_string(v % {i + 3})] += x; }}\n"
                     f"  std::sort(a.begin(), a.end(), [](long p, long q) {{ return p % {i + 7} < q % {i + 7}; }});\n"
                     f"  for (auto& e : m) v = v * 31 + e.second;\n  return v; }}")
    calls = "\n".join(f"  v = f{i}(a, v);" for i in range(functions))
    lines.append("int main() { std::vector<long> a; for (long i = 0; i < 500; ++i) a.push_back(i * 7919 % 1009);\n"
                 f"  long v = 1;\n{calls}\n  std::printf(\"%ld\\n\", v); }}")
    path.write_text("\n".join(lines) + "\n")


def _make_sql(path, rows):
    path.write_text(
        "PRAGMA journal_mode=MEMORY;\n"
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INTEGER, b TEXT);\n"
        f"WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i<{rows})\n"
        "INSERT INTO t SELECT i, (i*7919)%10007, printf('row-%05d', (i*31)%5000) FROM c;\n"
        "CREATE INDEX ia ON t(a); CREATE INDEX ib ON t(b);\n"
        "SELECT count(*), sum(a), max(b) FROM t;\n"
        "SELECT a%10, count(*), avg(a) FROM t GROUP BY a%10 ORDER BY 1;\n"
        "SELECT x.b, count(*) FROM t x JOIN t y ON x.a=y.a AND x.id<y.id GROUP BY x.b ORDER BY 2 DESC, 1 LIMIT 20;\n"
        "UPDATE t SET b=b||'x' WHERE a%3=0; DELETE FROM t WHERE a%5=0;\n"
        "SELECT count(*), sum(length(b)) FROM t WHERE b LIKE '%9%';\n"
        "VACUUM; PRAGMA integrity_check;\n")


_FILES = {
    "text": lambda p: _make_text(p, 3 << 20),
    "large_text": lambda p: _make_text(p, 12 << 20),
    "binary": lambda p: _make_binary(p, 3 << 20),
    "numbers": lambda p: _make_numbers(p, 200000),
    "data.json": lambda p: _make_json(p, 60000),
    "small.cc": lambda p: _make_source(p, 4),
    "large.cc": lambda p: _make_source(p, 40),
    "small.sql": lambda p: _make_sql(p, 30000),
    "large.sql": lambda p: _make_sql(p, 150000),
    "huge.sql": lambda p: _make_sql(p, 500000),
}


def make(folder):
    """Makes every input that is missing in `folder` and returns the folder."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, maker in _FILES.items():
        path = folder / name
        if not path.exists():
            unfinished = folder / f".{name}.{hashlib.sha1(str(path).encode()).hexdigest()[:8]}"
            maker(unfinished)
            unfinished.rename(path)
    return folder


if __name__ == "__main__":
    import sys
    make(sys.argv[1])
