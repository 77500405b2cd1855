# shellcheck shell=bash
# shellcheck disable=SC2154  # variables of scripts/vm
# needs ivshmem seekwire
# A thousand connections between two processes at a time, all of them over the link.

# shellcheck source=wire/tests/vm/links_programs.sh
source wire/tests/vm/links_programs.sh

many=1000
# A connection takes up to five descriptors besides its own, which come from the upper quarter of this limit. Ends of this size
# have room in half of the region.
run="ulimit -n 32768 && env SEEKWIRE_STATS=/dev/shm/stats SEEKWIRE_SEGMENTS=8 SEEKWIRE_SEGMENT_SIZE=4096"

# all_attached: the library has counted them, in both guests.
all_attached() {
    local guest
    for guest in 1 2; do
        on "$guest" 'cat /dev/shm/stats/*' >"$bed/stats"
        echo "guest $guest: $(sum attached) of $(sum tracked) connections were over the link"
        [[ $(sum attached) -ge $many ]] || fail "not $many: $(<"$bed/stats")"
    done
}

# carriers GUEST: how many of its connections there are by carrier, and why it is not another one.
carriers() {
    on "$1" "seekwire status --json | tr -d '\n' | sed 's/},{\"pid/}\n{\"pid/g' |
        sed -E 's/.*\"tx\":\"([a-z]*)\",\"rx\":\"([a-z]*)\",.*\"reason\":([^]}]*).*/\1 \2 \3/' | sort | uniq -c"
}

many_at_once() {
    # shellcheck disable=SC2034  # for `on`
    local LIMIT=240
    local guest found deadline=$((SECONDS + 400))
    for guest in 1 2; do
        on "$guest" mkdir /dev/shm/stats
    done
    on 1 "$run start server 'listening *' seekwire run -- sockets gather 0.0.0.0 7000"
    on 2 "mkfifo /tmp/go && $run start crowd connected seekwire run -- sockets crowd 192.0.2.1 7000 $many /tmp/go"
    # While they talk.
    for guest in 1 2; do
        until found=$(carriers "$guest") && [[ $found =~ ^\ *$many\ ring\ ring\ null,\"link\":\"guests\"$ ]]; do
            [[ $SECONDS -lt $deadline ]] || fail "guest $guest: $found"
            sleep 1
        done
        on "$guest" seekwire vm status | grep -v "not received yet"
    done
    on 2 'echo >/tmp/go && await crowd' | grep "answers by each of $many"
    on 1 await server >/dev/null
    all_attached
}

test_a_thousand_connections_over_the_link_at_once() {
    linked many_at_once
}
