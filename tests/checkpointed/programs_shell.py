"""Scripts of shells, and what is called in them."""

# ruff: noqa: E501 - a script's line is one line

from __future__ import annotations

from tests.checkpointed.program import Program, script

PROGRAMS = [
    script(
        "bash loop",
        "A shell that counts, with sleep 1",
        "n=0; for i in $(seq 9); do n=$((n * 7 % 1000 + i)); echo $i >>steps; sleep 1; done; echo $n >result",
    ),
    script(
        "bash pipeline",
        "Four processes with pipes: seq, tee, awk",
        """\
for i in $(seq 32); do echo $i; sleep 0.25; done | tee copy | awk '{ n += $1 * NR; print $1 >>"steps"; fflush() } END { print n }' >sum
{ cat sum; cksum <copy; } >result
""",
    ),
    script(
        "awk",
        "awk alone, which waits by system()",
        """\
BEGIN { for (i = 1; i <= 32; i++) { n = (n * 31 + i) % 99991; print i >>"steps"; fflush(); system("sleep 0.25") } print n >"result" }
""",
        by="awk -f",
    ),
    script(
        "dash",
        "The smaller shell, with a function and a here-document",
        """\
n=0
add() { read -r x; n=$((n * 3 % 10007 + x)); }
i=0
while [ $i -lt 32 ]; do
    i=$((i + 1))
    add <<END
$i
END
    echo $i >>steps
    sleep 0.25
done
echo $n >result
""",
        by="dash",
    ),
    script(
        "zsh",
        "A shell with arrays of its own",
        "typeset -a all; for i in {1..32}; do all+=($((i * i))); echo $i >>steps; sleep 0.25; done; print -r -- $all >result",
        by="zsh",
        packages=("zsh",),
    ),
    script(
        "tcsh",
        "A shell of another family",
        """\
@ n = 0
@ i = 0
while ($i < 32)
    @ i++
    @ n = ($n * 5 + $i) % 9973
    echo $i >> steps
    sleep 0.25
end
echo $n > result
""",
        by="tcsh -f",
        packages=("tcsh",),
    ),
    script(
        "busybox",
        "A shell whose commands are in one file",
        "n=0; for i in $(seq 32); do n=$((n * 7 % 1013 + i)); echo $i >>steps; sleep 0.25; done; echo $n | md5sum >result",
        by="busybox sh",
        packages=("busybox-static",),
    ),
    script(
        "many short programs",
        "A loop with sleep 0.05, which starts a program many times a second",
        "n=0; for i in $(seq 150); do n=$((n * 7 % 1009 + i)); echo $i >>steps; sleep 0.05; done; echo $n >result",
    ),
    script(
        "xargs",
        "120 small tasks, three at a time",
        """\
seq 120 | xargs -P 3 -n 1 sh -c 'sleep 0.2; echo $(($1 * $1)) >>squares; echo $1 >>steps' sh
sort -n squares | cksum >result
""",
    ),
    script(
        "GNU parallel",
        "Tasks that parallel starts, three at a time, and whose output it collects",
        """\
seq 60 | parallel --will-cite -j 3 'sleep 0.35; echo {} >>steps; echo $(({} * {}))' >squares
sort -n squares | cksum >result
""",
        packages=("parallel",),
    ),
    Program(
        "make -j",
        "40 targets, two at a time",
        "make -s -j 2",
        {
            "Makefile": """\
all := $(shell seq 40)
result: $(all:%=made.%)
	cat $^ | cksum >$@
made.%:
	@sleep 0.35; echo $* >>steps; echo $(shell echo $$(($* * 3))) >$@
"""
        },
        needs=("make",),
    ),
    script(
        "compression",
        "tar, gzip and a checksum in one pipeline, file by file",
        """\
set -o pipefail
mkdir -p in; for i in $(seq 24); do yes "$i and so on" | head -n 200000 >in/$i; done
for i in $(seq 24); do
    echo $i >>steps
    tar --mtime=@0 --owner=0 --group=0 -cf - in/$i | gzip -9n | tee all.$i | cksum >sum.$i || exit
    sleep 0.2
done
cat sum.* | cksum >result
""",
    ),
    script(
        "big sort",
        "sort with temporary files, in the job's folder",
        """\
for i in 1 2 3 4 5 6 7 8 9; do
    seq 1 700000 | awk -v seed=$i '{ x = (x * 16807 + seed) % 2147483647; print x, $1 }' |
        LC_ALL=C sort -S 4M -T . --parallel=1 >sorted.$i
    echo $i >>steps
done
cat sorted.? | cksum >result
""",
    ),
    script(
        "flock",
        "Two loops that take turns by a lock on a file",
        """\
turn() {
    for i in $(seq 20); do
        flock lock sh -c 'read -r n <count; echo $((n + 1)) >count.new; mv count.new count'
        echo $1$i >>steps
        sleep 0.3
    done
}
echo 0 >count
turn a & turn b & wait
cat count >result
""",
    ),
    script(
        "own folder, removed by a trap",
        "trap 'rm -rf' EXIT, and the work lies in that folder",
        """\
T=$(mktemp -d -p .)
trap 'rm -rf "$T"' EXIT
echo 0 >"$T/sum"
for i in $(seq 30); do
    read -r n <"$T/sum" || exit 4
    echo $((n + i * i)) >"$T/sum"
    echo $i >>steps
    sleep 0.25
done
cp "$T/sum" result
""",
    ),
    script(
        "only sleeps",
        "Nothing is computed, so nothing shows that it runs",
        "echo 1 >>steps; sleep 9; echo 2 >>steps; echo slept >result",
    ),
    script(
        "waits for a file",
        "One process waits until another has written a file",
        """\
(for i in $(seq 16); do echo $i >>steps; sleep 0.5; done; echo "from the other" >there.new; mv there.new there) &
until [ -e there ]; do sleep 0.1; done
wait
cp there result
""",
    ),
    script(
        "child becomes a daemon",
        "A child with a session of its own, which outlives the shell that started it",
        """\
setsid sh -c '(for i in $(seq 32); do echo $i >>steps; sleep 0.25; done; echo of a daemon >by.new; mv by.new by) &' </dev/null >/dev/null 2>&1
until [ -e by ]; do sleep 0.2; done
cp by result
""",
    ),
    script(
        "script calls a static program",
        "A script calls a program that is linked statically",
        """\
n=0
for i in $(seq 32); do n=$(./static $n $i); echo $i >>steps; sleep 0.25; done
echo $n >result
""",
        build="""\
printf '#include <stdio.h>\\n#include <stdlib.h>\\n' >static.c
printf 'int main(int c, char **v) { printf("%%ld\\\\n", (atol(v[1]) * 7 + atol(v[2])) %% 10007); return 0; }\\n' >>static.c
gcc -static static.c -o static
""",
    ),
    script(
        "script calls a setuid program",
        "A script calls a program with the rights of another user",
        """\
n=0
for i in $(seq 32); do n=$(./other $n $i); echo $i >>steps; sleep 0.25; done
echo $n >result
""",
        build="""\
printf '#include <stdio.h>\\n#include <stdlib.h>\\n#include <unistd.h>\\n' >other.c
printf 'int main(int c, char **v) { printf("%%ld\\\\n", (atol(v[1]) * 7 + atol(v[2])) %% 10007); return 0; }\\n' >>other.c
gcc other.c -o other && chown nobody other && chmod 4755 other
""",
    ),
    script(
        "srun in a script",
        "A step of Slurm's",
        "for i in $(seq 32); do srun -n 1 sh -c 'echo $1 >>steps' sh $i; sleep 0.25; done; cksum <steps >result",
    ),
    Program(
        "namespaces",
        "A program with user, mount and process id namespaces of its own",
        "unshare --user --map-root-user --mount --pid --fork --mount-proc bash program",
        {"program": "for i in $(seq 32); do echo $i >>steps; sleep 0.25; done; echo $$ >result\n"},
        needs=("unshare",),
    ),
    Program(
        "LD_PRELOAD",
        "A program whose user has put a library before all others",
        "env LD_PRELOAD=./ahead.so bash program",
        {
            "program": "n=0; for i in $(seq 32); do n=$((n * 7 % 1009 + i)); echo $i >>steps; sleep 0.25; done; id -u >result; echo $n >>result\n",
            "ahead.c": "#include <unistd.h>\nuid_t getuid(void) { return 4242; }\nuid_t geteuid(void) { return 4242; }\n",
        },
        "gcc -shared -fPIC ahead.c -o ahead.so",
        needs=("gcc",),
    ),
    Program(
        "script (a terminal of its own)",
        "A program in a pseudoterminal, whose output is recorded",
        "script -q -e -c 'bash program' typescript",
        {
            "program": "stty size >/dev/null; for i in $(seq 32); do echo line $i; echo $i >>steps; sleep 0.25; done; tty | grep -c pts >result\n"
        },
        needs=("script",),
    ),
    script(
        "bc as a coprocess",
        "A shell that asks another program by two pipes",
        """\
coproc BC { bc; }
n=1
for i in $(seq 32); do
    echo "($n * 48271 + $i) % 2147483647" >&${BC[1]}
    read -r n <&${BC[0]}
    echo $i >>steps
    sleep 0.25
done
echo $n >result
""",
        packages=("bc",),
    ),
]
