#!/bin/sh
# dmtcp.sh: the driver for DMTCP, which saves ordinary programs without privilege or kernel support.
#
# The verbs are those of clearway.checkpointing. One coordinator per run lives on the node where `start` or `restart`
# ran. Programs save into CLEARWAY_DIR/dmtcp (each rank of srun into a folder of its own, DMTCP overwrites its
# last image there), and what proved complete is moved into the generation, with a manifest of sizes last. Checksums are
# the launcher's: each costs another read of all that was saved.
#
# A program that was saved is held where it was saved, by a plugin of DMTCP's (dmtcp_hold.c), until `go_on` or its end: going on
# it would do again what comes between its image and the requeue, and files that it updates in place would not be those
# of the image.
#
# DMTCP's exit statuses are not believed: a checkpoint request may return before the images are written, and says 0
# then. A checkpoint counts when the restart script (which DMTCP writes last) names all images, none is half written, and
# each process there is has one and is held. A restart counts when it says that
# all of them run, or has written down that they did: a program may end before anything has seen it run.
# CLEARWAY_STATE/restarted tells (ok=yes or ok=no), and a restart that hangs is ended with status 99.
#
# Settings, all optional:
#   CLEARWAY_DMTCP_SIGNAL     the signal DMTCP keeps for itself (60: its own default, USR2, is what submitit listens to)
#   CLEARWAY_DMTCP_LIMIT_S    how long a checkpoint may take (a minute, and a second for each 5 MiB; at most 540)
#   CLEARWAY_DMTCP_RESTART_S  how long a restart may take until all processes run (300)
#   CLEARWAY_DMTCP_GUARDS     skipped: this DMTCP leaves out guard pages, so it works with glibc 2.42 and newer
#   CLEARWAY_DMTCP_MPI        one-node: MPI programs that mpiexec or mpirun starts on one node are not refused, and get the
#                             settings that they need; try: none is refused (docs/explanation/mpi.md says what was seen)
#   CLEARWAY_DMTCP_HOST       the name by which other nodes reach this one (what `hostname` says)

set -u
shell=${CLEARWAY_SHELL:-sh}

signal=${CLEARWAY_DMTCP_SIGNAL:-60}
limit_s=${CLEARWAY_DMTCP_LIMIT_S:-}
restart_s=${CLEARWAY_DMTCP_RESTART_S:-300}
record='' # the coordinator's option that makes it write down what happened when
image_overhead_kib=$((23 * 1024)) # a process's image is its data and this
listener_fd=821                   # where a coordinator looks for a listener that it is to take over
still_s=30                        # after which a save that writes nothing hangs
failed=99                         # DMTCP's own exit status for its failures

yes() {
    printf '%s\n' "$@" ok=yes
    exit 0
}

no() {
    printf 'ok=no\nreason=%s\n' "$*"
    exit 1
}

die() {
    echo "clearway dmtcp: $*" >&2
    exit $failed
}

need() { # need NAME: the folder that this variable names, absolute, for DMTCP writes relative ones into its images
    eval "folder=\${$1:-}"
    case $folder in
        /*) ;;
        *) die "$1 must be an absolute path, not '$folder'" ;;
    esac
}

ours() { # ours FOLDER ...: makes what is missing; on another node a user could have made it before (the name is known)
    (umask 077 && mkdir -p "$@") || die "cannot make $*"
    for folder in "$@"; do
        [ -n "$(find "$folder" -prune -type d -user "$(id -u)" ! -perm -0020 ! -perm -0002)" ] ||
            die "$folder is not a folder that is yours, and that no other user can write to"
    done
}

words() { # what DMTCP has said last of a failure of its own, in one line
    # The development branch says it in the job's errors, in one line as well.
    [ ! -s "$state/words" ] || tr -d '\033' <"$state/words" | sed -n 's/^\[[0-9;]*m//; / Error\] at /{s/.*Message: *//; p; }' |
        sed 's/   .*Terminating\.\.\.$//' | tail -n 1 | cut -c 1-200
}

pause() {
    sleep 0.2 2>/dev/null || sleep 1
}

now() {
    date +%s
}

# ---- what program this is ----------------------------------------------------------------------------------------

after_srun() { # after_srun srun OPTION ... -- PROGRAM ...: how many words come before the program; 0 without a --
    words=0
    for word in "$@"; do
        words=$((words + 1))
        [ "$word" != -- ] || { echo $words; return; }
    done
    echo 0
}

elf_kind() { # dynamic, static, other (not 64 bit little endian) or none, by the program headers in the first 4 KiB
    od -An -v -tu1 -N 4096 -- "$1" 2>/dev/null | awk '
        { for (i = 1; i <= NF; i++) b[n++] = $i }
        function word(at, size,   value) { value = 0; while (size--) value = value * 256 + b[at + size]; return value }
        END {
            if (n < 64 || b[0] != 127 || b[1] != 69 || b[2] != 76 || b[3] != 70) { print "none"; exit }
            if (b[4] != 2 || b[5] != 1) { print "other"; exit }
            start = word(32, 8); size = word(54, 2); count = word(56, 2)
            for (i = 0; i < count && start + (i + 1) * size <= n; i++)
                if (word(start + i * size, 4) == 3) { print "dynamic"; exit } # PT_INTERP: a loader is named
            print "static"
        }'
}

mpi_starter() { # mpi_starter PROGRAM: does it start MPI programs
    case ${1##*/} in mpirun|mpirun.*|mpiexec|mpiexec.*|orterun|prterun|prun) return 0 ;; esac
    return 1
}

mpi_of() { # mpi_of PROGRAM: the MPI library that it is linked with, or nothing
    ldd "$1" 2>/dev/null | sed -n 's/^[[:space:]]*\(libmpi[a-z_]*\.so[^ ]*\|libmpich[a-z]*\.so[^ ]*\) .*/\1/p' | head -n 1
}

takes_mpi() { # are MPI programs not refused
    # What srun starts talks to slurmstepd, which is outside of what is saved. With DMTCP 5.0 (development) ranks that were
    # restarted stand still after their next checkpoint.
    case ${CLEARWAY_DMTCP_MPI:-}:$version in
        try:*) return 0 ;;
        one-node:4.*) [ -z "$under_srun" ] && [ "${SLURM_JOB_NUM_NODES:-1}" = 1 ] ;;
        *) return 1 ;;
    esac
}

