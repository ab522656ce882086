"""The table of transparency cases: what is run natively and under `auxtrail record`.

Words in braces are folders: {inputs} (see inputs.py), {scripts} (beside this file), {programs} (built from
tests/programs). A case runs in an empty folder of its own; every file that it leaves there is compared, too.
"""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    command: object  # a list of words; or a string, which bash runs
    needs: tuple = ()  # programs that must be installed, beyond the command's first word
    stdin: str = ""  # a file for standard input; /dev/null without one
    before: str = ""  # bash commands that prepare the folder, never traced
    timeout_s: int = 120
    status: int = 0  # what the native run must end with, negative for a signal
    least_branches: float = 0  # that a sample must hold on the average
    samples: bool = True  # whether a recording with hardly any sample is a failure
    record_options: tuple = ()  # beyond the usual ones, or instead of them: the last one counts
    refused: str = ""  # a part of the message with which the recorder refuses this program, with status 1
    decoded: bool = True  # whether `auxtrail verify` must find the recording good


def _program(name, *arguments, **options):
    return Case(f"program_{name}", [f"{{programs}}/{name}", *arguments], **options)


_PLUGINS = [f"{{programs}}/plugin{i}.so" for i in (1, 2, 3)]

PROGRAMS = [
    *(_program(name) for name in (
        "alt_stack", "blocked_raise", "blocked_signals", "cancel", "clear_env", "coroutines", "crash", "deep_recursion",
        "descriptors", "exceptions_deep", "exit_order", "flags_state", "float_state", "fork_heavy",
        "fork_threads", "identity", "interpreter", "jit", "lock_contention", "loop_shapes", "no_eintr",
        "odd_branches", "own_fault", "own_segv", "own_step", "own_trap", "raw_clone", "red_zone",
        "rseq_counter", "self_patch", "setjmp_loops", "siglongjmp_out", "signal_storm",
        "small_stacks", "spawn", "thread_signals", "timers", "vdso_calls")),
    # Sampled often, for faults to come at many places; after one at a sample itself a process is sampled no more.
    _program("lost_area", record_options=("-F", "5000"), samples=False),
    # Only at a high rate do overflows find the unit at work.
    _program("alt_stack_frame", record_options=("-F", "max")),
    _program("held_signals", record_options=("-F", "10000")),
    _program("syscall_signals", record_options=("-F", "5000")),
    _program("old_signals"),
    # From PTRACE_TRACEME on its children run without the unit.
    _program("traced_child", samples=False),
    _program("sandbox", samples=False),
    _program("sandbox_strict", status=9),
    # Its threads end before they overflow, most of them.
    _program("threads_thousands", samples=False),
    # It leaves the unit no memory, so there is nothing to sample with.
    _program("memory_limit", samples=False),
    _program("dlopen_loop", *_PLUGINS),
    _program("reload_neighbour", "{programs}/tls_plugin.so", _PLUGINS[0], least_branches=1000),
    _program("tls_library", "{programs}/tls_plugin.so"),
    # Traced in parts: an address filter, here of the program's own file, makes superblocks end where it does.
    *(Case(f"filtered_{name}", [f"{{programs}}/{name}"], record_options=("--filter", f"filter * @{{programs}}/{name}"))
      for name in ("odd_branches", "fork_threads", "interpreter")),
    # Died by a signal, seen by the recorder itself.
    Case("crash_segv", ["{programs}/crash", "segv"], status=-11, samples=False),
    Case("crash_abort", ["{programs}/crash", "abort"], status=-6, samples=False),
    Case("crash_kill", ["{programs}/crash", "kill"], status=-9, samples=False),
    Case("crash_trap", ["{programs}/crash", "trap"], status=-5, samples=False),
    Case("exit_123", ["{programs}/crash", "exit"], status=123, samples=False),
    # A preloaded library cannot reach it: refused with the reason, before it starts.
    Case("static_binary", ["{programs}/interpreter_static"], refused="statically linked"),
    # One that a traced program starts runs all the same.
    Case("static_child", "{programs}/interpreter_static; {programs}/interpreter"),
]

