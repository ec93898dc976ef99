"""Scripts of shells, and what is called in them."""

# ruff: noqa: E501 - a script's line is one line

from __future__ import annotations

from tests.checkpointed.program import C, Program, script

LOOP = "for i in $(seq 32); do echo $i >>steps; {work}; sleep 0.25; done"

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
        by="zsh", packages=("zsh",),
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
        by="tcsh -f", packages=("tcsh",),
    ),
    script(
        "busybox",
        "A shell whose commands are in one file",
        "n=0; for i in $(seq 32); do n=$((n * 7 % 1013 + i)); echo $i >>steps; sleep 0.25; done; echo $n | md5sum >result",
        by="busybox sh", packages=("busybox-static",),
    ),
]
