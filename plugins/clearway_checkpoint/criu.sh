#!/bin/sh
# The driver of the checkpointer "criu"; the verbs are those of clearway.checkpointing.
#
# CRIU needs root and images that no other user can write, so the work is done by clearway-criu through sudo (see there).
# A generation holds a small file, `image`, that names the image; sizes and checksums of the image are checked by root.
#
# The program runs below a small shell that is saved and restored with it: that shell writes the program's exit status
# into a file, because criu's own says nothing of it, and passes signals on. GPU processes (experimental) are moved to
# host memory by cuda-checkpoint before the dump, and back by that same shell when it is continued.
#
# Settings: CLEARWAY_CRIU_HELPER, the path of clearway-criu as sudoers has it.

set -u

helper=${CLEARWAY_CRIU_HELPER:-`command -v clearway-criu || echo /usr/local/sbin/clearway-criu`}

fail() {
    printf 'ok=no\nreason=%s\n' "$*"
    exit 1
}

root() { # root VERB ...: the helper
    if [ "`id -u`" -eq 0 ]; then env -u SUDO_UID "$helper" "$@"; else sudo -n "$helper" "$@"; fi
}

# What is saved: the program and, above it, this. $1 is where the exit status goes, $2 the GPU processes at a dump.
# shellcheck disable=SC2016 # expanded by that shell
wrapper='
status=$1 gpu=$2 caught=
shift 2
# Slurm sends some signals to all processes, and the program is not to hear one twice: this one does not survive them.
set_canary() { env $defaults sleep 2147483647 </dev/null >/dev/null 2>&1 & canary=$!; }
pass_on() {
    caught=yes
    sleep 0.2
    case `cat "/proc/$canary/stat"` in
        ""|*") Z "*) wait "$canary"; set_canary ;;
        *) kill -s "$1" "$program" ;;
    esac
} 2>/dev/null # of a signal that has ended it shells have words of their own
go_on() {
    caught=yes
    [ -s "$gpu" ] || return 0
    while read -r how process; do
        if [ "$how" = toggle ]; then cuda-checkpoint --toggle --pid "$process"
        else cuda-checkpoint --action restore --pid "$process" && cuda-checkpoint --action unlock --pid "$process"; fi
    done <"$gpu"
    rm -f "$gpu"
}
# What a shell starts in the background has no input, and ignores INT and QUIT. The program may have a descriptor 3 itself.
for spare in 3 4 5 6 7 8 9; do [ -e "/proc/$$/fd/$spare" ] || break; done
ignores=`sed -n "s/^SigIgn:.*\(.\)\\$/\1/p" /proc/$$/status`
defaults=
[ $((0x$ignores & 2)) -ne 0 ] || defaults="$defaults --default-signal=INT"
[ -z "${BASH_VERSION:-}" ] && [ $((0x$ignores & 4)) -ne 0 ] || defaults="$defaults --default-signal=QUIT"
[ -z "$defaults" ] || ! env $defaults true 2>/dev/null || set -- env $defaults "$@"
reads="<&-"
[ ! -e "/proc/$$/fd/0" ] || { eval "exec $spare<&0"; reads="<&$spare $spare<&-"; }
eval "\"\$@\" $reads &"
program=$!
eval "exec $spare<&-"
set_canary
for each in TERM INT HUP USR1 USR2; do trap "pass_on $each" $each; done
trap go_on CONT
while :; do
    caught=
    wait "$program" 2>/dev/null
    code=$?
    [ -n "$caught" ] || break
    kill -0 "$program" 2>/dev/null && continue
    # It ended while the signal was handled: the shell still knows how, or has just told.
    wait "$program" 2>/dev/null
    late=$?
    [ $late -eq 127 ] || code=$late
    break
done
{ kill -s KILL "$canary"; wait "$canary"; } 2>/dev/null
echo "$code" >"$status.new" && mv "$status.new" "$status"
exit "$code"
'

below() { # a process and all that descend from it
    printf '%s\n' "$1"
    for kid in `cat /proc/"$1"/task/*/children 2>/dev/null`; do below "$kid"; done
}