mpi_settings() { # leaves out what DMTCP cannot follow, and keeps mpiexec from starting its ranks through srun
    : "${HWLOC_COMPONENTS:=-linuxio}" "${UCX_MEM_EVENTS:=no}" "${UCX_MEM_MMAP_HOOK_MODE:=none}" "${UCX_TLS:=posix,self}"
    : "${HYDRA_LAUNCHER:=fork}" "${OMPI_MCA_btl:=tcp,self}" "${OMPI_MCA_pml:=ob1}" "${OMPI_MCA_plm:=isolated}"
    export HWLOC_COMPONENTS UCX_MEM_EVENTS UCX_MEM_MMAP_HOOK_MODE UCX_TLS HYDRA_LAUNCHER
    export OMPI_MCA_btl OMPI_MCA_pml OMPI_MCA_plm
}

no_mpi='DMTCP 4.2 saves MPI programs, on one node only, with CLEARWAY_DMTCP_MPI=one-node; else let it save itself'

judge() { # why this program cannot be saved; silent when nothing is known against it
    if mpi_starter "$1" && ! takes_mpi; then echo "${1##*/} starts an MPI program; $no_mpi"; return; fi
    case ${1##*/} in
        srun) echo "it is srun, and $no_srun"; return ;;
        apptainer|singularity|docker|podman|enroot|shifter|ch-run)
            echo "${1##*/} starts a container, which DMTCP cannot see into"; return ;;
    esac
    path=$(command -v -- "$1") || { echo "$1: not found"; return; }
    case $path in
        */*) ;;
        *) path=$(which "$1" 2>/dev/null) || { echo "$1 is a word of the shell, not a program"; return; } ;;
    esac
    if [ -u "$path" ] || [ -g "$path" ]; then
        echo "$path runs with the rights of another user or group (setuid or setgid)"; return
    fi
    case $(elf_kind "$path") in
        dynamic)
            library=$(mpi_of "$path")
            [ -z "$library" ] || takes_mpi || echo "$path uses MPI ($library); $no_mpi" ;;
        static) echo "$path is statically linked: DMTCP cannot be loaded into it" ;;
        other) echo "$path is not a 64 bit program" ;;
        none)
            if [ "$(head -c 2 "$path" 2>/dev/null)" != '#!' ]; then
                echo "$path is neither an ELF program nor a script with a #! line"; return
            fi
            interpreter=$(head -n 1 "$path" | sed 's/^#![[:space:]]*//')
            # shellcheck disable=SC2086 - its words
            set -- $interpreter
            case ${1:-} in
                */env) [ $# -lt 2 ] || [ "${2#-}" != "$2" ] || judge "$2" ;;
                /*) [ "$1" = "$path" ] || judge "$1" ;;
                *) echo "$path names no interpreter by its full path" ;;
            esac ;;
    esac
}

unwritable_guards() { # since glibc 2.42 and Linux 6.13 a thread's guard page cannot be read, which DMTCP does not expect
    printf '%s %s\n' "$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/.* //')" "$(uname -r)" |
        awk '{ split($1, libc, "."); split($2, linux, "[.-]") }
            END { exit !(libc[1] * 1000 + libc[2] >= 2042 && linux[1] * 1000 + linux[2] >= 6013) }'
}

# ---- what it is seen to run: files of the launcher's (clearway-commands), or nothing -------------------------------

no_srun='DMTCP cannot save its connections to Slurm: write exec clearway-run --checkpointer dmtcp -- srun [options] --'
no_srun="$no_srun PROGRAM, or let the program save itself"

named() { # named WORD ...: the first of these words in what the program is seen to run
    for name; do
        if grep -qwsF -e "$name" "$text"; then echo "$name"; return; fi
    done
    return 1
}

judge_all() { # why something that the program is seen to run cannot be saved with it
    ! named srun >/dev/null || { echo "it runs srun, and $no_srun"; return; }
    if name=$(named mpirun mpiexec orterun prterun prun ibrun aprun) && ! takes_mpi; then
        echo "it runs $name, which starts an MPI program; $no_mpi"; return
    fi
    ! name=$(named unshare nsenter bwrap) || { echo "it runs $name, which makes namespaces, and DMTCP cannot"; return; }
    ! grep -qE '(^|[^A-Za-z0-9_])env +(-i|-|--ignore-environment)( |$)' "$text" ||
        { echo "it runs a program with an empty environment (env -i), which ends at once under DMTCP"; return; }
    if [ -n "${LD_PRELOAD:-}" ] || named LD_PRELOAD >/dev/null; then
        echo "it has libraries loaded before all others (LD_PRELOAD), as DMTCP itself needs"; return
    fi
    ! grep -qE '(^|[^A-Za-z0-9_.-])parallel( |$)' "$text" ||
        { echo "it runs parallel, which under DMTCP ends before its tasks do"; return; }
    ! name=$(named inotifywait inotifywatch inotify pyinotify watchdog) ||
        { echo "it names $name, and DMTCP lets no program watch files (inotify)"; return; }
    ! name=$(named apptainer singularity docker podman enroot shifter ch-run) ||
        { echo "it runs $name, which starts a container, and DMTCP cannot see into it"; return; }
    [ -s "$known/programs" ] || return
    while IFS= read -r path; do
        case $(elf_kind "$path") in
            static) echo "it runs $path, which is statically linked: DMTCP cannot be loaded into it"; return ;;
            other) echo "it runs $path, which is not a 64 bit program"; return ;;
        esac
        [ -z "$(mpi_of "$path")" ] || takes_mpi || { echo "it runs $path, which uses MPI; $no_mpi"; return; }
        case $path in
            /bin/*|/usr/bin/*) ;; # tail can, and does without it
            *) ! grep -qF inotify_add_watch "$path" ||
                { echo "it runs $path, which watches files (inotify), and DMTCP lets none"; return; } ;;
        esac
    done <"$known/programs"
}

# OpenBLAS ends its threads before each fork and waits for them, and DMTCP lets no thread end during a fork. So a program
# with such threads stands still for good when it starts another one, whether it is ever saved or not.

blas_threads() { # may OpenBLAS have threads: not on one processor, nor where each word on its variables says 1
    [ "$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc 2>/dev/null)" != 1 ] || return 1
    for name in OPENBLAS_NUM_THREADS GOTO_NUM_THREADS OMP_NUM_THREADS; do # it takes the first that is set
        if grep -qws $name "$text"; then
            grep -w $name "$text" | grep -qvE "^export( [A-Za-z_]+=[^ ;&|]*)* $name=1( [A-Za-z_]+=[^ ;&|]*)* *(#.*)?\$"
            return
        fi
        case $(printenv $name) in '') ;; 1) return 1 ;; *) return 0 ;; esac
    done
}

python='python[0-9.]*'

pythons_in() { # those that a text on standard input names
    tr -cs 'A-Za-z0-9_./+-' '\n' | grep -E "(^|/)$python\$" | sort -u
}

harmless='__future__ argparse array bisect bz2 collections contextlib copy csv dataclasses datetime decimal enum fractions
    functools glob gzip hashlib heapq io itertools json logging lzma math mmap numbers numpy operator os pathlib pickle
    random re shutil signal socket sqlite3 statistics string struct sys tempfile textwrap threading time traceback types
    typing warnings weakref zipfile zlib' # modules that start no program; each other one may

python_forks() { # may a Python start a program: it does not where all that it runs was read, and is harmless
    [ ! -s "$known/missing" ] || return 0
    calls='fork|forkpty|system|popen|Popen|spawn[a-z]*|posix_spawnp?|testing|f2py|distutils|__import__'
    ! grep -qE "(^|[^A-Za-z0-9_/-])($calls)([^A-Za-z0-9_/-]|\$)" "$text" || return 0
    ! grep -qE '(^|[^A-Za-z0-9_.])(exec|eval) ?[(]|from +[.]' "$text" || return 0
    # Called with a file that was read, with -c, or with what follows in the text; not with -m, nor what a variable names.
    quote="[\"']?"
    seen="$python$quote( +-[uBOsEI]+)* +($quote-c|-? *<<|$quote[A-Za-z0-9_./-]+[.]py)"
    [ -z "$(grep -v '^#!' "$text" | sed -E "s#$seen##g" | pythons_in)" ] || return 0
    for module in $(tr ";\"'" '\n\n\n' <"$text" | sed -nE 's/^[[:space:]>.]*(import|from)[[:space:]]+//p' |
        sed -E 's/ +import( .*)?$//; s/ +as +[A-Za-z0-9_]+//g; s/#.*//' | tr ', \t' '\n\n\n' | sed 's/[.(].*//' | sort -u); do
        case " $(echo "$harmless" | tr -s '\n ' '  ') " in *" $module "*) ;; *) return 0 ;; esac
    done
    return 1
}

