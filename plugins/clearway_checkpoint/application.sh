#!/bin/sh
# Driver "application": the program saves itself, on a signal or by a command of its own. See clearway.checkpointing.
#
#   CLEARWAY_APPLICATION_FILE     written at each checkpoint: under another name first, then renamed
#   CLEARWAY_APPLICATION_COMMAND  run by sh to save the program, instead of a signal; CLEARWAY_PID is the program's
#   CLEARWAY_APPLICATION_SIGNAL   what the program is sent (default USR1)
#
# What is saved stays the program's own file: a generation holds only its size and name.

set -u
file=${CLEARWAY_APPLICATION_FILE:-} command=${CLEARWAY_APPLICATION_COMMAND:-}

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

save() { # save GENERATION PID
    [ -d "$1" ] || no "no folder $1"
    pid=$2 held=
    asked=$(mktemp "${CLEARWAY_STATE:-/tmp}/asked.XXXXXX") || no "no temporary file"
    trap 'rm -f "$asked" "$asked.later"; [ -z "$held" ] || whole CONT' EXIT
    trap 'exit 1' TERM
    if [ -n "$command" ]; then
        CLEARWAY_PID=$2 sh -c "$command" >&2 || no "the checkpoint command failed"
    else
        [ -n "$file" ] || no "neither a checkpoint file nor a checkpoint command is set"
        # Files' times move in steps of milliseconds: what a quick program saves must not be of the same step.
        until [ -n "$(find "$asked.later" -newer "$asked" 2>/dev/null)" ]; do
            touch "$asked.later" || no "no temporary file"
        done
        kill -s "${CLEARWAY_APPLICATION_SIGNAL:-USR1}" "$2" 2>/dev/null || no "the program has ended"
        until [ -n "$(find "$file" -newer "$asked" 2>/dev/null)" ]; do # the launcher's time limit ends this
            alive "$2" || no "the program ended without a checkpoint"
            sleep 0.1 2>/dev/null || sleep 1
        done
        [ -n "$(find "$file" -user "$(id -u)")" ] || no "$file was written by another user"
    fi
    held=yes # at once: what it does from here on it would do again
    whole STOP
    size=
    [ -z "$file" ] || size=$(wc -c <"$file" 2>/dev/null) || no "there is no $file after the checkpoint"
    printf '%s\n%s\n' "${size:--}" "$file" >"$1/saved" || no "cannot write $1/saved"
    echo ok=yes
    [ -z "$file" ] || echo "size_mib=$(du -sm "$file" | cut -f 1)"
    held=
}

verify() { # verify GENERATION
    { read -r size && read -r name; } 2>/dev/null <"$1/saved" || no "$1 holds no checkpoint"
    [ "$size" = - ] || [ "$(wc -c <"$name" 2>/dev/null)" = "$size" ] || no "$name is not what was saved"
    echo ok=yes
}

verb=${1:-}
[ $# -eq 0 ] || shift
case $verb in
    probe|end) echo ok=yes ;;
    start) shift; exec "$@" ;;
    checkpoint) save "$1" "$2" ;;
    verify) verify "$1" ;;
    restart) # the program reads its own file
        generation=$1
        shift 2
        ( verify "$generation" ) >"${CLEARWAY_STATE:-/tmp}/restarted" || exit 1
        exec "$@" ;;
    *) no "unknown verb $verb" ;;
esac
