#!/bin/sh
# Driver "application": the program saves itself, on a signal or by a command of its own. See clearway.checkpointing.
#
#   CLEARWAY_APPLICATION_FILE     written at each checkpoint: under another name first, then renamed. Or a link to the newest
#                                 checkpoint, or a folder
#   CLEARWAY_APPLICATION_COMMAND  run by sh to save the program, instead of a signal; CLEARWAY_PID is the program's
#   CLEARWAY_APPLICATION_SIGNAL   what the program is sent (default USR1)
#
# The signal goes to every process of the program that catches it, whichever shell or starter is above it, and to no other:
# it would end a process without a handler. Where a shell with a trap has started a program with a handler both get it,
# because a shell's trap waits until what it runs has ended. A process with its parent's command line is a fork of it, and
# has only inherited the handler: it gets none, for two of them would write the same file.
#
# One that blocks the signal waits for it by sigwait, signalfd or sigpending, and is sent it as well: it is not ended while
# it blocks it. But it must block it for longer than a moment, and must not have inherited that from its parent.
#
# No clock of this node is compared with a file server's: FILE has to be newer than one that is made beside it. A link counts
# once it leads elsewhere. A folder counts once it has stood still: for 5 s, and for three times as long as the longest pause
# that was seen in it. So what is named is better the file that the program writes last.
#
# What is saved stays the program's own file: a generation holds only its size and name.

set -u
file=${CLEARWAY_APPLICATION_FILE:-} command=${CLEARWAY_APPLICATION_COMMAND:-}
signal=${CLEARWAY_APPLICATION_SIGNAL:-USR1}

no() {
    printf 'ok=no\nreason=%s\n' "$*"
    exit 1
}

alive() { # a zombie has ended, though kill -0 still finds it
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    case ${stat##*) } in Z*|X*) return 1 ;; esac
}

whole() { # whole SIGNAL: the program and what it started
    kill -s "$1" -- "-$pid" 2>/dev/null || kill -s "$1" "$pid" 2>/dev/null
}

number_of() { # number_of SIGNAL: as the kernel counts them; nothing where there is no such signal
    case $1 in ''|*[!0-9]*) ;; *) echo "$1"; return ;; esac
    at=1
    while [ $at -le 64 ]; do
        [ "`kill -l $at 2>/dev/null`" != "$1" ] || { echo $at; return; }
        at=$((at + 1))
    done
}

below() { # a process and all that descend from it
    printf '%s\n' "$1"
    for kid in `cat /proc/"$1"/task/*/children 2>/dev/null`; do below "$kid"; done
}

fates() { # fates PID ...: a line for each that is this user's: PID, its parent, what the signal does to it, its name
    # shellcheck disable=SC2046 # paths
    [ $# -eq 0 ] || cat `printf '/proc/%s/status ' "$@"` 2>/dev/null | awk -v number="$number" -v me="`id -u`" '
        function in_mask(mask,   digit) {
            digit = index("0123456789abcdef", substr(mask, length(mask) - int((number - 1) / 4), 1)) - 1
            return int(digit / 2 ^ ((number - 1) % 4)) % 2
        }
        $1 == "Name:" { name = $2 }
        $1 == "Pid:" { pid = $2 }
        $1 == "PPid:" { parent = $2 }
        $1 == "Uid:" { uid = $2 }
        $1 == "SigBlk:" { blocks = in_mask($2) }
        $1 == "SigIgn:" { ignores = in_mask($2) }
        $1 == "SigCgt:" && uid == me {
            print pid, parent, in_mask($2) ? "hears" : ignores ? "ignores" : blocks ? "waits" : "dies", name
        }'
}

step_processes() { # step_processes PID: what srun has started for this job on this node: children of slurmstepd, so not below
    # the program. Nor below the launcher, which hears the signal itself: 26.05 sets SLURM_STEP_ID in a batch script, too.
    own=" `below "$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$1/status")" | tr '\n' ' '` "
    for process in `grep -lzx -- "SLURM_JOB_ID=${SLURM_JOB_ID:-}" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3`; do
        case $own in *" $process "*) continue ;; esac
        ! grep -qz '^SLURM_STEP_ID=' "/proc/$process/environ" 2>/dev/null || below "$process"
    done | sort -nu
}

audience() { # audience PID: the processes that the signal is sent to, a line each
    # shellcheck disable=SC2046 # process ids
    said=`fates $(below "$1")`
    sruns=`printf '%s\n' "$said" | awk '$4 == "srun" { parent[$1] = $2 }
        END { for (pid in parent) if (!(parent[pid] in parent)) print pid }'`
    if [ -n "$sruns" ]; then
        # shellcheck disable=SC2046 # process ids
        tasks=`fates $(step_processes "$1")`
        if [ "${SLURM_JOB_NUM_NODES:-1}" = 1 ]; then
            said=$said'
'$tasks
        elif printf '%s\n' "$tasks" | awk '$3 == "hears" || $3 == "waits" { hears = 1 } $3 == "dies" { dies = 1 }
            END { exit dies || !hears }'
        then
            # To srun, which waits for it (and blocks it: nothing is caught), and has each process of its tasks sent it on all
            # nodes, with a handler or not. Those of other nodes cannot be seen, but run what those of this node do.
            printf '%s\n' "$sruns"
        fi
    fi
    printf '%s\n' "$said" | while read -r process parent fate name; do
        [ "$name" != srun ] || continue
        case $fate in
            hears) ;;
            waits)
                ! printf '%s\n' "$said" | grep -q "^$parent [0-9]* waits " || continue
                sleep 0.2 2>/dev/null || sleep 1
                case `fates "$process"` in *' waits '*) ;; *) continue ;; esac ;;
            *) continue ;;
        esac
        ! printf '%s\n' "$said" | grep -q "^$parent [0-9]* hears " ||
            ! cmp -s "/proc/$parent/cmdline" "/proc/$process/cmdline" || continue
        printf '%s\n' "$process"
    done
}

