"""Programs of Python."""

# ruff: noqa: E501 - a script's line is one line

from __future__ import annotations

from tests.checkpointed.program import Program, python

NUMPY_STARTS = """\
import subprocess, time
import numpy as np
m, n = np.arange(40_000.0).reshape(200, 200) % 7, 0
for i in range(28):
    n = (n * 31 + int((m @ m).sum()) + int(subprocess.run(["expr", str(i), "+", "1"], capture_output=True).stdout)) % 99991
    with open("steps", "a") as log: print(i, file=log)
    time.sleep(0.25)
with open("result", "w") as file: print(n, file=file)
"""

PROGRAMS: list[Program] = [
    python(
        "Python",
        "Python with nothing else",
        """\
n = 1
for i in range(32):
    n = n * 6364136223846793005 % 2**64 + i
    step(i)
result(n)
""",
    ),
    python(
        "threads of Python",
        "Four threads with a queue",
        """\
import queue, threading
todo, done = queue.Queue(), []
def work():
    while (n := todo.get()) is not None: done.append(n * n)
team = [threading.Thread(target=work) for _ in range(4)]
for each in team: each.start()
for i in range(32):
    for k in range(10): todo.put(i * 10 + k)
    step(i)
for _ in team: todo.put(None)
for each in team: each.join()
result(sum(done))
""",
    ),
    Program(
        "numpy, 240 MB",
        "Arrays of 240 MB that change at each step",
        "/usr/bin/python3 program.py",
        {
            "program.py": """\
import time
import numpy as np
a = np.arange(30_000_000, dtype=np.int64)
for i in range(24):
    a[i::7] += i
    with open("steps", "a") as log: print(i, file=log)
    time.sleep(0.25)
m = np.arange(250_000.0).reshape(500, 500) % 7
with open("result", "w") as file: print(int(a.sum()), int((m @ m).sum()), file=file)
"""
        },
        packages=("python3-numpy", "libopenblas0-pthread"),
    ),
    Program(
        "numpy and a program, one thread",
        "numpy starts a program at each step, with OPENBLAS_NUM_THREADS=1",
        "bash program",
        {"program": "export OPENBLAS_NUM_THREADS=1\nexec /usr/bin/python3 program.py\n", "program.py": NUMPY_STARTS},
        packages=("python3-numpy", "libopenblas0-pthread"),
    ),
    Program(
        "numpy and a program, all threads",
        "The same without that setting, as a script whose user asked for no checkpointer",
        "./program",
        {"program": "#!/bin/bash\nexec /usr/bin/python3 program.py\n", "program.py": NUMPY_STARTS},
        "chmod +x program",
        packages=("python3-numpy", "libopenblas0-pthread"),
        site_wide=True,
    ),
    python(
        "multiprocessing pool",
        "A pool of three processes with its pipes and semaphores",
        """\
import multiprocessing as m
def square(n):
    time.sleep(0.2); return n * n
if __name__ == "__main__":
    total = 0
    with m.Pool(3) as pool:
        for i in range(28): total += sum(pool.map(square, range(i, i + 3))); step(i, 0.02)
    result(total)
""",
    ),
    python(
        "TCP to itself",
        "A server and its client on the loopback address",
        """\
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
def serve():
    far = server.accept()[0].makefile("rw")
    for line in far: far.write(f"{int(line) * 3 % 1009}\\n"); far.flush()
threading.Thread(target=serve, daemon=True).start()
near, n = socket.create_connection(server.getsockname()).makefile("rw"), 1
for i in range(32):
    near.write(f"{n + i}\\n"); near.flush(); n = int(near.readline()); step(i)
result(n)
""",
    ),
    python(
        "unix sockets",
        "Two processes, joined by a socket with a path and a pair without",
        """\
import socket
server = socket.socket(socket.AF_UNIX); server.bind("socket"); server.listen()
ours, theirs = socket.socketpair()
if os.fork() == 0:
    near = socket.socket(socket.AF_UNIX); near.connect("socket")
    while data := near.recv(100): theirs.sendall(b"%d" % (int(data) * 5 % 1013))
    os._exit(0)
theirs.close()
far, n = server.accept()[0], 1
for i in range(32):
    far.sendall(b"%d" % (n + i)); n = int(ours.recv(100)); step(i)
far.close(); os.wait()
result(n)
""",
    ),
    python(
        "log rotation",
        "A log that is renamed and opened anew while the program runs",
        """\
log, number = open("log", "a"), 0
for i in range(32):
    print("line", i, file=log, flush=True)
    step(i)
    if i % 6 == 5:
        number += 1; os.rename("log", f"log.{number}"); old = log; log = open("log", "a"); old.close()
log.close()
result([sum(1 for _ in open(name)) for name in ("log", *(f"log.{n + 1}" for n in range(number)))])
""",
    ),
    python(
        "SQLite",
        "UPDATE in place, a transaction a step",
        """\
import sqlite3
base = sqlite3.connect("base.db")
base.execute("create table sums (id integer primary key, n integer)")
base.executemany("insert into sums values (?, 1)", [(k,) for k in range(2000)]); base.commit()
for i in range(32):
    base.execute("update sums set n = (n * 7 + ? + id) % 10007", (i,)); base.commit()
    step(i)
result(base.execute("select sum(n), max(n) from sums").fetchone())
""",
    ),
    Program(
        "np.memmap",
        "An array in a file, changed in place",
        "/usr/bin/python3 program.py",
        {
            "program.py": """\
import time
import numpy as np
a = np.memmap("array", dtype=np.int64, mode="w+", shape=1_000_000)
for i in range(32):
    a += i; a[i::5] *= 3; a %= 10007; a.flush()
    with open("steps", "a") as log: print(i, file=log)
    time.sleep(0.25)
with open("result", "w") as file: print(int(a.sum()), file=file)
"""
        },
        packages=("python3-numpy",),
    ),
    python(
        "TemporaryFile",
        "A file without a name, written and read at each step",
        """\
import tempfile
kept, n = tempfile.TemporaryFile("w+"), 0
for i in range(32):
    kept.seek(0, 2); print(n + i, file=kept, flush=True); kept.seek(0)
    n = sum(int(line) for line in kept) % 99991
    step(i)
result(n)
""",
    ),
    python(
        "a file that was deleted",
        "A file that had a name, and is open without it",
        """\
kept, n = open("kept", "w+"), 0
os.unlink("kept")
for i in range(32):
    kept.seek(0, 2); print(n + i, file=kept, flush=True); kept.seek(0)
    n = sum(int(line) for line in kept) % 99991
    step(i)
result(n)
""",
    ),
    python(
        "pty of Python",
        "A program below that believes it has a terminal",
        """\
import pty
pid, terminal = pty.fork()
if pid == 0: os.execlp("sh", "sh", "-c", "stty -echo; echo ready; while read -r x; do echo $((x * 7 % 1009)); done")
near, n = os.fdopen(terminal, "r+b", buffering=0), 1
def line():
    said = b""
    while not said.endswith(b"\\n"): said += near.read(1)
    return said.strip()
line()
for i in range(32):
    near.write(b"%d\\n" % (n + i)); n = int(line()); step(i)
os.kill(pid, 9); os.waitpid(pid, 0)
result(n)
""",
    ),
    python(
        "asyncio",
        "An event loop with tasks and a program below",
        """\
import asyncio
async def main():
    below = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    n = 1
    for i in range(32):
        below.stdin.write(b"%d\\n" % (n + i)); await below.stdin.drain()
        n = int(await below.stdout.readline()) * 3 % 1013
        step(i, 0); await asyncio.sleep(0.25)
    below.stdin.close(); await below.wait()
    result(n)
asyncio.run(main())
""",
    ),
]