# A connection to elsewhere dies with the program that is saved: restored, it would fail, so it is said before.
# shellcheck disable=SC2016 # awk's own
outside() { # outside PID: the other end of a TCP connection of these processes that none of them holds
    held=`for each in $(below "$1"); do ls -l "/proc/$each/fd" 2>/dev/null; done |
        sed -n 's/.*socket:\[\([0-9]*\)\]$/\1/p' | tr '\n' ' '`
    cat "/proc/$1/net/tcp" "/proc/$1/net/tcp6" 2>/dev/null | awk -v held="$held" '
        function number(hex,   at, value) {
            for (at = 1; at <= length(hex); at++) value = value * 16 + index("0123456789ABCDEF", substr(hex, at, 1)) - 1
            return value
        }
        function address(end,   part) { # the kernel writes the bytes of an IPv4 address from the last to the first
            split(end, part, ":")
            if (length(part[1]) != 8) return part[1] " port " number(part[2])
            return number(substr(part[1], 7, 2)) "." number(substr(part[1], 5, 2)) "." number(substr(part[1], 3, 2)) "." \
                number(substr(part[1], 1, 2)) ":" number(part[2])
        }
        BEGIN { count = split(held, list, " "); for (i = 1; i <= count; i++) ours[list[i]] = 1 }
        $4 == "01" && $10 in ours { peer[$2] = $3; pair[$2 " " $3] = 1 }
        END { for (end in peer) if (!((peer[end] " " end) in pair)) { print address(peer[end]); exit } }'
}

locks() { # locks PIDS: the locks on files that these hold
    awk -v pids=" `printf '%s' "$1" | tr '\n' ' '` " '$2 != "->" && index(pids, " " $5 " ") { print $5, $6 }' /proc/locks
} 2>/dev/null

# What stays behind on a node, or is not in the tree that CRIU saves: restored elsewhere, the program would fail.
beyond() { # beyond PID CHILD: what of that it has; silent when nothing is known
    tree=`below "$1"` ours=self # what was restored has a mount and a pid namespace, for all of it
    [ "`readlink "/proc/$1/ns/pid"`" = "`readlink /proc/self/ns/pid`" ] || ours=$1
    spaces=`readlink /proc/self/ns/user "/proc/$ours/ns/mnt" "/proc/$ours/ns/pid" | tr '\n' ' '`
    for each in $tree; do
        own=`readlink "/proc/$each/ns/user" "/proc/$each/ns/mnt" "/proc/$each/ns/pid"` || continue # it has ended
        [ "`printf '%s\n' "$own" | tr '\n' ' '`" = "$spaces" ] ||
            { echo "its process $each has namespaces of its own, which CRIU does not bring back"; return; }
    done
    for each in $tree; do
        find "/proc/$each/fd" -type l -exec stat -L -f -c 'on %T' {} + | sort -u
        find "/proc/$each/fd" -type l -printf '%l\n'
        sed -n 's/.* \(\/dev\/shm\/.*\)/\1/p; s/.* \(\/SYSV[0-9a-f]*\).*/\1/p' "/proc/$each/maps" | sort -u
    done 2>/dev/null | awk '
        /^\/dev\/(ptmx|pts\/ptmx)$/ { print "it uses a terminal of its own, which CRIU does not always bring back"; exit }
        /^on mqueue$/ { print "it has a POSIX message queue open, which CRIU does not bring back"; exit }
        /^anon_inode:\[io_uring\]/ { print "it uses io_uring, which CRIU does not save"; exit }
        /^\/SYSV/ { print "it uses System V shared memory, which stays on its node"; exit }
        /^\/dev\/shm\// { print "it uses POSIX shared memory (" $1 "), which stays on its node"; exit }'
    if held=`locks "$tree"` && [ -n "$held" ]; then
        for time in 1 2 3 4; do # one that is held for a moment is waited for at the save
            sleep 0.2
            held=`locks "$tree" | grep -Fx -- "$held"`
        done
        [ -z "$held" ] || echo "it holds a lock on a file all the time, which CRIU does not save"
    fi
    me=`id -u`
    since=`stat -c %Y "/proc/$1" 2>/dev/null` || return 0 # it has ended
    awk -v me="$me" -v since="$since" 'NR > 1 && ($(NF - 5) == me || $(NF - 4) == me) && $NF >= since { exit 1 }' \
        /proc/sysvipc/sem 2>/dev/null || echo "there are System V semaphores of its user, which stay on their node"
    awk -v me="$me" -v since="$since" 'NR > 1 && $8 == me && $NF >= since { exit 1 }' /proc/sysvipc/msg 2>/dev/null ||
        echo "there are System V message queues of its user, which stay on their node"
    apart "$2"
}

unfit() { # unfit PID CHILD: why it cannot be saved now; silent when nothing is known. CHILD is the launcher's
    for each in `below "$1"`; do
        case `cat "/proc/$each/comm" 2>/dev/null`:`readlink "/proc/$each/exe" 2>/dev/null` in
            srun:*|*/srun) echo "srun runs in it, and what srun starts is outside of what CRIU saves"; return ;;
        esac
    done
    far=`outside "$1"`
    [ -z "$far" ] || { echo "it has a TCP connection to $far, outside of itself"; return; }
    beyond "$1" "$2" | head -n 1
}