REAL = [
    Case("xz", ["xz", "-6", "-k", "-c", "{inputs}/text"]),
    Case("xz_threads", "xz -T2 --block-size=512KiB -3 -c {inputs}/text > out.xz && xz -dc out.xz | cmp - {inputs}/text",
         needs=("xz",)),
    Case("zstd", ["zstd", "-q", "-15", "-c", "{inputs}/text"]),
    Case("zstd_threads", ["zstd", "-q", "-T2", "-9", "{inputs}/large_text", "-o", "out.zst"]),
    Case("zstd_decompress", "zstd -dc in.zst | md5sum", needs=("zstd",), samples=False,
         before="zstd -q -1 -c {inputs}/large_text > in.zst"),
    Case("gzip", ["gzip", "-9", "-n", "-c", "{inputs}/text"]),
    Case("gunzip", "for i in 1 2 3 4 5; do gzip -dc in.gz | cksum; done", before="gzip -nc {inputs}/large_text > in.gz"),
    Case("bzip2", ["bzip2", "-9", "-k", "-c", "{inputs}/text"]),
    Case("bunzip2", ["bzip2", "-dc", "in.bz2"], before="bzip2 -c {inputs}/text > in.bz2"),
    Case("lz4", ["lz4", "-q", "-9", "-c", "{inputs}/large_text"]),
    Case("zip", "zip -q -X -9 out.zip text && unzip -p out.zip | cksum && unzip -tq out.zip", needs=("zip", "unzip"),
         before="cp {inputs}/text text && touch -d @1000000000 text"),
    Case("python", ["/usr/bin/python3", "{scripts}/compute.py", "{inputs}/text"]),
    Case("python_threads", ["/usr/bin/python3", "{scripts}/threads.py"]),
    Case("python_processes", ["/usr/bin/python3", "{scripts}/processes.py"]),
    Case("python_signals", ["/usr/bin/python3", "{scripts}/signals.py"]),
    Case("perl", ["perl", "{scripts}/work.pl", "{inputs}/text"]),
    Case("tcl", ["tclsh", "{scripts}/work.tcl"]),
    Case("sqlite", ["sqlite3", "out.db"], stdin="{inputs}/small.sql"),
    Case("openssl_digest", "for a in sha1 sha256 sha512 sha3-256 blake2b512 md5; do openssl dgst -$a {inputs}/large_text; done",
         needs=("openssl",)),
    Case("openssl_cipher", "for a in aes-256-cbc aes-128-ctr chacha20 camellia-128-cbc; do "
         "openssl enc -$a -K 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff "
         "-iv 000102030405060708090a0b0c0d0e0f -in {inputs}/large_text 2>&1 | md5sum; done", needs=("openssl",)),
    Case("openssl_pbkdf2", ["openssl", "kdf", "-keylen", "64", "-kdfopt", "digest:SHA512", "-kdfopt", "pass:secret",
                            "-kdfopt", "salt:salt", "-kdfopt", "iter:500000", "PBKDF2"]),
    Case("openssl_prime", "for i in {{1..12}}; do openssl prime $((2**61 - i)); done; openssl prime -hex "
         "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD"
         "EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED"
         "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE65381FFFFFFFFFFFFFFFF", needs=("openssl",)),
    Case("bash", ["bash", "{scripts}/work.sh"], status=7),
    # Each child runs for some milliseconds: one that ends before its first overflow has no sample.
    Case("bash_forks", "for i in {{1..150}}; do x=$(for j in {{1..2000}}; do :; done; echo $i); /bin/true; (:); "
                       "y=$((x + ${{y:-0}})); done; echo $y"),
    Case("dash", ["dash", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done; "
                  "for k in 1 2 3 4 5; do echo $(expr $k + $i); done"]),
    Case("mawk", ["mawk", "{{ n[$1 % 1009] += $1; for (i = 0; i < 4; i++) s = (s * 31 + length($2) + i) % 1000003; "
                 "if ($2 ~ /[a-d]9+/) m++ }} END {{ for (k = 0; k < 1009; k += 100) print k, n[k]; print s, m }}",
                 "{inputs}/numbers"]),
    Case("gawk", ["gawk", "{{ n[$1 % 1009] += $1; for (i = 0; i < 4; i++) s = (s * 31 + length($2) + i) % 1000003; "
                 "if ($2 ~ /[a-d]9+/) m++ }} END {{ for (k = 0; k < 1009; k += 100) print k, n[k]; print s, m }}",
                 "{inputs}/numbers"]),
    Case("sort", "sort --parallel=4 -S 2M -T . -k2,2 -k1,1n {inputs}/numbers | md5sum; "
         "sort --parallel=2 -u {inputs}/text | md5sum"),
    Case("grep", ["grep", "-rnE", "--include=*.h", "(template|class).*<[a-z]+ *(,|>)", "/usr/include/c++/12"],
         before="test -d /usr/include/c++/12"),
    Case("tar", "tar --sort=name --mtime=@0 --owner=0 --group=0 -cf out.tar -C /usr/include . && tar -tvf out.tar | "
         "sort | md5sum && tar -czf - -C /usr/include/linux . | tar -tzf - | wc -l && "
         "mkdir x && tar -xf out.tar -C x && diff -r x /usr/include > /dev/null; echo $?; rm -r x"),
    Case("clang", ["clang", "-O2", "-g", "-std=c++17", "-c", "{inputs}/small.cc", "-o", "out.o"], timeout_s=180),
    Case("gcc", "g++ -O2 -std=c++17 {inputs}/small.cc -o a.out && ./a.out", needs=("g++",), timeout_s=180),
    Case("gdb", ["gdb", "-nx", "-batch", "-ex", "info functions Burn", "-ex", "disassemble /s main",
                 "-ex", "info line main", "-ex", "info scope main", "{programs}/signal_storm"]),
    # A program under a debugger that runs traced: its SIGTRAPs are the debugger's.
    Case("gdb_run", "gdb -nx -batch -ex 'set debuginfod enabled off' -ex 'break Table' -ex run -ex 'info breakpoints' "
         "-ex delete -ex 'stepi 2000' -ex 'info registers rip rax' -ex continue {programs}/interpreter | "
         "sed 's/process [0-9]*/process N/'", needs=("gdb",), timeout_s=180),
    Case("node", ["node", "{scripts}/work.js"], status=3),
    Case("node_startup", "for i in 1 2 3; do node -e 'console.log([1,2,3].map(x => x * 2))'; done", needs=("node",),
         samples=False),
    Case("java", ["java", "-Xshare:auto", "-XX:+UseSerialGC", "-cp", ".", "Work"], needs=("java", "javac"), status=4,
         before="cp {scripts}/Work.java . && javac Work.java"),
    Case("sed", ["sed", "-E", "s/([a-z]+) ([a-z]+)/\\2 \\1/g; /^ *$/d; y/abc/cab/; $!N; P; D", "{inputs}/text"]),
    Case("jq", ["jq", "-c", "group_by(.name) | map({{n: .[0].name, s: (map(.value) | add), t: (map(.tags[]) | unique)}}) "
                "| sort_by(-.s) | .[0:50]", "{inputs}/data.json"]),
    Case("sums", "for a in md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum; do "
         "$a < {inputs}/large_text; done"),
    Case("find", "for i in 1 2 3 4 5 6; do find /usr/include /usr/share/doc -type f -name '*[aeiou]*.h*' -size -200k "
         "-not -path '*/asm/*' -printf '%P %s %m\\n'; done"),
    Case("diff", ["diff", "--label", "a", "--label", "b", "-u", "{inputs}/text", "changed"], status=1,
         before="sed '0~37s/e/EE/; 0~91d' {inputs}/text > changed"),
    Case("bc", ["bc", "-lq"], stdin="{scripts}/work.bc"),
    Case("m4", ["m4", "{scripts}/work.m4"]),
    Case("make", ["make", "-s", "-j2", "-f", "{scripts}/Makefile"]),
    Case("git", "git init -q -b main . && cp -r /usr/include/linux tree && git add -A && git commit -q -m one && "
         "sed -i s/int/long/ tree/[a-f]*.h && git commit -qam two && git log --format='%H %s' --stat | tail -n 3 && "
         "git diff HEAD~1 | git patch-id && git gc -q && git fsck && git blame tree/aio_abi.h | md5sum; "
         "rm -rf .git tree", needs=("git",)),
    Case("readelf", "readelf -aW {programs}/interpreter | md5sum; objdump -d {programs}/interpreter | tail -n +3 | md5sum; "
         "objdump -d /usr/lib/x86_64-linux-gnu/libm.so.6 | md5sum; "
         "nm -C {programs}/exceptions_deep | md5sum; objdump --dwarf=decodedline {programs}/jit | wc -l",
         needs=("readelf", "objdump", "nm")),
    Case("coreutils", "seq 300000 | shuf --random-source={inputs}/binary | sort -n | uniq -c | tail -n 2; "
         "base64 {inputs}/binary | fold -w 100 | tac | rev | md5sum; od -An -tx4 {inputs}/binary | tr -d '\\n ' | wc -c; "
         "factor $(seq 1000000007 1000000100) | md5sum; split -n 7 {inputs}/text part. && cat part.* | cmp - {inputs}/text; "
         "cut -c1-20 {inputs}/text | paste - - - | expand | nl | md5sum; iconv -f latin1 -t utf16 {inputs}/text | md5sum; "
         "join <(sort -u {inputs}/numbers) <(sort -u {inputs}/numbers | head -n 5000) | wc -l; rm part.*"),
    Case("xargs", "seq 1 200 | xargs -n 10 -P 4 sh -c 'echo $(( $1 * 2 ))' sh | sort -n | md5sum", needs=("xargs",),
         samples=False),  # sixty processes of a millisecond each
    Case("file", "file -b /usr/bin/[a-d]* /usr/lib/x86_64-linux-gnu/*.so.? | md5sum", needs=("file",)),
    Case("pandoc", ["pandoc", "-f", "markdown", "-t", "html", "{scripts}/../../../LICENSE"], needs=("pandoc",)),
    Case("cmake", ["cmake", "-P", "{scripts}/work.cmake"]),
    Case("valgrind", ["valgrind", "--tool=none", "-q", "/bin/echo", "through"], samples=False, timeout_s=180),
]

CASES = {case.name: case for case in PROGRAMS + REAL}
