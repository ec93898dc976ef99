#!/bin/sh
# Stands in for DMTCP's tools, by the name it is called by: what 4.2.0 and the development branch were seen to do.
# VERSION=4.2.0: a request for a checkpoint returns at once, and its images come later; with 5.0 it blocks.
# An image holds the path of its program. How a restart of generation N ends stands in $FOLDER/ending-N, a line each:
#   complete or partial   whether all processes ran, which the coordinator notices a moment after the program has ended
#   exit N, kill N, stand what becomes of it
set -u
name=${0##*/}
[ "${1:-}" != --version ] || { echo "$name (DMTCP) $VERSION"; exit 0; }
fake=$CLEARWAY_STATE/dmtcp/fake
ckptdir='' port_file='' on_last='' record=''
while [ $# -gt 0 ]; do
    case $1 in
        --ckptdir) ckptdir=$2; shift ;;
        --port-file) port_file=$2; shift ;;
        --tmpdir|--coord-port|--ckpt-signal|--stale-timeout|-h|-p) shift ;;
        --exit-on-last) on_last=yes ;;
        --write-kv-data) record=yes ;;
        -q) [ "$name" != dmtcp_command ] || break ;;
        --no-gzip|-j) ;;
        --with-plugin) shift ;;
        *) break ;;
    esac
    shift
done

peers() { # those that are alive
    for file in "$fake"/peer-*; do
        [ -e "$file" ] || continue
        pid=${file##*-}
        if kill -0 "$pid" 2>/dev/null && ! grep -q ') Z ' "/proc/$pid/stat" 2>/dev/null; then echo "$file"; fi
    done
}

join() { # join PROGRAM: becomes a process that can be saved
    printf '%s\n' "$ckptdir" "$1" >"$fake/new" && mv "$fake/new" "$fake/peer-$$"
    touch "$fake/joined"
    exec "$@"
}

below() {
    for kid in $(cat "/proc/$1/task/"*/children 2>/dev/null); do echo "$kid"; below "$kid"; done
}

stop() { # stop PID: it and what is below it; at a moment at which none has ended that its parent does not know of
    while :; do
        for pid in $1 $(below "$1"); do
            kill -s STOP "$pid"
            while [ -e "/proc/$pid/stat" ] && ! grep -q ') [TZ] ' "/proc/$pid/stat"; do :; done
        done 2>/dev/null
        tree="$1 $(below "$1")"
        grep -q ') Z ' $(printf '/proc/%s/stat ' $tree) 2>/dev/null || return 0
        kill -s CONT $tree
    done
}

save() { # every process stands still, and has its image; as long as there is a file hold, they stay so
    sleep 0.3
    named='' all=''
    for file in $(peers); do
        { read -r into; read -r program; } <"$file"
        stop "${file##*-}"
        all="$all $tree"
        for pid in $tree; do
            [ "$pid" = "${file##*-}" ] && image=ckpt_$pid.dmtcp || image=ckpt_z$pid.dmtcp # a restart takes the first one
            echo "$program" >"$into/$image"
            named="$named $image"
        done
    done
    echo $all >"$fake/held"
    (
        while [ -e "$into/hold" ]; do sleep 0.05; done
        rm -f "$fake/held"
        kill -s CONT $all
    ) >/dev/null 2>&1 &
    { read -r scripts; } <"$fake/scripts"
    echo "$named" >"$scripts/dmtcp_restart_script.sh"
}

case $name in
    dmtcp_coordinator)
        rm -rf "$fake" && mkdir -p "$fake"
        echo "$ckptdir" >"$fake/scripts"
        echo 7779 >"$port_file"
        wrote=''
        until [ -e "$fake/quit" ]; do
            sleep 0.1
            over='' # looked at first: what has ended was complete before
            [ -n "$on_last" ] && [ -e "$fake/joined" ] && [ -z "$(peers)" ] && over=yes
            if [ -e "$fake/complete" ] && [ -z "$wrote" ]; then
                sleep 0.4
                wrote="Restart-Start Restart-Complete"
                [ -z "$record" ] || echo "$wrote" >dmtcp_coordinator_db-1.json
            fi
            [ -z "$over" ] || break
        done
        [ -z "$record" ] || echo "${wrote:-Restart-Start} Exiting" >dmtcp_coordinator_db-2.json
        rm -f "$port_file" ;;
    dmtcp_command)
        case $1 in
            -l) state=RUNNING list=$(peers | sed 's/.*-//')
                [ ! -e "$fake/held" ] || { state=CHECKPOINTED; list=$(cat "$fake/held"); }
                for pid in $list; do echo "1, program[1:$pid]@host, 1-$pid, WorkerState::$state, "; done ;;
            -s) printf '  NUM_PEERS=%s\n  RUNNING=yes\n' "$(peers | wc -l)" ;;
            -q) touch "$fake/quit" ;;
            -bc) if [ "$VERSION" = 4.2.0 ]; then save & else save; fi ;;
        esac ;;
    dmtcp_launch) join "$@" ;;
    dmtcp_restart)
        program=$(cat "$1")
        generation=${1%/*} ending=$FOLDER/ending-${generation##*-}
        [ -e "$ending" ] || { touch "$fake/complete"; join "$program"; }
        { read -r how; read -r what; } <"$ending"
        [ "$how" != complete ] || touch "$fake/complete"
        touch "$fake/joined"
        case $what in stand) join sleep 600 ;; exit*) $what ;; *) kill -s "${what#* }" $$ ;; esac ;;
esac
