#!/bin/sh
# Driver "fake": behaves as clearway.estimates.checkpointers says, for a program that counts in $FOLDER/count.
# What is to go wrong stands in $FOLDER/fault.
set -u
verb=$1
shift
fault=$(cat "$FOLDER/fault" 2>/dev/null)
echo "$verb" >>"$FOLDER/verbs"
case $verb in
    probe)
        [ "$fault" != unfit ] || { printf 'ok=no\nreason=the program is static\n'; exit 0; }
        [ "$fault" != doubtful ] || echo "warning=the program may hang"
        echo ok=yes ;;
    start)
        [ "$fault" != dies ] || exit 7
        shift
        exec "$@" ;;
    checkpoint)
        touch "$FOLDER/elsewhere" "$CLEARWAY_DIR/fake.status"
        kill -STOP "-$2" 2>/dev/null
        { cat "$FOLDER/count"; [ "$fault" = truncated ] || echo end; } >"$1/image"
        [ "$fault" != lost ] || rm "$1/image"
        [ ! -e "$FOLDER/memory" ] || cp "$FOLDER/memory" "$1/memory"
        [ "$fault" != full ] || cat /dev/zero >"$1/zeros" || { kill -CONT "-$2"; exit 1; }
        kill -CONT "-$2" 2>/dev/null
        case $fault in
            killed) kill -9 $$ ;;
            slow) until [ -e "$FOLDER/go" ]; do sleep 0.05; done ;;
            hang) sleep 600 ;;
            ends|fatal)
                if [ "$fault" = fatal ]; then echo 99; fi >"$FOLDER/stop.new"
                mv "$FOLDER/stop.new" "$FOLDER/stop" # the program ends as soon as it is there
                while kill -0 "$2" 2>/dev/null && ! grep -q ' Z ' "/proc/$2/stat"; do sleep 0.05; done
                [ "$fault" = ends ] || exit 1 ;;
        esac
        printf 'ok=yes\nsize_mib=%s\n' "$(cat "$FOLDER/size" 2>/dev/null || echo 1)" ;;
    deaf)
        case $fault in
            unable) printf 'ok=yes\nreason=it has a device open\n' ;;
            crowded) echo "doubt=it starts many programs" ;;
        esac ;;
    verify)
        if [ "$(tail -n 1 "$1/image" 2>/dev/null)" = end ]; then echo ok=yes; else printf 'ok=no\nreason=not whole\n'; fi ;;
    restart)
        generation=$1
        shift 2
        if [ -e "$FOLDER/refuse-${generation##*-}" ]; then
            printf 'ok=no\nreason=a log is missing\n' >"$CLEARWAY_STATE/restarted"
            exit 1
        fi
        head -n 1 "$generation/image" >"$FOLDER/count"
        [ "$fault" != amiss ] || sed -i 's/$/0/' "$FOLDER/count" # what it remembers is not what it knew
        echo ok=yes >"$CLEARWAY_STATE/restarted"
        exec "$@" ;;
    broken)
        rm -f "$FOLDER/stop" "$FOLDER/count" # what was not saved is lost
        [ "$1" != 99 ] || printf 'ok=yes\nreason=the disk was full\n' ;;
    forget)
        [ -e "$1/manifest" ] && rm "$FOLDER/elsewhere" && echo ok=yes ;;
    end) echo ok=yes ;;
esac
