# For the scripts of the Debian package and of the RPM, which define `newer A B`: version A comes after version B.
start() { # as dpkg's policy allows
    if command -v deb-systemd-invoke >/dev/null; then
        deb-systemd-invoke start clearway.service
    else
        systemctl start clearway.service
    fi
}
active() { [ -d /run/systemd/system ] && systemctl is-active --quiet clearway.service; }
# The daemon's user: clearway, unless a drop-in of the unit says otherwise.
daemon_user() {
    if [ -d /run/systemd/system ]; then systemctl show -P User clearway.service; else echo clearway; fi
}
as_daemon() {
    user=$(daemon_user)
    (cd / && setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups "$@")
}
# Fails while the daemon runs and an eviction is under way: jobs may be held until it lets them go.
may_go() {
    active || return 0
    under_way=$(as_daemon clearway evictions list --state active -o json 2>/dev/null | grep -c '"eviction_id"' || true)
    [ "$under_way" -gt 0 ] || return 0
    echo "clearway: evictions are under way, and their jobs have not come back:" >&2
    echo "clearway: run 'clearway pause' and wait until 'clearway evictions list --state active' is empty." >&2
    echo "clearway: To remove it all the same: systemctl stop clearway" >&2
    return 1
}
# Before files change: Python loads modules late.
stop_for_upgrade() {
    active || return 0
    touch /run/clearway.upgrade
    systemctl stop clearway.service
}
# Made by compile; the package manager does not know it.
remove_bytecode() { find /opt/clearway -name __pycache__ -type d -prune -exec rm -rf {} +; }
# Bytecode is not in the package, and users cannot write it: without it every command would compile again.
compile() { /opt/clearway/bin/python -m compileall -q -j 0 /opt/clearway/lib || true; }
say_way_back() { # OLD, which is newer than this version
    user=$(daemon_user)
    cat >&2 <<TEXT
clearway: this goes back from $1 to @VERSION@. The daemon stays stopped.
clearway: @VERSION@ refuses a database that $1 has changed. Then take the copy that was made before the upgrade:
clearway:     ls /var/lib/clearway/backups
clearway:     mv /var/lib/clearway/clearway.sqlite /var/lib/clearway/newer.sqlite
clearway:     sudo -u $user clearway restore /var/lib/clearway/backups/FILE
clearway: Afterwards: systemctl start clearway; clearway evictions list; clearway resume
TEXT
}
# Copies the database before this version changes it, which the daemon does when it starts; then starts a daemon that
# was stopped for the upgrade. It stays stopped where no copy can be made, and on the way back.
after_upgrade() { # OLD
    restart=""
    if [ -e /run/clearway.upgrade ]; then
        rm -f /run/clearway.upgrade
        restart=1
    fi
    if newer "$1" "@VERSION@"; then
        restart=""
    elif newer "@VERSION@" "$1"; then
        user=$(daemon_user)
        copy="/var/lib/clearway/backups/before-@VERSION@-$(date -u +%Y%m%dT%H%M%SZ)"
        install -d -m 700 -o "$user" -g "$(id -g "$user")" /var/lib/clearway/backups
        if said=$(as_daemon clearway backup "$copy" 2>&1); then
            echo "clearway: the database as it was: $said"
        else
            echo "clearway: no copy of the database was made: $said" >&2
            [ -z "$restart" ] || echo "clearway: the daemon stays stopped. With a copy: systemctl start clearway" >&2
            restart=""
        fi
    fi
    if [ -n "$restart" ]; then
        start || echo "clearway: the daemon did not start: systemctl status clearway" >&2
    fi
}
