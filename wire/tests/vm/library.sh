# shellcheck shell=bash
# shellcheck disable=SC2154  # variables of scripts/vm
# needs seekwire
# The same programs with the library in them. TCP carries their bytes between the machines, and nothing says otherwise.

# shellcheck source=wire/tests/vm/programs.sh
source wire/tests/vm/programs.sh

# unchanged TEST: that test, with the library in every program.
unchanged() {
    local guest key
    # shellcheck disable=SC2034  # for the functions of programs.sh
    with="env SEEKWIRE_STATS=/dev/shm/stats seekwire run --"
    for guest in 1 2; do
        on "$guest" mkdir /dev/shm/stats
    done
    "$1"
    for guest in 1 2; do
        on "$guest" 'cat /dev/shm/stats/*' >"$bed/stats"
        echo "guest $guest: $(sum tracked) connections, $(sum tx_tcp) bytes sent and $(sum rx_tcp) received by TCP"
        [[ $(sum tracked) -gt 0 && $(($(sum tx_tcp) + $(sum rx_tcp))) -gt 1000000 ]] || fail "the library has counted too little"
        for key in attached fell_back tx_ring rx_ring; do
            [[ $(sum "$key") -eq 0 ]] || fail "guest $guest says $key: $(sum "$key"): $(<"$bed/stats")"
        done
    done
}

# sum KEY: of the counters of all programs of a guest.
sum() {
    grep -o "\"$1\":[0-9]*" "$bed/stats" | awk -F : '{ sum += $2 } END { print sum + 0 }'
}

test_redis_with_the_library() {
    unchanged test_redis_between_guests
}

test_iperf3_with_the_library() {
    unchanged test_iperf3_between_guests
}

test_nginx_and_curl_with_the_library() {
    unchanged test_nginx_and_curl_between_guests
}