hangs() { # hangs PROGRAM: what of it may stand still under DMTCP, although nothing is saved; silent when nothing may
    blas_threads || return
    if [ ! -s "$text" ]; then # all that is known is the program
        path=$(command -v -- "$1")
        case ${1##*/} in
            python*) ;;
            *) [ "$(head -c 2 "$path" 2>/dev/null)" != '#!' ] || path=$(head -n 1 "$path" | grep -o "$python") ;;
        esac
        case ${path##*/} in
            python*) ! has_numpy "$path" || echo "$1" ;;
            *) ! blas_in "$path" || echo "$1" ;;
        esac
        return
    fi
    while IFS= read -r path; do
        ! blas_in "$path" || { echo "$path"; return; }
    done <"$known/programs"
    ! named Rscript julia octave ipython jupyter || return
    ! grep -qE '(^|[^A-Za-z0-9_.])R +(CMD|-[-a-z]|<)' "$text" || { echo R; return; }
    pythons=$(pythons_in <"$text")
    ! grep -qE '[.]py([^A-Za-z0-9_]|$)' "$text" || : "${pythons:=a Python}" # a variable's
    printf '%s\n' "$pythons" | while IFS= read -r path; do
        if [ -n "$path" ] && has_numpy "$path" && python_forks; then echo "$path"; return; fi
    done
}

blas_in() { # blas_in PROGRAM: is it linked with OpenBLAS
    ldd "$1" 2>/dev/null | grep -q libopenblas
}

has_numpy() { # has_numpy PYTHON: can it load numpy, as far as that can be known before
    ! named module ml conda mamba micromamba activate spack PATH PYTHONPATH PYTHONHOME >/dev/null || return 0
    command -v -- "$1" >/dev/null || return 0
    timeout 10 "$1" -c '
import importlib.util, sys
sys.exit(importlib.util.find_spec("numpy") is None)' </dev/null >/dev/null 2>&1
}

find_version() {
    version=$(timeout 10 dmtcp_launch --version 2>/dev/null | sed -n '1s/.*) *//p')
}

