"""What a program of the table is, and what several of them share."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Program:
    """It writes ``result``, which is the same at each run, and one line for each step into ``steps``."""

    name: str
    shows: str
    command: str
    files: dict[str, str] = field(default_factory=dict)
    build: str = ""  # run by sh in the program's folder before it starts
    needs: tuple[str, ...] = ()  # commands and files without which it is not tried
    packages: tuple[str, ...] = ()  # of Debian, beyond a minimal system with gcc, perl and python3
    env: dict[str, str] = field(default_factory=dict)
    site_wide: bool = False  # started as job_submit.lua starts scripts whose user asked for nothing
    by_time: bool = False  # its steps do not say how far it is


PYTHON = """\
import os, sys, time
def step(number, pause=0.25):
    with open("steps", "a") as log: print(number, file=log)
    time.sleep(pause)
def result(value):
    with open("result", "w") as file: print(value, file=file)
"""
C = """\
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define STEPS 32
static void rest(void) { struct timespec t = {0, 250000000}; while (nanosleep(&t, &t)) ; }
static void note(int n) { FILE *f = fopen("steps", "a"); fprintf(f, "%d\\n", n); fclose(f); }
static void result(unsigned long v) { FILE *f = fopen("result", "w"); fprintf(f, "%lu\\n", v); fclose(f); }
/* It names what a node keeps beside files. */
static unsigned long here(void) { struct stat s; stat(".", &s); return s.st_ino & 0x7fffffff; }
static void must(int well, const char *what) { if (!well) { perror(what); exit(3); } }
"""


def python(name: str, shows: str, text: str, *, packages: tuple[str, ...] = (), **env: str) -> Program:
    return Program(
        name, shows, "/usr/bin/python3 program.py", {"program.py": PYTHON + text}, packages=packages, env=env
    )


def c(name: str, shows: str, text: str, *, flags: str = "", needs: tuple[str, ...] = ()) -> Program:
    build = f"gcc -O1 -w program.c -o program {flags}"
    return Program(name, shows, "./program", {"program.c": C + text}, build, needs=("gcc", *needs))


def script(
    name: str, shows: str, text: str, *, by: str = "bash", packages: tuple[str, ...] = (), build: str = "", **env: str
) -> Program:
    needed = (by.split(maxsplit=1)[0],)
    return Program(name, shows, f"{by} program", {"program": text}, build, needed, packages=packages, env=env)
