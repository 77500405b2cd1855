# shellcheck shell=bash
# needs seekwire
# Guest 2 fails or starts again. Programs in guest 1 learn of it what TCP tells, with the library as without.

# talk WHAT [MS]: `sockets WHAT` in guest 1 has talked with guest 2, once plain and once with the library.
talk() {
    local what=$1 ms=${2:-}
    # Otherwise guest 1 may ask for the other's address in between, and TCP gives another error for that.
    on 1 '/bin/ip neighbour replace 192.0.2.2 lladdr 52:54:00:00:02:02 nud permanent dev eth0'
    serve
    on 1 "mkfifo /tmp/go_plain /tmp/go_library &&
        start plain talked sockets $what 192.0.2.2 7000 ${ms:+$ms /tmp/go_plain} &&
        start library talked seekwire run -- sockets $what 192.0.2.2 7001 ${ms:+$ms /tmp/go_library}"
    has_talked
}

# Further conditions to check, for tests that override this.
has_talked() {
    true
}

serve() {
    on 2 "start plain 'listening *' sockets echo 0.0.0.0 7000 &&
        start library 'listening *' seekwire run -- sockets echo 0.0.0.0 7001"
}

# learns WHAT: both programs end by saying that.
learns() {
    local program output
    for program in plain library; do
        output=$(LIMIT=60 on 1 await "$program" | tail -n 1)
        echo "$program: $output"
        [[ $output == "$1" ]] || fail "$program says \"$output\" instead of \"$1\""
    done
}

# From the moment on that the host wants.
go() {
    on 1 'echo >/tmp/go_plain; echo >/tmp/go_library'
}

# Guest 2 as it is now can be talked with.
goes_on() {
    local port
    serve
    for port in 7000 7001; do
        on 1 "rm -f /tmp/again*; start again talked seekwire run -- sockets wait 192.0.2.2 $port"
    done
}

test_a_process_of_the_other_guest_is_killed() {
    talk wait
    on 2 killall -9 sockets
    learns "recv: end"
    on 2 'rm /tmp/*'
    goes_on
}

test_the_other_guest_is_killed() {
    talk hold 3000
    kill_guest 2
    go
    learns "recv: ETIMEDOUT"
    on 1 'sysctl -qw net.ipv4.tcp_syn_retries=1'
    [[ $(on 1 sockets ask 192.0.2.2 7000) == "connect: ETIMEDOUT" ]] || fail "guest 2 still answers"
    [[ $(on 1 seekwire run -- sockets ask 192.0.2.2 7000) == "connect: ETIMEDOUT" ]] || fail "with the library, it answers"
    boot 2
    goes_on
}

test_the_other_guest_restarts() {
    talk hold 60000
    restart 2
    go
    learns "recv: ECONNRESET"
    goes_on
}