hold_library() { # hold_library FILE: what holds a program; a site may have built it as dmtcp_hold.so, beside this driver
    [ ! -s "$1" ] || return 0
    built=${driver%/*}/dmtcp_hold.so
    [ ! -s "$built" ] || { cp "$built" "$1.$$" && mv "$1.$$" "$1"; return; }
    headers=$(dirname "$(dirname "$(readlink -f "$(command -v dmtcp_launch)")")")/include
    "$(command -v cc || command -v gcc)" -shared -fPIC -O2 -I "$headers" -DDMTCP_PACKAGE_VERSION="\"$version\"" \
        -o "$1.$$" "${driver%.sh}_hold.c" >/dev/null 2>&1 && mv "$1.$$" "$1" # whole: tasks of srun look at the same time
}

probe() {
    find_version
    [ -n "$version" ] || no "dmtcp_launch is not on PATH, or does not say its version"
    for tool in dmtcp_coordinator dmtcp_command dmtcp_restart; do
        command -v $tool >/dev/null || no "$tool is not on PATH"
    done
    [ "${CLEARWAY_DMTCP_GUARDS:-}" = skipped ] || ! unwritable_guards ||
        no "DMTCP ends programs when it saves them here: it cannot write the guard pages of glibc 2.42 and newer"
    most=$(ulimit -n)
    [ "$most" = unlimited ] || [ "$most" -ge 1024 ] || no "DMTCP needs descriptors up to 1023, and ulimit -n is $most"
    [ "${1:-}" != -- ] || shift
    under_srun=''
    if [ "${1:-}" = srun ]; then
        under_srun=yes
        before=$(after_srun "$@")
        [ "$before" -gt 0 ] && [ $# -gt "$before" ] || no "write srun [options] -- PROGRAM: the -- is missing"
        shift "$before"
    fi
    if [ $# -gt 0 ]; then
        known=${CLEARWAY_STATE:-/nonexistent} && text=$known/text
        reason=$(judge "$1")
        [ -n "$reason" ] || reason=$(judge_all)
        [ -z "$reason" ] || no "$reason"
        what=$(hangs "$1")
        what=${what:+"$what may use OpenBLAS (numpy), and then it hangs under DMTCP when it starts another program"}
        # A job whose user said nothing is not put at a risk that it does not have without checkpoints.
        [ -z "$what" ] || [ ! -e "$known/site-wide" ] ||
            no "$what: write export OPENBLAS_NUM_THREADS=1 in it, or call clearway-run in it if it starts none"
        [ -z "$what" ] || echo "warning=$what, as long as OPENBLAS_NUM_THREADS is not 1"
    fi
    [ ! -d "${CLEARWAY_STATE:-}" ] || hold_library "$CLEARWAY_STATE/dmtcp_hold.so" ||
        no "dmtcp_hold.c cannot be compiled here, and there is no dmtcp_hold.so in ${driver%/*}"
    stray=$(strays)
    [ -z "$stray" ] || echo "warning=its descriptors ${stray}are closed when it starts: left open they could hang a restart"
    yes looks=yes "version=$version"
}

# ---- the coordinator ---------------------------------------------------------------------------------------------

enter_state() {
    need CLEARWAY_STATE; state=$folder/dmtcp
    need CLEARWAY_DIR; work=$folder/dmtcp
}

ask() { # ask WORD ...: dmtcp_command to this run's coordinator, within 20 s
    [ -s "$state/port" ] || return 1
    timeout "${ask_s:-20}" dmtcp_command -h 127.0.0.1 -p "${port:-$(cat "$state/port")}" "$@" 2>/dev/null
}

peers() { # how many processes there are, when all of them run; nothing when not, or when there is no answer
    ask -s | sed -n 's/^ *NUM_PEERS=//p; s/^ *RUNNING=//p' | tr '\n' ' ' | sed -n 's/^\([0-9][0-9]*\) yes $/\1/p'
}

quiet_coordinator() { # quiet_coordinator OPTION ...: in a session of its own; its exit status goes to $state/coordinator
    # In a folder of its own: --write-kv-data leaves its record of events where it was started.
    set -- dmtcp_coordinator -q --coord-port 0 --port-file "$state/port" \
        --ckptdir "$work" --tmpdir "$state/tmp" "$@"
    # DMTCP always listens on every address, except on a listener that it is handed. Perl and Python can make one.
    if [ "$wide" = no ] && command -v perl >/dev/null; then
        set -- perl -MSocket -MPOSIX=dup2 -e '
            my ($fd, $s) = shift;
            socket($s, PF_INET, SOCK_STREAM, 0) && bind($s, sockaddr_in(0, INADDR_LOOPBACK)) && listen($s, 128)
                && dup2(fileno($s), $fd) or die "no listener on loopback: $!\n";
            exec @ARGV or die "$ARGV[0]: $!\n"' $listener_fd "$@"
    elif [ "$wide" = no ] && command -v python3 >/dev/null; then
        set -- python3 -c 'if True:
            import os, socket, sys
            s = socket.create_server(("127.0.0.1", 0), backlog=128)
            os.dup2(s.fileno(), int(sys.argv[1]))
            os.execvp(sys.argv[2], sys.argv[2:])' $listener_fd "$@"
    fi
    # Not a child of the program, which would not expect it.
    # shellcheck disable=SC2016 - expanded by the inner shell
    (cd "$state/events" && setsid sh -c '"$@"; echo $? >"$0"' "$state/coordinator" "$@" </dev/null >/dev/null 2>&1 &)
}

coordinate() { # coordinate PROGRAM ...: starts this run's coordinator and tells the program's DMTCP where it is
    wide=no
    [ "$1" != srun ] || wide=yes
    rm -rf "$state/events" # an earlier coordinator that still ends writes nothing into the new one
    ours "$CLEARWAY_STATE" "$state" "$state/tmp" "$state/events" "$work"
    find "$work" -name hold -exec rm -f {} + # of a run that ended while it was held
    rm -f "$state/port" "$state/coordinator" "$state/saving" "$state/restoring" "$state/words"
    if [ $wide = no ]; then
        quiet_coordinator --exit-on-last ${record:+"$record"}
        DMTCP_COORD_HOST=127.0.0.1
    else # not --exit-on-last: the first rank may have ended before the last one comes
        quiet_coordinator --stale-timeout 3600 ${record:+"$record"}
        DMTCP_COORD_HOST=${CLEARWAY_DMTCP_HOST:-$(hostname)}
    fi
    until=$(($(now) + 20))
    while [ ! -s "$state/port" ]; do
        [ "$(now)" -lt $until ] || die "dmtcp_coordinator does not start"
        pause
    done
    DMTCP_COORD_PORT=$(cat "$state/port")
    export DMTCP_COORD_HOST DMTCP_COORD_PORT
}

strays() { # descriptors above 9 that were left open
    ls /proc/self/fd | awk '$1 > 9' | tr '\n' ' '
}

clean_exec() { # exec without them: they can hang a restart
    stray=$(strays)
    [ -n "$stray" ] || exec "$@"
    # Only bash can close these: in other shells a redirection takes one digit.
    # shellcheck disable=SC2016 - expanded by bash
    exec bash -p -c 'for fd in $1; do eval "exec $fd>&-"; done; shift; exec "$@"' bash "$stray" "$@"
}

take_library() { # takes the library to where each run of the job finds it; sets library, which is empty where it cannot be
    library=$work/dmtcp_hold.so
    # The dynamic loader's lists of libraries have blanks and colons between them.
    case $library in *[[:space:]:]*) library=$CLEARWAY_STATE/dmtcp_hold.so ;; esac
    case $library in *[[:space:]:]*) library='' ;; esac
    [ -s "$CLEARWAY_STATE/dmtcp_hold.so" ] || { find_version; hold_library "$CLEARWAY_STATE/dmtcp_hold.so"; } || library=''
    [ -z "$library" ] || [ "$library" -ef "$CLEARWAY_STATE/dmtcp_hold.so" ] ||
        { cp "$CLEARWAY_STATE/dmtcp_hold.so" "$library.$$" && mv "$library.$$" "$library"; } || library=''
}

launch() { # launch FOLDER PROGRAM ...: becomes the program, which will save itself into the folder
    images=$1
    shift
    take_library
    ours "$CLEARWAY_STATE" "$state" "$state/tmp" "$images"
    if [ -f "/proc/$$/fd/0" ]; then
        # What a program has as its descriptor 0 when DMTCP begins is not restored: it would read the file from its beginning
        # again. So it is opened, under DMTCP, by a shell that becomes the program, and stands where it stood.
        how='<'
        ! grep -q '^flags:.*2$' /proc/$$/fdinfo/0 || how='<>' # it may write there, too
        # shellcheck disable=SC2016,SC2086 - expanded by the inner shell; it may be two words
        set -- $shell -c 'exec '$how'"$1" || exit; [ "$2" = 0 ] || dd bs=1 skip="$2" count=0 >/dev/null 2>&1; shift 2; exec "$@"' \
            sh "$(readlink "/proc/$$/fd/0")" "$(sed -n 's/^pos:[[:space:]]*//p' /proc/$$/fdinfo/0)" "$@"
    fi
    export JALIB_STDERR_PATH="$state/words" # not backtraces in colours among the job's errors
    clean_exec dmtcp_launch -q -q -j --no-gzip --ckptdir "$images" --tmpdir "$state/tmp" --ckpt-signal "$signal" \
        ${library:+--with-plugin "$library"} "$@"
}

revive() { # revive FROM FOLDER: becomes what was saved in FROM, to save itself into the folder from now on
    set -- "$2" "$1"/ckpt_*.dmtcp
    images=$1
    shift
    take_library # programs that it starts load it
    ours "$CLEARWAY_STATE" "$state" "$state/tmp" "$images"
    export JALIB_STDERR_PATH="$state/words"
    clean_exec dmtcp_restart -q -q -j --ckptdir "$images" --tmpdir "$state/tmp" "$@"
}

start() {
    enter_state
    shift # the --
    [ "${CLEARWAY_DMTCP_MPI:-}" != one-node ] || mpi_settings
    coordinate "$@"
    if [ "$1" = srun ]; then
        ranks task "$@"
    fi
    launch "$work/images" "$@"
}

ranks() { # ranks VERB srun OPTION ... -- PROGRAM ...: becomes srun with this driver between it and the program
    verb=$1
    shift
    count=$(after_srun "$@")
    [ "$count" -gt 0 ] || die "write srun [options] -- PROGRAM: the -- is missing"
    position=0
    for word in "$@"; do
        position=$((position + 1))
        shift
        set -- "$@" "$word"
        [ $position -ne "$count" ] || set -- "$@" $shell "$driver" "$verb"
    done
    export CLEARWAY_DIR CLEARWAY_STATE CLEARWAY_DMTCP_FROM="${CLEARWAY_DMTCP_FROM:-}"
    exec "$@"
}

task() { # one task of srun: its folder bears its rank, so that a restart finds it on whichever node
    enter_state
    launch "$work/images/rank-${SLURM_PROCID:?}" "$@"
}

task_again() {
    enter_state
    revive "$CLEARWAY_DMTCP_FROM/rank-${SLURM_PROCID:?}" "$work/images/rank-$SLURM_PROCID"
}

# ---- saving ------------------------------------------------------------------------------------------------------

images_in() {
    find "$1" -name 'ckpt_*.dmtcp' -type f
}

needed_kib() { # what an image of each process will take; those on other nodes count like the mean of those here
    listed | real_pids | while read -r pid; do
        awk -v pid="$pid" '/^(RssAnon|RssShmem|VmSwap):/ { sum += $2 } END { if (NR) print sum }' \
            "/proc/$pid/status" 2>/dev/null || echo elsewhere
    done | awk -v extra=$image_overhead_kib '
        $1 == "elsewhere" { others++; next }
        { here++; sum += $1 }
        END { if (here) sum += others * sum / here; printf "%.0f\n", sum + (here + others) * extra }'
}

listed() { # the coordinator's list of processes, a line each
    ask -l | grep '^[0-9][0-9]*, '
}

real_pids() { # of such lines
    sed -n 's/^[0-9][0-9]*, .*\[[0-9]*:\([0-9]*\)\]@.*/\1/p'
}

whole_set() { # sets saved: the images, where there are just those that the restart script names, and none is half written
    saved=$(images_in "$work" | wc -l)
    [ "$saved" -gt 0 ] && [ -z "$(half_written)" ] &&
        [ "$saved" -eq "$(grep -o 'ckpt_[^ "]*\.dmtcp' "$work/dmtcp_restart_script.sh" 2>/dev/null | sort -u | wc -l)" ]
}

await_images() { # until the checkpoint is complete; sets reason when it will not be
    silent=0 idle=0 grown='' since=$(now)
    while [ "$(now)" -lt "$until" ]; do
        ! whole_set || return 0
        # While it saves the coordinator answers, with RUNNING=no.
        case $(ask -s | tr -d '\n') in
            *NUM_PEERS=0*) reason="the program has ended"; return 1 ;;
            *NUM_PEERS=*RUNNING=yes*)
                silent=0
                [ -n "$(find "$work" -name 'ckpt_*.dmtcp*' | head -n 1)" ] || idle=$((idle + 1)) ;;
            *NUM_PEERS=*) silent=0 idle=0 ;;
            *) silent=$((silent + 1)) ;;
        esac
        [ $silent -lt 3 ] || { reason="DMTCP's coordinator is gone: this run cannot be saved any more"; return 1; }
        [ $idle -lt 100 ] || { reason="DMTCP has not begun to save it"; return 1; }
        if [ -z "$tasks" ]; then # other nodes' files are seen late
            size=$(find "$work" -name 'ckpt_*' -type f -printf '%s %p\n' 2>/dev/null | cksum)
            [ "$size" = "${grown:-}" ] || grown=$size since=$(now)
            [ $(($(now) - since)) -lt $still_s ] || { reason="DMTCP stands still in the middle of its save"; return 1; }
        fi
        pause
    done
    reason="not complete within $limit_s s: is the file system slow (CLEARWAY_DMTCP_LIMIT_S allows more)?"
    return 1
}

