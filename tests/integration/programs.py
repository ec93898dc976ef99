"""What people start in batch scripts: little programs in each form, to be run with the launcher and without it.

RUN stands for the launcher with its options, and for nothing where the script runs as it is. A script that begins with
``#!`` is run by that interpreter, others by bash. ``@signal NAME WHO`` in a comment: once the script has written the
file ``ready`` that signal is sent, as Slurm sends it, to the batch shell alone (``shell``) or to all processes of the
job (``all``). ``@needs PROGRAM``: what has to be there.
"""

# ruff: noqa: E501 - a script's line is one line

from __future__ import annotations

LINES = "".join(f"{number}\n" for number in range(1, 121))
LONG = 20_000  # lines: more than a pipe holds, so that shells make a file of a here-document or start a writer

INPUT = {
    "file": "exec RUN cat <in.txt",
    "file from its second line on": "{ read -r first; exec RUN cat; } <in.txt",
    "file behind a link": "ln -sf in.txt link.txt; exec RUN cat <link.txt",
    "empty file": ": >empty.txt; exec RUN wc -c <empty.txt",
    "file with zeros and without a last newline": "printf 'a\\0b\\nc' >odd.txt; exec RUN od -c <odd.txt",
    "read and written at once": "cp in.txt rw.txt; exec RUN sh -c 'cat; echo more >&0; tail -n 1 rw.txt' <>rw.txt",
    "here-document": f"exec RUN cat <<'END'\n{LINES}END",
    "here-document of variables": "name=it; exec RUN cat <<END\n$name $((6 * 7)) $(echo is)\nEND",
    "here-document without tabs": "exec RUN cat <<-'END'\n\tone\n\t\ttwo\n\tEND",
    "long here-document": f"exec RUN wc -l <<END\n$(seq {LONG})\nEND",
    "here-string": "exec RUN cat <<<'a word and another'",
    "python from a here-document": "exec RUN python3 - <<'END'\nimport sys\nprint(6 * 7, sys.stdin.read())\nEND",
    "shell from a here-document": "RUN bash -s one two <<'END'\necho $# $2; exit 5\nEND\necho $?",
    "perl from a here-document": "exec RUN perl - x <<'END'\nprint \"@ARGV\\n\"; print <STDIN>;\nEND",
    "shell from a pipe": "echo 'echo read; exit 3' | RUN sh",
    "pipe": "seq 120 | RUN cat",
    "pipe in the middle": "seq 120 | RUN tac | head -n 3",
    "pipe whose writer is slow": "{ seq 60; sleep 0.3; seq 60; } | RUN cat",
    "pipe that is not read to its end": "set -o pipefail; yes | RUN head -n 2; echo ${PIPESTATUS[0]}",
    "pipe that nobody reads": "seq 100000 | RUN true; echo ${PIPESTATUS[*]}",
    "named pipe": "mkfifo fifo$$; seq 9 >fifo$$ & RUN cat <fifo$$; wait; rm fifo$$",
    "process substitution": "exec RUN cat <(seq 5) <(seq 2)",
    "input by process substitution": "RUN sort -rn < <(seq 12)",
    "srun": "exec RUN srun cat <in.txt",
    "srun with a double dash": "exec RUN srun -- cat <in.txt",
    "srun without input": "exec RUN srun --input=none cat",
    "srun from a file of its own": "exec RUN srun --input=in.txt cat",
    "srun below a shell": "RUN bash -c 'srun wc -l; srun cat' <in.txt",
    "srun of components": "exec RUN srun -n 1 echo one : -n 1 echo two",
    "nothing": "exec RUN cat",
    "closed": "exec RUN sh -c 'cat; echo $?; ls /proc/self/fd' <&-",
    "other descriptors": "exec 3<in.txt 4<in.txt; exec RUN sh -c 'cat | wc -l; cat <&4 <&3; ls /proc/$$/fd' <in.txt",
    "many descriptors": "exec 3<in.txt 4<&3 5<&3 6<&3 7<&3 8<&3; exec RUN sh -c 'ls /proc/$$/fd; cat' <in.txt",
    "high descriptors": "exec 20<in.txt 63>high.txt; RUN sh -c 'cat /proc/self/fd/20 >&2; ls /proc/$$/fd'; cat high.txt",
    "loop": "while read -r line; do RUN sh -c 'echo $1' sh $line; [ $line -lt 3 ] || break; done <in.txt",
    "two after each other": "{ RUN head -n 1; RUN true; cat | tail -n 1; } <in.txt",
    "mapfile": "mapfile -t lines < <(RUN cat <in.txt); echo ${#lines[@]} ${lines[119]}",
    "socket": """\
exec RUN python3 -c '
import socket, subprocess, sys
ours, theirs = socket.socketpair()
child = subprocess.Popen(["cat"], stdin=theirs, stdout=theirs)
theirs.close(); ours.sendall(b"over a socket"); ours.shutdown(socket.SHUT_WR)
print(ours.makefile().read(), child.wait())'""",
    "input is a socket": """\
python3 -c '
import socket, subprocess
ours, theirs = socket.socketpair()
child = subprocess.Popen(["bash", "-c", "RUN cat"], stdin=theirs)
theirs.close(); ours.sendall(b"over a socket\\n"); ours.close()
raise SystemExit(child.wait())'""",
}
OUTPUT = {
    "both into one file": "RUN sh -c 'echo out; echo err >&2' >all.txt 2>&1; grep -v ^clearway-run: all.txt",
    "errors into the output": "RUN sh -c 'echo out; echo err >&2' 2>&1 | grep -v ^clearway-run:",
    "appended": "echo first >log.txt; RUN echo second >>log.txt; cat log.txt",
    "output closed": "RUN sh -c 'echo lost; echo $?' >&-; echo $?",
    "errors closed": "exec RUN sh -c 'echo out; ls gone; echo $?' 2>&-",
    "tee": "RUN seq 5 | tee copy.txt; cat copy.txt",
    "tee of errors": "RUN sh -c 'echo err >&2; echo out' 2> >(grep -v ^clearway-run: >errors.txt); until [ -s errors.txt ]; do sleep 0.05; done; cat errors.txt",
    "captured": "text=$(RUN sh -c 'echo a; echo b'); echo \"<$text>\" $?",
    "into a full device": "RUN sh -c 'echo much' >/dev/full; echo $?",
    "exchanged": "RUN sh -c 'echo out; echo err >&2' 3>&1 1>&2 2>&3 3>&- | grep -v ^clearway-run:",
    "a megabyte": "exec RUN head -c 1000000 /dev/zero | cksum",
    "a broken pipe": "RUN sh -c 'while echo y; do :; done' 2>/dev/null | head -n 1; echo ${PIPESTATUS[0]}",
}
STATUS = {
    **{f"exit {code}": f"exec RUN sh -c 'exit {code}'" for code in (0, 1, 2, 64, 127, 143, 255)},
    **{
        f"dies of {name}": f"ulimit -c 0; {{ RUN sh -c 'kill -{name} $$'; echo $?; }} 2>/dev/null"
        for name in ("TERM", "KILL", "USR2", "SEGV", "ALRM")
    },
    "set -e": "set -e; RUN sh -c 'read -r x; exit $((x + 4))' <in.txt; echo not reached",
    "set -euo pipefail": "set -euo pipefail; RUN false | cat; echo not reached",
    "exit trap": "trap 'echo trap $?' EXIT; RUN sh -c 'exit 9'",
    "err trap": "trap 'echo failed' ERR; RUN false; RUN true; echo $?",
    "not found": "exec RUN ./no-such-program 2>/dev/null",
    "not executable": "echo >plain.txt; exec RUN ./plain.txt 2>/dev/null",
    "and or": "RUN false || echo or; RUN true && echo and; ! RUN false && echo not",
    "time": "TIMEFORMAT=; time RUN sh -c 'exit 4'; echo $?",
    "if": "if RUN grep -q 119 <in.txt; then echo there; else echo not; fi",
    "a function": 'step() { RUN sh -c "exit $1"; }; step 3; echo $?; step 0; echo $?',
    "last of several": "RUN sh -c 'exit 1'; RUN sh -c 'exit 2'",
}
CHILDREN = {
    "background and wait": "RUN bash -c 'sleep 0.1 & p=$!; (exit 3) & wait $!; echo $?; wait $p; echo $?'",
    "the launcher in the background": "RUN sh -c 'sleep 0.1; exit 6' & wait $!; echo $?",
    "two launchers at once": "RUN sh -c 'exit 1' & a=$!; RUN sh -c 'exit 2' & b=$!; wait $a; echo $?; wait $b; echo $?",
    "a child that outlives it": """\
RUN bash -c '(until [ -e go ]; do sleep 0.05; done; echo late >late.txt) & echo early'
cat late.txt 2>&1; : >go; until [ -s late.txt ]; do sleep 0.05; done; cat late.txt""",
    "wait -n": "exec RUN bash -c '(exit 4) & (sleep 1; exit 5) & wait -n; echo $?; wait -n; echo $?'",
    "subshells": "exec RUN bash -c '(echo a; (echo b; exit 2); echo $?); { echo c; }'",
    "nested shells": 'exec RUN sh -c \'exec bash -c "exec sh -c \\"exit 11\\""\'',
    "xargs": "exec RUN xargs -n 40 echo <in.txt",
    "xargs in parallel": "exec RUN sh -c 'xargs -P 4 -n 1 echo | sort -n | tail -n 2' <in.txt",
    "nohup": "exec RUN nohup echo hup </dev/null",
    "setsid": "exec RUN setsid --wait sh -c 'exit 8'",
    "timeout": "exec RUN timeout 0.2 sleep 9",
    "nice": "exec RUN nice -n 3 nice",
    "env": "exec RUN env -i A=b sh -c 'echo $A $HOME'",
    "coproc": "exec RUN bash -c 'coproc cat; echo hello >&${COPROC[1]}; read -r x <&${COPROC[0]}; echo $x'",
    "job control": "exec RUN bash -c 'set -m; sleep 1 & jobs -r | wc -l; kill -STOP %1; kill -CONT %1; wait; fg 2>/dev/null; echo $?'",
    "python multiprocessing": """\
cat >pool.py <<'END'
import multiprocessing as m
def f(x): return x * x
if __name__ == "__main__":
    for how in ("fork", "spawn", "forkserver"):
        with m.get_context(how).Pool(2) as pool: print(how, sum(pool.map(f, range(50))))
END
exec RUN python3 pool.py""",
    "python subprocess": 'exec RUN python3 -c \'import subprocess as s; print(s.run(["sh", "-c", "read x; exit 7"]).returncode)\'',
    "threads": "exec RUN python3 -c 'import concurrent.futures as c; print(sum(c.ThreadPoolExecutor(8).map(len, [\"ab\"] * 99)))'",
    "shared memory": """\
exec RUN python3 -c '
from multiprocessing import shared_memory as s
m = s.SharedMemory(create=True, size=8); m.buf[0] = 42; print(s.SharedMemory(m.name).buf[0]); m.close(); m.unlink()'""",
    "file in /dev/shm": 'f=/dev/shm/clearway-$$; RUN sh -c "echo shm >$f"; cat $f; rm $f',
    "openmp": """\
# @needs gcc
printf '#include <stdio.h>\\nint main(void) { int n = 0;\\n#pragma omp parallel reduction(+:n)\\nn++; printf("%%d\\\\n", n); }' >omp.c
gcc -fopenmp omp.c -o omp || exit
export OMP_NUM_THREADS=3; exec RUN ./omp""",
    "a server of its own": """\
exec RUN python3 -c '
import http.server as h, threading, urllib.request as u
class Q(h.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.end_headers(); self.wfile.write(b"served")
    def log_message(self, *_): pass
s = h.HTTPServer(("127.0.0.1", 0), Q); threading.Thread(target=s.serve_forever, daemon=True).start()
print(u.build_opener(u.ProxyHandler({})).open("http://127.0.0.1:%d" % s.server_port).read())'""",
    "timers": """\
exec RUN python3 -c '
import signal, time
seen = []
for name in ("ALRM", "VTALRM", "PROF"): signal.signal(getattr(signal, "SIG" + name), lambda n, _: seen.append(n))
signal.setitimer(signal.ITIMER_REAL, 0.05); signal.setitimer(signal.ITIMER_PROF, 0.02)
end = time.monotonic() + 5
while len(set(seen)) < 2 and time.monotonic() < end: sum(range(1000))
print(sorted(set(seen)))'""",
}
SURROUNDINGS = {
    "arguments": "exec RUN printf '<%s>' '' ' ' 'a  b' '*' '$HOME' \"it's\" '\"' '\\' $'new\\nline' -- --help -x é",
    "option-like arguments": "exec RUN echo --dir --keep 7 -- --try",
    "environment": "export A='b  c' É=1; env -u _ RUN env | grep -Ev '^(_|(CLEARWAY|DMTCP)_.*|SHLVL|PWD|OLDPWD)=' | LC_ALL=C sort",
    "functions in the environment": "conda() { echo \"conda $*\"; }; export -f conda; exec RUN bash -c 'conda activate it'",
    "conda-like activation": "activate() { export CONDA_PREFIX=/x PS1=y; PATH=$PWD/env:$PATH; }; activate; exec RUN sh -c 'echo $CONDA_PREFIX ${PATH%%:*}' | sed \"s|$PWD|.|\"",
    "umask": "umask 027; RUN sh -c 'umask; : >made.txt'; stat -c %a made.txt",
    "limits": "ulimit -n 99 -c 0 -s 4096 -v 9999999 2>/dev/null; exec RUN bash -c 'ulimit -a; ulimit -Ha' | grep -v pipe",
    "folder": "mkdir -p 'a folder'; cd 'a folder'; RUN pwd | sed 's|.*/||'; RUN ls ..>/dev/null; echo $?",
    "folder that is gone": "mkdir gone$$; cd gone$$; rmdir ../gone$$; RUN sh -c 'pwd >/dev/null 2>&1; echo ran' 2>/dev/null; echo $?",
    "signals": "exec RUN grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status <in.txt",
    "ignored signals": "trap '' USR1 HUP INT; exec RUN grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status",
    "ignored SIGPIPE": "trap '' PIPE; exec RUN grep -E '^SigIgn' /proc/self/status",
    "nice value": "renice -n 2 $$ >/dev/null; exec RUN nice",
    "scheduling": "exec RUN sh -c 'chrt -p $$ | sed s/.*:// ; taskset -p $$ | sed s/.*://'",
    "oom score": "echo 300 >/proc/self/oom_score_adj; exec RUN cat /proc/self/oom_score_adj",
    "locale": "export LC_ALL=C.UTF-8 LANG=de_DE.UTF-8; exec RUN sh -c 'echo $LC_ALL $LANG; echo ä | wc -m'",
    "slurm's variables": "export SQUEUE_STATES=PD SLURM_CLUSTERS=x SLURM_TIME_FORMAT=relative; exec RUN sh -c 'echo $SQUEUE_STATES $SLURM_CLUSTERS $SLURM_TIME_FORMAT $SLURM_JOB_ID'",
    "an array's task": "export SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=3; exec RUN sh -c 'echo $SLURM_ARRAY_TASK_ID'",
    "shell options": "set -uf; shopt -s nullglob; RUN bash -c 'echo $- *.none'",
    "IFS and CDPATH": "export CDPATH=/usr IFS=:; RUN sh -c 'cd / && cd bin && echo $1' sh a:b",
    "BASH_ENV and ENV": "echo 'echo from a start file' >start; BASH_ENV=$PWD/start ENV=$PWD/start RUN bash -c 'echo run'; echo $?",
    "POSIXLY_CORRECT": "export POSIXLY_CORRECT=1; exec RUN sh -c 'ls -d in.txt; echo $POSIXLY_CORRECT'",
    "TMPDIR": 'mkdir -p \'my tmp\'; TMPDIR="$PWD/my tmp" RUN sh -c \'echo "${TMPDIR##*/}"; ls "$TMPDIR" | grep -v clearway\'',
}
INTERPRETERS = {
    "dash": "#!/bin/dash\nexec RUN dash -c 'echo $0 $1; exit 3' name arg",
    "dash: a here-document": "#!/bin/dash\nRUN cat <<END\nto dash\nEND\necho $?",
    "dash: set -e": "#!/bin/dash\nset -e\nRUN true\nRUN sh -c 'exit 12'\necho not reached",
    "bash login shell": "#!/bin/bash -l\nexec RUN bash -c 'shopt -q login_shell; echo $?'",
    "bash -eu": "#!/bin/bash -eu\nRUN true; RUN sh -c 'exit 3'; echo not reached",
    "zsh": "#!/usr/bin/zsh\n# @needs zsh\na=(1 '2 3'); RUN printf '<%s>' $a; RUN zsh -c 'exit 4'; echo $?",
    "mksh": "#!/usr/bin/mksh\n# @needs mksh\nprint -r -- a | RUN cat; RUN mksh -c 'exit 4'; echo $?",
    "busybox": "#!/usr/bin/busybox sh\n# @needs busybox\nRUN busybox sh -c 'read x; echo $x' <in.txt; echo $?",
    "tcsh": "#!/usr/bin/tcsh -f\n# @needs tcsh\nset a = (1 2)\nRUN echo $a:q\nRUN tcsh -f -c 'exit 4'\necho $status",
    "tcsh: a here-document": "#!/usr/bin/tcsh -f\n# @needs tcsh\nRUN cat << END\nof tcsh\n'END'\nEND\necho $status",
    "perl": '#!/usr/bin/perl\nprint `RUN echo from perl`; system("RUN sh -c \'exit 5\'"); print $? >> 8, "\\n"; exec(\'RUN perl -e "exit 6"\');',
    "python": "#!/usr/bin/python3\nimport os, subprocess\nprint(subprocess.run('RUN cat', shell=True, input='in', text=True, capture_output=True).stdout, flush=True)\nos.execlp('sh', 'sh', '-c', 'exec RUN python3 -c \"raise SystemExit(7)\"')",
    "awk": '#!/usr/bin/awk -f\nBEGIN { while (("RUN seq 3" | getline line) > 0) sum += line; print sum; exit system("RUN sh -c \'exit 5\'") }',
    "CRLF": "#!/bin/bash\nexec RUN echo one\r\n",
    "a script's own lines": "exec RUN bash script.sh",
    "a script without #!": "echo 'echo plain $0 $#' >plain; chmod +x plain; exec RUN ./plain a b 2>/dev/null",
    "a script with #! perl": "printf '#!/usr/bin/perl\\nprint \"p @ARGV\\\\n\"; exit 3' >p; chmod +x p; exec RUN ./p a",
    "python -c": "exec RUN python3 -c 'import sys; print(sys.argv, sys.stdin.isatty(), sys.flags.interactive)' a b",
    "python -m": "exec RUN python3 -m this <in.txt",
    "python reading its input": "exec RUN python3 <<'END'\nprint(sum(range(10)))\nraise SystemExit(4)\nEND",
    "python unbuffered": "exec RUN python3 -u -c 'import sys; print(1); print(2, file=sys.stderr); sys.exit(\"said\")'",
    "sed in place": "cp in.txt s.txt; RUN sed -i s/1/x/ s.txt; head -n 2 s.txt",
    "make": "# @needs make\nprintf 'all: a b\\na b:\\n\\t@echo $@\\nbad:\\n\\t@exit 3\\n' >Makefile; RUN make -s; RUN make -s bad 2>/dev/null; echo $?",
    "find -exec": "exec RUN find in.txt -exec wc -l {} +",
    "a name with blanks": "printf '#!/bin/sh\\necho \"$0\"' >'my prog'; chmod +x 'my prog'; exec RUN './my prog'",
}
WAITS = "echo ready >ready; while :; do sleep 0.05; done"
HEARS = "trap 'echo heard {name}; exit 5' {name}; " + WAITS
COUNTS = (
    'n=0; trap ": \\$((n += 1))" {name}; echo ready >ready; until [ $n -gt 0 ]; do sleep 0.05; done; sleep 1.5; echo $n'
)
SIGNALS = {
    **{
        f"{name} to all: heard once": f"# @signal {name} all\ntrap : {name}; RUN bash -c '{COUNTS.format(name=name)}' 2>/dev/null"
        for name in ("TERM", "INT", "USR2")
    },
    **{
        f"{name} to {who}: {what}": f"# @signal {name} {who}\ntrap : {name}; RUN bash -c '{program}' 2>/dev/null; echo $?"
        for name in ("TERM", "INT", "HUP", "USR2")
        for who in ("all",)
        for what, program in (("heard", HEARS.format(name=name).replace("'", '"')),)
    },
    **{
        f"{name} to shell: heard": f"# @signal {name} shell\nexec RUN bash -c '{HEARS.format(name=name).replace(chr(39), chr(34))}'"
        for name in ("TERM", "INT", "HUP", "USR2")
    },
    **{
        f"{name} to shell: not heard": f"# @signal {name} shell\nexec RUN bash -c '{WAITS}'"
        for name in ("TERM", "HUP", "USR2")
    },
    "TERM to shell: python": """\
# @signal TERM shell
exec RUN python3 -c '
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
open("ready", "w").close()
while True: time.sleep(1)'""",
    "INT to shell: python": """\
# @signal INT shell
exec RUN python3 -c '
import time
try:
    open("ready", "w").close()
    while True: time.sleep(1)
except KeyboardInterrupt: print("interrupted"); raise SystemExit(4)'""",
    "TERM to all: a pipeline": "# @signal TERM all\ntrap 'echo batch heard' TERM; RUN bash -c 'trap \"echo heard; exit 3\" TERM; until [ -e caught ]; do sleep 0.05; done; "
    + WAITS
    + "' 2>/dev/null | (trap '' TERM; : >caught; cat); echo ${PIPESTATUS[0]}",
    "CONT to all": '# @signal CONT all\nRUN bash -c \'trap "echo went on; exit 0" CONT; '
    + WAITS
    + "' 2>/dev/null; echo $?",
}
PROGRAMS = {
    f"{kind}: {name}": script
    for kind, scripts in {
        "input": INPUT,
        "output": OUTPUT,
        "status": STATUS,
        "children": CHILDREN,
        "surroundings": SURROUNDINGS,
        "interpreters": INTERPRETERS,
        "signals": SIGNALS,
    }.items()
    for name, script in scripts.items()
}
