# shellcheck shell=bash
# shellcheck disable=SC2154  # variables of scripts/vm
# needs ivshmem seekwire
# Random bytes by random calls over several connections at once, each byte checked (wire/tests/programs/stress.c). And a guest that
# detaches while connections talk.

# shellcheck source=wire/tests/vm/links_programs.sh
source wire/tests/vm/links_programs.sh

# Few, with many bytes. All are given from 2 to 8 MB each way, and to select, threads and epoll in two modes.
connections=8
seed=12
# Some have a child on one end. While it has the socket, too, a connection stays on TCP, and looks again ever more rarely.
seed_with_children=1

# stress_with SEED LEAST: so many bytes as it says go each way on each connection, of which at least so many come to the link.
stress_with() {
    local stress="env SEEKWIRE_STATS=/dev/shm/stats seekwire run -- stress" port guest output
    for guest in 1 2; do
        on "$guest" 'rm -rf /dev/shm/stats /tmp/server* && mkdir /dev/shm/stats'
    done
    on 1 "start server '[0-9]*' $stress listen 192.0.2.1 $connections $1 8000000"
    port=$(on 1 'head -n 1 /tmp/server')
    output=$(LIMIT=240 on 2 "$stress connect 192.0.2.1 $port $connections $1 8000000")
    output+=" and $(on 1 'await server' | tail -n 1)"
    for guest in 1 2; do
        on "$guest" 'cat /dev/shm/stats/*' >"$bed/stats"
        [[ $(sum attached) -ge $2 && $(($(sum tx_ring) + $(sum rx_ring))) -ge $(($2 * 1000000)) ]] ||
            fail "too few came to the link in guest $guest: $(<"$bed/stats")"
        echo "guest $guest: $(sum attached) of $(sum tracked) connections came to the link," \
            "with $(sum tx_ring) bytes sent and $(sum rx_ring) received there; bytes checked: $output"
    done
}

stress_between_guests() {
    stress_with "$seed" "$connections"
    stress_with "$seed_with_children" 0
}

test_stress_over_the_link() {
    linked stress_between_guests
}

# await_all CARRIER: waits until it carries both directions of all connections in both guests.
await_all() {
    local guest deadline=$((SECONDS + 60))
    for guest in 1 2; do
        until [[ $(on "$guest" seekwire status --json | tr -d '\n' | sed 's/},{/}\n{/g' |
            grep -c "\"tx\":\"$1\",\"rx\":\"$1\",.*\"link\":\"guests\"" || true) -eq 20 ]]; do
            [[ $SECONDS -lt $deadline ]] || fail "not all use $1: $(on "$guest" seekwire status)"
        done
    done
}

detaches_under_load() {
    local with="seekwire run --" left
    on 1 "start server 'listening *' $with sockets gather 0.0.0.0 7000"
    on 2 "mkfifo /tmp/go && start crowd connected $with sockets crowd 192.0.2.1 7000 20 /tmp/go"
    await_all ring
    # The programs keep exchanging data, and have the memory mapped until they end, which is status 3.
    left=$(LIMIT=90 on 2 "seekwire vm detach guests --wait 60 2>&1 || [ \$? -eq 3 ]")
    [[ $left == *"mapped by "*" (sockets)"* && $left != *"not received yet"* ]] || fail "other things are left: $left"
    await_all tcp
    on 2 'echo >/tmp/go && await crowd' | grep "answers by each of 20"
    on 1 await server >/dev/null
    on 2 seekwire vm attach
}

test_a_guest_detaches_under_load() {
    linked detaches_under_load
}