parent() {
    sed -n 's/^PPid:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null
}

below_launcher() { # or ended
    at=`parent "$1"`
    while [ "${at:-0}" -gt 1 ] && [ "$at" != "$launcher" ]; do at=`parent "$at"`; done
    [ "${at:-$launcher}" = "$launcher" ]
}

apart() { # apart CHILD: a process of the job that has left the tree, as a daemon does
    [ -n "${SLURM_JOB_ID:-}" ] || return 0
    launcher=`parent "$1"` above=' ' at=`parent "$1"`
    while [ "${at:-0}" -gt 1 ]; do above="$above$at " at=`parent "$at"`; done
    for each in `grep -lzx -- "SLURM_JOB_ID=$SLURM_JOB_ID" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3`; do
        case $above in *" $each "*) continue ;; esac
        ! grep -qz '^SLURM_STEP_ID=' "/proc/$each/environ" 2>/dev/null || continue # of srun
        # One of ours that is just ending may have no parent of ours any more, for a moment.
        ! below_launcher "$each" && sleep 0.5 && ! below_launcher "$each" || continue
        name=`cat "/proc/$each/comm" 2>/dev/null` || continue
        echo "its process $each ($name) has left the program, as a daemon does, and CRIU would not save it"
    done
}

# --- GPUs, experimental: tried by hand on one H200, and with a stand-in (docs/explanation/criu.md) --------------------

