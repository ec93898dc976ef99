"""Programs of other languages."""

# ruff: noqa: E501 - a program's line is one line

from __future__ import annotations

from tests.checkpointed.program import Program, script

FORTRAN = """\
program sums
    integer(8) :: n = 1
    integer :: i
    do i = 1, 32
        n = mod(n * 48271 + i, 2147483647_8)
        open (10, file='steps', position='append'); write (10, '(i0)') i; close (10)
        call execute_command_line('sleep 0.25')
    end do
    open (11, file='result'); write (11, '(i0)') n; close (11)
end program
"""
JAVA = """\
import java.io.*;
import java.util.concurrent.*;
public class Sums {
    public static void main(String[] words) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(2);
        long n = 1;
        for (int i = 0; i < 32; i++) {
            final long from = n; final int at = i;
            n = pool.submit(() -> (from * 48271 + at) % 2147483647L).get();
            try (FileWriter log = new FileWriter("steps", true)) { log.write(i + "\\n"); }
            Thread.sleep(250);
        }
        pool.shutdown();
        try (FileWriter file = new FileWriter("result")) { file.write(n + "\\n"); }
    }
}
"""
NODE = """\
const fs = require("fs"), { execFile } = require("child_process");
let n = 1, i = 0;
function step() {
    execFile("expr", [String(i), "+", "1"], (error, said) => {
        n = (n * 4827 + Number(said)) % 99991;
        fs.appendFileSync("steps", i + "\\n");
        if (++i < 30) setTimeout(step, 250); else fs.writeFileSync("result", n + "\\n");
    });
}
step();
"""
PERL_FORK = """\
use strict; my $sum = 0;
for my $i (1 .. 30) {
    pipe(my $near, my $far);
    if (!fork) { close $near; print $far $i * $i; close $far; exit 0 }
    close $far; $sum = ($sum * 31 + <$near>) % 99991; wait;
    open(my $log, ">>", "steps"); print $log "$i\\n"; close $log;
    select(undef, undef, undef, 0.25);
}
open(my $file, ">", "result"); print $file "$sum\\n";
"""
R = """\
set.seed(7); n <- 0
for (i in 1:28) {
    m <- matrix(runif(40000), 200)
    n <- n + sum(m %*% m > 50)
    cat(i, "\\n", file = "steps", append = TRUE)
    Sys.sleep(0.25)
}
cat(n, "\\n", file = "result")
"""
OCTAVE = """\
n = 0;
for i = 1:28
    m = mod(reshape(1:40000, 200, 200) * i, 7);
    n = mod(n * 31 + sum((m * m)(:)), 99991);
    log = fopen("steps", "a"); fprintf(log, "%d\\n", i); fclose(log);
    pause(0.25);
end
file = fopen("result", "w"); fprintf(file, "%d\\n", n); fclose(file);
"""

PROGRAMS: list[Program] = [
    script(
        "Perl",
        "Perl with nothing else",
        """\
my $n = 1;
for my $i (1 .. 32) {
    $n = ($n * 48271 + $i) % 2147483647;
    open(my $log, ">>", "steps"); print $log "$i\\n"; close $log;
    select(undef, undef, undef, 0.25);
}
open(my $file, ">", "result"); print $file "$n\\n";
""",
        by="perl",
    ),
    script("Perl with fork", "A child and a pipe at each step", PERL_FORK, by="perl"),
    script(
        "Ruby",
        "Ruby with a thread",
        """\
n = 1
32.times do |i|
  n = Thread.new { (n * 48271 + i) % 2147483647 }.value
  File.open("steps", "a") { |log| log.puts i }
  sleep 0.25
end
File.write("result", "#{n}\\n")
""",
        by="ruby",
        packages=("ruby",),
    ),
    script(
        "Lua",
        "Lua, which waits by os.execute",
        """\
local n = 1
for i = 1, 32 do
    n = (n * 48271 + i) % 2147483647
    local log = io.open("steps", "a"); log:write(i, "\\n"); log:close()
    os.execute("sleep 0.25")
end
local file = io.open("result", "w"); file:write(n, "\\n"); file:close()
""",
        by="lua5.4",
        packages=("lua5.4",),
    ),
    script(
        "PHP",
        "PHP on the command line",
        """\
<?php
$n = 1;
for ($i = 0; $i < 32; $i++) {
    $n = ($n * 48271 + $i) % 2147483647;
    file_put_contents("steps", "$i\\n", FILE_APPEND);
    usleep(250000);
}
file_put_contents("result", "$n\\n");
""",
        by="php",
        packages=("php-cli",),
    ),
    Program("Node", "An event loop with threads, which starts a program at each step", "node program.js", {"program.js": NODE}, needs=("node",), packages=("nodejs",)),
    Program("Java", "A virtual machine with two threads of a pool", "java -Xmx128m Sums", {"Sums.java": JAVA}, "javac Sums.java", needs=("javac",), packages=("default-jdk-headless",)),
    Program("R", "Matrices, no program started by it", "Rscript program.R", {"program.R": R}, needs=("Rscript",), packages=("r-base-core",), env={"OPENBLAS_NUM_THREADS": "1"}),
    Program("Octave", "Matrices, no program started by it", "octave-cli -q program.m", {"program.m": OCTAVE}, needs=("octave-cli",), packages=("octave",), env={"OPENBLAS_NUM_THREADS": "1"}),
    Program("Fortran", "gfortran, which waits by another program", "./program", {"program.f90": FORTRAN}, "gfortran -O1 program.f90 -o program", needs=("gfortran",), packages=("gfortran",)),
]  # fmt: skip