deaf() { # deaf PID: would nobody hear a request
    [ -z "$command" ] || no "a command saves it"
    number=`number_of "$signal"`
    [ -z "$number" ] || [ -z "`audience "$1"`" ] || no "it catches $signal"
    printf 'ok=yes\nreason=%s\n' "$unheard"
}

place() { # what FILE leads to, or would
    readlink -m -- "$file"
}

link() { # which link FILE is; nothing where it is none
    [ ! -L "$file" ] || stat -c '%i %z' -- "$file"
}

look() { # what FILE is now: its kind, and a number that is another one once it has changed. Nothing where it is not there
    [ -e "$file" ] && [ -n "`find "$file" -prune -user "$(id -u)"`" ] || return 0
    if [ -d "$file" ]; then printf 'folder:'; else printf 'file:'; fi
    find -H "$file" -printf '%i %T@ %s %p\n' 2>/dev/null | LC_ALL=C sort | cksum | tr ' ' -
    [ ! -L "$file" ] || link | cksum
}

bytes() { # bytes PATH: of all files in it; fails where it is not there
    [ -e "$1" ] && find -H "$1" -type f -printf '%s\n' | awk '{ sum += $1 } END { printf "%.0f\n", sum }'
}

mark() { # makes $asked, older than all that is written from now on, by the clock that tells the times of FILE
    beside=`place`
    asked=`mktemp "${beside%/*}/.clearway-asked.XXXXXX" 2>/dev/null` ||
        asked=`mktemp "${CLEARWAY_STATE:-/tmp}/asked.XXXXXX"` || no "no temporary file"
    # Files' times move in steps: what a quick program saves must not be of the same step.
    until [ -n "`find "$asked.later" -newer "$asked" 2>/dev/null`" ]; do
        touch "$asked.later" || no "no temporary file"
    done
    led=`link` seen='' longest=0
}

written() { # is there a complete checkpoint since mark
    [ -e "$file" ] || return 1
    [ "`link`" = "$led" ] || return 0
    [ -n "`find -H "$file" -newer "$asked" 2>/dev/null | head -n 1`" ] || return 1
    [ -d "$file" ] || return 0
    late="$file is a folder in which something goes on changing: name the file in it that is written last"
    now=`date +%s` now_seen=`look`
    [ "$now_seen" = "$seen" ] || {
        [ -z "$seen" ] || [ $((now - changed)) -le "$longest" ] || longest=$((now - changed))
        seen=$now_seen changed=$now
    }
    [ $((now - changed)) -gt 5 ] && [ $((now - changed)) -gt $((3 * longest)) ]
}

save() { # save GENERATION PID
    [ -d "$1" ] || no "no folder $1"
    pid=$2 held='' asked=''
    late="the program has not written $file"
    trap '[ -z "$asked" ] || rm -f "$asked" "$asked.later"; [ -z "$held" ] || whole CONT' EXIT
    trap 'no "$late"' TERM
    if [ -n "$command" ]; then
        late="the checkpoint command has not ended"
        CLEARWAY_PID=$2 sh -c "$command" >&2 || no "the checkpoint command failed"
    else
        [ -n "$file" ] || no "neither a checkpoint file nor a checkpoint command is set"
        mark
        number=`number_of "$signal"`
        [ -n "$number" ] || no "there is no signal $signal"
        tries=0
        until hearers=`audience "$2"` && [ -n "$hearers" ]; do # it may have been started just now
            alive "$2" || no "the program has ended"
            tries=$((tries + 1))
            [ $tries -lt 10 ] || no "$unheard"
            sleep 0.2 2>/dev/null || sleep 1
        done
        for process in $hearers; do kill -s "$signal" "$process" 2>/dev/null; done
        until written; do # the launcher's time limit ends this
            alive "$2" || no "the program ended without a checkpoint"
            sleep 0.1 2>/dev/null || sleep 1
        done
        [ -n "`find "$file" -prune -user "$(id -u)"`" ] && [ -n "`find -H "$file" -prune -user "$(id -u)"`" ] ||
            no "$file was written by another user"
    fi
    held=yes # at once: what it does from here on it would do again
    whole STOP
    size=
    [ -z "$file" ] || size=`bytes "$file"` || no "there is no $file after the checkpoint"
    printf '%s\n%s\n' "${size:--}" "$file" >"$1/saved" || no "cannot write $1/saved"
    echo ok=yes
    [ -z "$file" ] || echo "size_mib=`du -smD "$file" | cut -f 1`"
    held=
}

verify() { # verify GENERATION
    { read -r size && read -r name; } 2>/dev/null <"$1/saved" || no "$1 holds no checkpoint"
    [ "$size" = - ] || [ "`bytes "$name"`" = "$size" ] || no "$name is not what was saved"
    echo ok=yes
}

unheard="no process of the program catches $signal, which would end it"
verb=${1:-}
[ $# -eq 0 ] || shift
case $verb in
    probe|go_on|end) echo ok=yes ;;
    start) shift; exec "$@" ;;
    deaf) deaf "$1" ;;
    look) printf 'ok=yes\nseen=%s\n' "`look | tr -d '\n'`" ;;
    checkpoint) save "$1" "$2" ;;
    verify) verify "$1" ;;
    restart) # the program reads its own file
        generation=$1
        shift 2
        ( verify "$generation" ) >"${CLEARWAY_STATE:-/tmp}/restarted" || exit 1
        exec "$@" ;;
    *) no "unknown verb $verb" ;;
esac
