# shellcheck shell=bash
# shellcheck disable=SC2154  # variables of scripts/vm
# fast
# needs ivshmem seekwire
# The same programs with the library in them, and with the memory that the guests share as a link between them.

# shellcheck source=wire/tests/vm/library.sh
source wire/tests/vm/library.sh

# let_go GUEST: it is detached, once the processes that were killed there are gone.
let_go() {
    # shellcheck disable=SC2016  # what the guest expands
    on "$1" 'n=0
        until seekwire vm detach guests; do
            [ $? -eq 3 ] && [ $((n += 1)) -lt 100 ] || exit 1
            sleep 0.1
        done' >/dev/null
}

# linked TEST: that test, while the guests are attached; afterwards they are not.
linked() {
    local guest
    for guest in 1 2; do
        on "$guest" seekwire vm attach
    done
    "$@"
    for guest in 1 2; do
        on "$guest" 'killall -q -9 sockets || true'
        let_go "$guest"
        on "$guest" rm -r /run/seekwire
    done
}

# by_ring TEST: runs the test with the library in every program, so that all data go through the region.
by_ring() {
    local guest
    # shellcheck disable=SC2034  # for the functions of programs.sh
    with="env SEEKWIRE_STATS=/dev/shm/stats seekwire run --"
    for guest in 1 2; do
        on "$guest" mkdir /dev/shm/stats
    done
    "$1"
    for guest in 1 2; do
        on "$guest" 'cat /dev/shm/stats/*' >"$bed/stats"
        echo "guest $guest: $(sum attached) of $(sum tracked) connections, $(sum tx_ring) bytes sent and $(sum rx_ring) received in the region, $(($(sum tx_tcp) + $(sum rx_tcp))) by TCP"
        [[ $(sum attached) -gt 0 && $(($(sum tx_ring) + $(sum rx_ring))) -gt 10000 ]] || fail "the region has carried too little: $(<"$bed/stats")"
    done
}

test_redis_over_the_link() {
    linked by_ring test_redis_between_guests
}

test_iperf3_over_the_link() {
    linked by_ring test_iperf3_between_guests
}

test_nginx_and_curl_over_the_link() {
    linked by_ring test_nginx_and_curl_between_guests
}

# over_the_link GUEST PEER: its connection to that address is on the link in both directions, as it shows.
over_the_link() {
    local there
    there=$(on "$1" seekwire status --json | tr -d '\n' | sed 's/},{/}\n{/g' | grep "\"peer\":\"$2\"") || fail "guest $1 shows no connection to $2"
    echo "$there"
    [[ $there == *'"tx":"ring"'*'"rx":"ring"'*'"link":"guests"'* ]] || fail "not over the link"
}

shows_the_link() {
    on 1 "start server 'listening *' seekwire run -- sockets echo 0.0.0.0 7000"
    on 2 "start other talked seekwire run -- sockets wait 192.0.2.1 7000"
    over_the_link 2 192.0.2.1:7000
    on 2 seekwire vm status
}

test_status_shows_the_link_of_a_connection() {
    linked shows_the_link
}

# A signal that comes once ends a wait for the other machine, also one that is spent awake.
signals_end_waits() {
    local output
    on 1 "start server 'listening *' seekwire run -- sockets echo 0.0.0.0 7000"
    output=$(on 2 "seekwire run -- sockets interrupted 192.0.2.1 7000 100")
    echo "$output"
    [[ $output =~ ([0-9]+)\ of\ 100\ waits && ${BASH_REMATCH[1]} -ge 90 ]] || fail "signals are lost"
}

test_signals_end_waits_over_the_link() {
    linked signals_end_waits
}
