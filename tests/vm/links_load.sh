# shellcheck shell=bash
# shellcheck disable=SC2154  # variables of scripts/vm
# needs ivshmem seekwire
# Random bytes by random calls over several connections at once, each byte checked (tests/programs/stress.c). And a guest that
# detaches while connections talk.

# shellcheck source=tests/vm/links_programs.sh
source tests/vm/links_programs.sh

# Few, with many bytes: while a child has the socket, too, a connection stays on TCP, and looks again ever more rarely.
connections=8

# begins_stress BYTES: at most so many each way on each connection; the client's end is "status N" in /tmp/load.
begins_stress() {
    local port
    on 1 "start server '[0-9]*' $with stress listen 192.0.2.1 $connections 1 $1"
    port=$(on 1 'head -n 1 /tmp/server')
    on 2 "{ $with stress connect 192.0.2.1 $port $connections 1 $1; echo status \$?; } >/tmp/load 2>&1 &"
}

ends_stress() {
    # shellcheck disable=SC2034  # for `on`
    local LIMIT=200
    on 2 'until grep "^status" /tmp/load; do sleep 0.2; done' >/dev/null
    on 2 cat /tmp/load
    [[ $(on 2 cat /tmp/load) == *"status 0" ]] || fail "the client has failed"
    on 1 await server
}

stress_between_guests() {
    local with="env SEEKWIRE_STATS=/dev/shm/stats seekwire run --"
    on 1 mkdir /dev/shm/stats
    on 2 mkdir /dev/shm/stats
    begins_stress 8000000
    ends_stress
    on 1 'cat /dev/shm/stats/*' >"$bed/stats"
    echo "$(sum attached) of $(sum tracked) connections came to the link, with $(sum tx_ring) bytes sent and $(sum rx_ring) received"
    [[ $(sum attached) -gt 0 ]] || fail "none came to the link: $(<"$bed/stats")"
}

test_stress_over_the_link() {
    linked stress_between_guests
}

# Connections by carrier, in guest 2.
carried_by() {
    on 2 seekwire status | grep -c " $1  *$1 .*guests" || true
}

detaches_under_load() {
    local deadline=$((SECONDS + 60)) with="seekwire run --"
    on 1 "start server 'listening *' $with sockets gather 0.0.0.0 7000"
    on 2 "mkfifo /tmp/go && start crowd connected $with sockets crowd 192.0.2.1 7000 20 /tmp/go"
    until [[ $(carried_by ring) -eq 20 ]]; do
        [[ $SECONDS -lt $deadline ]] || fail "not all come to the link: $(on 2 seekwire status)"
    done
    # They talk on meanwhile, and have the memory mapped until they end, which is status 3.
    LIMIT=90 on 2 "seekwire vm detach guests --wait 60 || [ \$? -eq 3 ]"
    [[ $(carried_by tcp) -eq 20 ]] || fail "not all have left the link: $(on 2 seekwire status)"
    on 2 'echo >/tmp/go && await crowd' | grep "answers by each of 20"
    on 1 await server >/dev/null
    on 2 seekwire vm attach
}

test_a_guest_detaches_under_load() {
    linked detaches_under_load
}