unsound() { # unsound PID: why what is complete is not the whole program, as it stands; silent when it is
    list=$(listed)
    count=$(printf '%s\n' "$list" | grep -c .)
    ! printf '%s\n' "$list" | grep -q 'RUNNING' || { echo "not all of its processes could be held"; return; }
    [ "$count" -eq "$saved" ] ||
        { echo "DMTCP saved only $saved of its $count processes; if it happens again, let the program save itself"; return; }
    [ -z "$tasks" ] && [ "$1" -gt 1 ] || return # they may be on other nodes; 1 is the node's
    known=" $(printf '%s\n' "$list" | real_pids | tr '\n' ' ') "
    for each in $(everything "$1" "$list"); do
        { read -r stat <"/proc/$each/stat"; } 2>/dev/null || continue
        case ${stat##*) }:$known in
            [ZX]*) echo "process $each has ended, and its parent has not asked how, which DMTCP would lose"; return ;;
            *" $each "*) ;;
            *) echo "it runs $(cat "/proc/$each/comm") (process $each), which DMTCP is not loaded into"; return ;;
        esac
    done
}

everything() { # everything PID LIST: the program's processes, as the kernel has them
    for each in "$1" $(printf '%s\n' "$2" | real_pids); do below "$each"; done | sort -u
}