gpu_processes() { # gpu_processes PID: those below it that have a GPU open
    for each in `below "$1"`; do
        for file in /proc/"$each"/fd/*; do
            case `readlink "$file"` in /dev/nvidia*) echo "$each"; break ;; esac
        done
    done
}

gpu_save() { # gpu_save PID: their memory to the host's; driver 570 knows actions, older ones toggle
    rm -f "$gpu"
    users=`gpu_processes "$1"`
    [ -n "$users" ] || return 0
    command -v cuda-checkpoint >/dev/null || { reason="it uses a GPU, and there is no cuda-checkpoint"; return 1; }
    if cuda-checkpoint --help 2>&1 | grep -q -e --action; then how=action; else how=toggle; fi
    for each in $users; do # nothing is touched before all can be saved
        [ $how = action ] && ! cuda-checkpoint --get-restore-tid --pid "$each" >/dev/null 2>&1 || continue
        reason="process $each (`cat "/proc/$each/comm"`) has the GPU open but no CUDA of its own: fork workers before CUDA starts"
        return 1
    done
    for each in $users; do
        # As its own shell knows it: after a restore that has other process ids than we see.
        known=`sed -n 's/^NSpid:.*[[:space:]]\([0-9]*\)$/\1/p' "/proc/$each/status"`
        if [ $how = toggle ]; then
            cuda-checkpoint --toggle --pid "$each" >&2
        else
            cuda-checkpoint --action lock --pid "$each" >&2 && {
                cuda-checkpoint --action checkpoint --pid "$each" >&2 || {
                    cuda-checkpoint --action unlock --pid "$each" >&2
                    false
                }
            }
        fi || { reason="cuda-checkpoint failed for process $each"; return 1; }
        echo "$how $known" >>"$gpu"
    done
}

# --- The verbs ---------------------------------------------------------------------------------------------------

verb=${1:-}
[ $# -eq 0 ] || shift
status=${CLEARWAY_DIR:-}/criu.status gpu=${CLEARWAY_DIR:-}/criu.gpu restored=${CLEARWAY_STATE:-}/criu.pid

image_of() { # image_of GENERATION: sets folder and name, as its file says
    folder='' name=''
    [ ! -r "$1/image" ] || read -r folder name <"$1/image"
    [ -n "$name" ] || fail "there is no image named in $1"
}

case $verb in
    probe)
        [ "`id -u`" -eq 0 ] || command -v sudo >/dev/null || fail "there is no sudo on this node"
        command -v setpriv >/dev/null || fail "there is no setpriv on this node"
        [ -x "$helper" ] || fail "there is no $helper"
        case ${2:-} in srun|*/srun) fail "what srun starts is outside of the program that CRIU saves" ;; esac
        # What the launcher has seen that it runs (clearway-commands).
        for each in srun mpirun mpiexec orterun prterun prun ibrun aprun; do
            ! grep -qwsF "$each" "${CLEARWAY_STATE:-}/text" ||
                fail "it runs $each, and what that starts is outside of what CRIU saves: let the program save itself"
        done
        ! grep -qsE '(^|[^A-Za-z0-9_.-])parallel( |$)' "${CLEARWAY_STATE:-}/text" ||
            fail "it runs parallel, which loses its tasks' output when it goes on on another node"
        root probe && echo looks=yes
        ;;
    start)
        shift # --
        rm -f "$status" "$gpu" "$restored"
        # No_new_privs: without it an image could hold rights that its user has not, and the helper refuses it.
        exec setpriv --no-new-privs ${CLEARWAY_SHELL:-sh} -c "$wrapper" clearway-criu "$status" "$gpu" "$@"
        ;;
    deaf)
        pid=''
        [ ! -s "$restored" ] || read -r pid <"$restored"
        reason=`unfit "${pid:-$1}" "$1"`
        [ -n "$reason" ] || fail "nothing is known"
        printf 'ok=yes\nreason=%s\n' "$reason"
        ;;
    checkpoint)
        generation=$1 pid=$2 reason=
        [ ! -s "$restored" ] || read -r pid <"$restored"
        folder=`printf %s "${generation%/*}" | cksum | tr ' ' -` name=${generation##*/}
        saved=no
        [ -e "/proc/$pid" ] || fail "the program has ended"
        reason=`unfit "$pid" "$2"`
        [ -z "$reason" ] || fail "$reason"
        if gpu_save "$pid"; then
            for attempt in 1 2 3 4 5 6; do # a process that comes or goes meanwhile can be in its way, and a lock on a file
                answer=`root dump "$folder" "$name" "$pid"`
                ! printf '%s\n' "$answer" | grep -qx ok=yes || { saved=yes; break; }
                printf '%s\n' "$answer" | grep -q -e '^reason=criu dump: exit status 1$' -e '^reason=.*file locks' || break
                sleep 0.2
            done
        else
            answer="ok=no
reason=$reason"
        fi
        if [ $saved = yes ]; then
            echo "$folder $name" >"$generation/image" || fail "cannot write $generation/image"
            [ ! -s "$gpu" ] || cp "$gpu" "$generation/gpu" || fail "cannot write $generation/gpu"
        else
            [ ! -s "$gpu" ] || kill -s CONT "$pid"
        fi
        printf '%s\n' "${answer:-ok=no}"
        [ $saved = yes ] && echo ends=yes # Slurm continues what is stopped before it ends it, and CRIU holds nothing back
        ;;
    verify)
        image_of "$1"
        root verify "$folder" "$name"
        ;;
    restart)
        image_of "$1"
        rm -f "$status" "$gpu" "$restored"
        [ ! -s "$1/gpu" ] || cp "$1/gpu" "$gpu"
        said=$CLEARWAY_STATE/criu.said
        : >"$said"
        root restore "$folder" "$name" >"$said" 2>&1 &
        helper_pid=$!
        for each in TERM INT HUP USR1 USR2; do
            trap 'kill -s '$each' "`cat "$restored" 2>/dev/null`" 2>/dev/null' $each
        done
        until grep -q '^pid=' "$said" || ! kill -0 $helper_pid 2>/dev/null; do sleep 0.1; done
        sed -n 's/^pid=//p' "$said" >"$restored"
        if grep -qx ok=yes "$said"; then
            # Its own shell brings the GPU back.
            [ ! -s "$gpu" ] || kill -s CONT "`cat "$restored"`" 2>/dev/null
            echo ok=yes >"$CLEARWAY_STATE/restarted"
        else
            wait $helper_pid
            grep -q '^reason=' "$said" || sed -i 's/^/reason=/' "$said"
            { echo ok=no; grep '^reason=' "$said" | head -n 1; } >"$CLEARWAY_STATE/restarted"
            sed -n 's/^reason=/clearway-run: criu: /p' "$said" >&2
            exit 125
        fi
        while kill -0 $helper_pid 2>/dev/null; do wait $helper_pid; done # a signal ends wait, and is passed on
        code=137 # nothing wrote it: the program was killed together with its shell
        [ ! -s "$status" ] || read -r code <"$status"
        exit "$code"
        ;;
    forget)
        image_of "$1"
        root forget "$folder" "$name"
        ;;
    go_on) echo ok=yes ;; # the launcher continues it
    end)
        rm -f "$restored" "${CLEARWAY_STATE:-}/criu.said"
        echo ok=yes
        ;;
    *)
        fail "unknown verb $verb"
        ;;
esac