below() { # a process and all that descend from it
    echo "$1"
    for kid in $(cat "/proc/$1/task/"*/children 2>/dev/null); do below "$kid"; done
}

joined() { # joined PID: what joins the program to something that is not saved with it; silent when nothing is known
    list=$(listed)
    if printf '%s\n' "$list" | grep -q '^[0-9]*, srun\['; then echo "srun runs in it, and $no_srun"; return; fi
    [ -z "$tasks" ] && [ "$1" -gt 1 ] || return # 1 is the node's
    pids=$(everything "$1" "$list")
    for each in $pids; do
        case $(cat "/proc/$each/comm" 2>/dev/null):$(readlink "/proc/$each/exe" 2>/dev/null) in
            srun:*|*/srun) echo "srun runs in it, and $no_srun"; return ;;
        esac
    done
    far=$(outside "$(cat "$state/port")" $pids)
    [ -z "$far" ] || { echo "it has a TCP connection to $far, outside of itself"; return; }
    held=$(beyond $pids)
    [ -z "$held" ] || echo "it uses $held, which DMTCP does not bring back"
}

beyond() { # beyond PID ...: what of these DMTCP does not bring back (docs/explanation/fifty-programs.md); or nothing
    own=$(readlink /proc/self/ns/user /proc/self/ns/mnt /proc/self/ns/pid)
    for each; do
        find "/proc/$each/fd" -type l ! -name '[012]' ! -name '8[23]?' -printf '%l\n' # the job's, and DMTCP's own
        sed -n 's/^[^ ]* rw-s .* \([0-9]*\) *\/dev\/zero (deleted)$/shared \1/p; s/^.*\(\/memfd:\)/\1/p' "/proc/$each/maps" | sort -u
        spaces=$(readlink "/proc/$each/ns/user" "/proc/$each/ns/mnt" "/proc/$each/ns/pid") # fails where it has ended
        [ $? -ne 0 ] || [ "$spaces" = "$own" ] || echo namespace
    done 2>/dev/null | awk '
        /^anon_inode:\[timerfd\]/ { print "a timer with a descriptor (timerfd)"; exit }
        /^anon_inode:\[io_uring\]/ { print "io_uring"; exit }
        /^anon_inode:\[?inotify/ { print "inotify"; exit }
        /^anon_inode:\[userfaultfd\]/ { print "userfaultfd"; exit }
        /^\/memfd:/ { print "memory with a descriptor (memfd)"; exit }
        /^\/dev\/(ptmx|pts\/ptmx)$/ { print "a terminal of its own"; exit }
        /^\/dev\/(nvidia|dri|kfd|infiniband|fuse|kvm)/ { print "the device " $0; exit }
        /\/#[0-9]+ \(deleted\)$/ { print "a file that never had a name"; exit }
        $1 == "shared" && seen[$2]++ { print "memory without a name that several processes share"; exit }
        /^namespace$/ { print "a namespace of its own"; exit }'
}

deaf() { # deaf PID: is there something now that a checkpoint would be refused for
    enter_state
    [ -n "$(peers)" ] || no "not all of it runs"
    [ "$(cat "/proc/$1/comm" 2>/dev/null)" = srun ] && tasks=yes || tasks=''
    reason=$(joined "$1")
    [ -n "$reason" ] || reason=$(restless)
    [ ! -e "$state/nearly" ] || echo 'doubt=it starts about as many programs a second as DMTCP can bear'
    [ -n "$reason" ] || no "nothing is known"
    yes "reason=$reason"
}

# A process that begins in the middle of a save can hang it, and with it the program.
restless() { # does it start programs all the time; silent when not
    [ -z "$tasks" ] || return
    started=$(starts)
    : >"$state/looked"
    rm -f "$state/nearly" "$state/restless"
    [ "$started" -lt $most_started ] || : >"$state/restless"
    [ "$started" -lt $((most_started / 2)) ] || : >"$state/nearly" # it may be fewer, or more, at another time
    [ ! -e "$state/restless" ] || echo "$is_restless"
}

# The coordinator numbers processes as they come: between two that were both seen to come so many have come. A number that
# was not seen to come tells nothing, for many may have come and gone before that.
starts() { # processes that begin in two seconds, on average
    read -r at _ </proc/uptime
    time=0 until_cs=$((${at%.*}${at#*.} + 200))
    while [ ${at%.*}${at#*.} -lt $until_cs ]; do
        listed | sed "s/^/$time $at /"
        sleep 0.1
        time=$((time + 1))
        read -r at _ </proc/uptime
    done | tr -d , | awk '
        first == "" { first = $1 }
        $1 == first { known[$3]; next }
        !($3 in known) && !($3 in came) { came[$3]; if (!seen++) { low = high = $3; since = $2 } if ($3 < low) low = $3 }
        !($3 in known) && $3 + 0 > high { high = $3; last = $2 }
        END { print int(last > since ? (high - low) * 2 / (last - since < 2 ? 2 : last - since) : 0) }'
}

is_restless='it starts programs many times a second, and DMTCP may hang when it saves such a program'
most_started=20

# shellcheck disable=SC2016 # awk's own
outside() { # outside PORT PID ...: the other end of a TCP connection of these, held by none of them; PORT is DMTCP's own
    skip=$1 some=$2
    shift
    held=$(for each in "$@"; do ls -l "/proc/$each/fd" 2>/dev/null; done |
        sed -n 's/.*socket:\[\([0-9]*\)\]$/\1/p' | tr '\n' ' ')
    cat "/proc/$some/net/tcp" "/proc/$some/net/tcp6" 2>/dev/null | awk -v held="$held" -v skip="$skip" '
        function number(hex,   at, value) {
            for (at = 1; at <= length(hex); at++) value = value * 16 + index("0123456789ABCDEF", substr(hex, at, 1)) - 1
            return value
        }
        function port(end,   part) { split(end, part, ":"); return number(part[2]) }
        BEGIN { count = split(held, list, " "); for (i = 1; i <= count; i++) ours[list[i]] = 1 }
        $4 == "01" && $10 in ours { peer[$2] = $3; pair[$2 " " $3] = 1 }
        END {
            for (end in peer)
                if (!((peer[end] " " end) in pair) && port(peer[end]) != skip) { print "port " port(peer[end]); exit }
        }'
}

half_written() {
    find "$work" -name '*.temp'
}

durable() { # every file and folder below is on the disk, not in memory
    find "$1" -exec sync {} + 2>/dev/null || sync
}

hold() { # from its next image on
    find "$work/images" -type d ! -name 'ckpt_*' ! -path '*/ckpt_*_files*' -exec touch {}/hold \;
}

ended() { # ended PID: it may still be a zombie
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
    case ${stat##*) } in Z*|X*) ;; *) return 1 ;; esac
}

go_on() {
    enter_state
    find "$work/images" -name hold -exec rm -f {} +
    yes
}

checkpoint() { # checkpoint GENERATION PID: it is held then
    enter_state
    generation=$1
    [ "$(cat "/proc/$2/comm" 2>/dev/null)" = srun ] && tasks=yes || tasks='' # start's own, above what is saved
    runs=$(now)
    until count=$(peers) && [ -n "$count" ] || [ $(($(now) - runs)) -ge 5 ]; do pause; done # one may be just beginning
    [ -n "$count" ] || no "DMTCP's coordinator does not answer, or not all processes run: it can be saved at a later request"
    [ "$count" -gt 0 ] || no "the program has ended"
    reason=$(joined "$2")
    [ -e "$state/looked" ] || restless >/dev/null
    [ -n "$reason" ] || [ ! -e "$state/restless" ] || reason=$is_restless
    [ -z "$reason" ] || no "$reason"
    # DMTCP does not survive a full disk, nor does the program. What an earlier attempt left is in the way.
    find "$work" \( -name 'ckpt_*' -o -name 'dmtcp_restart_script*' \) -prune -exec rm -rf {} +
    wanted=$(($(needed_kib) * 6 / 5))
    free=$(df -Pk "$work" | awk 'NR == 2 { print $4 }')
    [ "${free:-0}" -ge $wanted ] ||
        no "$((wanted / 1024)) MiB are wanted for images in $work, only $((${free:-0} / 1024)) MiB are free"
    # As long as such a file system would take that one would still use: a save that hangs is to cost little.
    : "${limit_s:=$((wanted / 1024 / 5 + 60 < 540 ? wanted / 1024 / 5 + 60 : 540))}"
    until=$(($(now) + limit_s))
    tries=0
    while :; do
        # What an earlier attempt left: with it away, whatever is there afterwards is newer than this request.
        find "$work" \( -name 'ckpt_*' -o -name 'dmtcp_restart_script*' \) -prune -exec rm -rf {} +
        hold
        : >"$state/saving" # stays when the program does not come out of it whole
        ask_s=$limit_s ask -bc >/dev/null # whatever it answers
        await_images || { ! ended "$2" || reason="the program has ended"; break; }
        reason=$(unsound "$2")
        rm -f "$state/saving"
        [ -n "$reason" ] || break
        tries=$((tries + 1))
        [ $tries -lt 5 ] || break
        (go_on) >/dev/null # a program that starts others may be met at a better moment
        runs=$(now)
        until [ -n "$(peers)" ] || [ $(($(now) - runs)) -ge 10 ]; do pause; done
    done
    if [ -n "$reason" ]; then
        (go_on) >/dev/null
        runs=$(now)
        until [ -n "$(peers)" ] || ended "$2" || [ $(($(now) - runs)) -ge 10 ]; do pause; done
        if [ -n "$(peers)" ]; then rm -f "$state/saving"; elif ! ended "$2"; then echo stuck=yes; fi
        said=$(words)
        no "$reason${said:+; DMTCP said: $said}"
    fi
    rm -f "$state/saving" "$state"/events/*.json # each checkpoint adds a record
    (cd "$work/images" && find . -name 'ckpt_*' -prune -print) | move_to "$generation" &&
        mv "$work"/dmtcp_restart_script* "$generation"/ || no "cannot move the images to $generation"
    durable "$generation"
    sizes "$generation" >"$work/manifest" && sync "$work/manifest" && mv "$work/manifest" "$generation/manifest.dmtcp" ||
        no "cannot write the manifest in $generation"
    durable "$generation"
    yes held=yes "size_mib=$(du -sm "$generation" | cut -f 1)"
}

move_to() { # move_to GENERATION: the images named on standard input, with their folders; what holds the program stays
    while IFS= read -r each; do
        mkdir -p "$1/${each%/*}" && mv "$work/images/$each" "$1/$each" || return 1
    done
}

sizes() { # size and name of every file, in the folder's own terms; manifests (the launcher adds one) aside
    (cd "$1" && find . -type f ! -name 'manifest*' -exec stat -c '%s %n' {} + | LC_ALL=C sort -k 2)
}

verify() {
    generation=$1
    [ -s "$generation/manifest.dmtcp" ] || no "$generation has no manifest: it was never completed"
    [ -n "$(images_in "$generation")" ] || no "$generation has no images"
    [ -z "$(find "$generation" -name '*.temp')" ] || no "$generation holds half written images"
    differs=$(sizes "$generation" | diff "$generation/manifest.dmtcp" - | sed -n 's/^[<>] [0-9]* //p' | head -n 1)
    [ -z "$differs" ] || no "$generation/${differs#./} is not as it was saved"
    yes
}

ran() { # did all processes of a restart run: yes or no by the coordinator's record; nothing where there is none
    set -- "$state"/events/*.json
    [ -e "$1" ] || return 0
    if grep -qs Restart-Complete "$@"; then echo yes; else echo no; fi
}

coordinator_ended() { # coordinator_ended SECONDS: by then
    until=$(($(now) + $1))
    while [ ! -s "$state/coordinator" ]; do
        [ "$(now)" -lt $until ] || return 1
        pause
    done
}

broken() { # broken STATUS: was it DMTCP that ended the program, with its own status for its failures
    enter_state
    if [ -e "$state/restoring" ]; then # nothing has seen it run; what a coordinator has written when it ends is all
        ask -q >/dev/null
        coordinator_ended 5
        case $(ran) in
            yes) told ok=yes; rm -f "$state/restoring" ;;
            no) said=$(words); yes "reason=status $1 before DMTCP had restored all of it${said:+; DMTCP said: $said}" ;;
        esac
    fi
    # A signal, too: DMTCP saves from within the program, so who ends the one (the kernel for want of memory) ends both.
    [ "$1" = $failed ] || [ "$1" -gt 128 ] || no "this is not DMTCP's exit status"
    said=$(words)
    said=${said:+; DMTCP said: $said}
    for doing in saving restoring; do
        [ ! -e "$state/$doing" ] || yes "reason=status $1 while DMTCP was $doing it$said"
    done
    [ "$1" = $failed ] || no "this is not DMTCP's exit status"
    coordinator_ended 3 # one whose last process has ended follows it at once
    case $(cat "$state/coordinator" 2>/dev/null) in
        ''|0) no "DMTCP's coordinator has not failed" ;;
        *) yes "reason=its coordinator ended with exit status $(cat "$state/coordinator")$said" ;;
    esac
}

# ---- going on ----------------------------------------------------------------------------------------------------

watch() { # watch COUNT PID: says when so many processes run; ends a restart that does not get there
    enter_state
    port=$(cat "$state/port") # this one's, should the launcher have gone on to another
    until=$(($(now) + restart_s))
    while [ "$(now)" -lt $until ] && kill -0 "$2" 2>/dev/null; do
        running=$(peers) # fewer where some have ended by now
        if [ "$(ran)" = yes ] || [ "${running:-0}" -ge "$1" ]; then rans; fi
        pause
    done
    if kill -0 "$2" 2>/dev/null; then
        told ok=no "reason=not all of $1 processes run after $restart_s s"
    else
        # The first process has ended. It may have done its work; or the restart has failed, and others of it may hang.
        until=$(($(now) + 5))
        while [ "$(now)" -lt $until ] && [ ! -s "$state/coordinator" ] && [ "$(ran)" != yes ]; do pause; done
        [ "$(ran)" != yes ] || rans
    fi
    ask -k >/dev/null
    pause
    kill -s KILL -- "-$2" 2>/dev/null || kill -s KILL "$2" 2>/dev/null
}

rans() { # all of it ran: first the word, for without the mark `broken` does not look any more
    told ok=yes
    rm -f "$state/restoring"
    exit 0
}

copy_to() { # copies the files named on standard input, with their folders, to this folder
    while IFS= read -r file; do
        mkdir -p "$1/${file%/*}" && cp -p "$file" "$1/$file" || return 1
    done
}

told() {
    printf '%s\n' "$@" >"$CLEARWAY_STATE/restarted.$$" && mv "$CLEARWAY_STATE/restarted.$$" "$CLEARWAY_STATE/restarted"
}

restart() {
    enter_state
    generation=$1
    shift 2
    rm -f "$CLEARWAY_STATE/restarted"
    count=$(images_in "$generation" | wc -l)
    [ "$count" -gt 0 ] || die "$generation has no images"
    record=--write-kv-data
    coordinate "$@"
    # Open files that were deleted or changed are looked for where they were first saved, not beside the images.
    rm -rf "$work/images"
    (umask 077 && mkdir -p "$work/images" && cd "$generation" &&
        find . -path '*/ckpt_*_files/*' -type f | copy_to "$work/images") || die "cannot put back saved files"
    : >"$state/restoring"
    # The watch must not become a child of the program, which would not expect it.
    (setsid sh "$driver" watch "$count" $$ </dev/null >/dev/null 2>&1 &)
    if [ "$1" = srun ]; then
        CLEARWAY_DMTCP_FROM=$generation
        ranks task_again "$@"
    fi
    revive "$generation" "$work/images"
}

end() {
    enter_state
    ask -q >/dev/null
    for entry in /proc/[0-9]*; do # one that does not answer; its name may read dmtcp_coor:7779
        case $(cat "$entry/comm" 2>/dev/null) in
            dmtcp_coor*)
                tr '\0' '\n' 2>/dev/null <"$entry/environ" | grep -qxF "CLEARWAY_STATE=$CLEARWAY_STATE" &&
                    kill -s KILL "${entry##*/}" 2>/dev/null ;; # it blocks all others
        esac
    done
    rm -rf "$state"
    yes
}

driver=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
case ${1:-} in
    probe|start|deaf|checkpoint|go_on|verify|restart|broken|end|task|task_again|watch) verb=$1 && shift && "$verb" "$@" ;;
    *) die "unknown verb '${1:-}'" ;;
esac
