# shellcheck shell=bash
# shellcheck disable=SC2154  # variables of scripts/vm
# needs xen seekwire
# Memory that domain 1 grants to domain 2, as a link between them: domain 1 has its first side.

# shellcheck source=wire/tests/vm/links_programs.sh
source wire/tests/vm/links_programs.sh
# shellcheck source=wire/tests/vm/vchan.sh
source wire/tests/vm/vchan.sh

size=16M

# write_maps: for the numbers that the domains have now.
write_maps() {
    local guest side=first
    for guest in 1 2; do
        on "$guest" "mkdir -p /etc/seekwire && printf 'link guests xen %s/$size $side\n192.0.2.%s guests\n' \
            $(number $((3 - guest))) $((3 - guest)) >/etc/seekwire/links"
        side=second
    done
}

hold() {
    on 1 "echo 65536 >/sys/module/xen_gntalloc/parameters/limit && rm -f /tmp/holder*
        start holder '*held and attached' seekwire vm hold guests"
}

end_hold() {
    # shellcheck disable=SC2016  # what the guest expands
    on 1 'kill $(cat /tmp/holder.pid); await holder' >/dev/null
}

# granted TEST: that test, while the link is attached; afterwards it is not.
granted() {
    # Xen is emulated, too, and what it does for a page takes longer.
    # shellcheck disable=SC2034  # for `on`
    local LIMIT=60
    local guest
    write_maps
    hold
    on 2 seekwire vm attach
    "$@"
    for guest in 1 2; do
        on "$guest" 'killall -q -9 sockets || true'
        let_go "$guest"
    done
    end_hold
    for guest in 1 2; do
        on "$guest" rm -r /run/seekwire /etc/seekwire
    done
}

# doctor GUEST TEXT: what `seekwire doctor` says there of the link, whatever it finds besides.
doctor() {
    local found
    found=$({ on "$1" seekwire doctor 2>/dev/null || true; } | grep "link .* guests: ") || fail "doctor in guest $1 says nothing of the link"
    echo "$found"
    [[ $found == *"$2"* ]] || fail "doctor in guest $1 does not say: $2"
}

# says GUEST TEXT COMMAND...: it fails, and says that.
says() {
    local guest=$1 text=$2 output
    shift 2
    ! output=$(on "$guest" "$* 2>&1") || fail "guest $guest: $* does not fail"
    echo "$output"
    [[ $output == *"$text"* ]] || fail "guest $guest: $* does not say: $text"
}

test_a_link_by_xen_says_what_keeps_it_from_being_used() {
    local guest
    write_maps
    on 1 'echo 1024 >/sys/module/xen_gntalloc/parameters/limit'
    says 1 "needs 4101 pages, and the kernel grants 1024 in all" seekwire vm hold guests
    doctor 1 "the link needs 4101 pages"
    says 2 "offers no memory for the link guests" seekwire vm attach
    [[ $(on 2 seekwire vm status --json) == *'"state":"not attached"'* ]] || fail "guest 2 is attached"
    for guest in 1 2; do
        on "$guest" rm -r /etc/seekwire
    done
}

both_are_attached() {
    local guest status
    for guest in 1 2; do
        status=$(on "$guest" seekwire vm status --json)
        [[ $status == *'"state":"attached"'*'"peer":"attached"'* ]] || fail "guest $guest: $status"
        doctor "$guest" "attached at both ends"
    done
    [[ $(on 2 seekwire vm attach) == "guests: was attached already" ]] || fail "guest 2 attaches twice"
    says 1 "another process already holds the memory" seekwire vm hold guests
}

# events GUEST PROGRAM: how often the channels of its processes of that name have rung.
events() {
    on "$1" "sed -n 's/ *evtchn:$2\$//p' /proc/interrupts" | awk '{ for (i = 2; i <= NF; i++) if ($i ~ /^[0-9]+$/) all += $i } END { print all + 0 }'
}

rings_by_channel() {
    local guest
    on 1 "start server 'listening *' seekwire run -- sockets echo 0.0.0.0 7000"
    on 2 "mkfifo /tmp/go && start talker talked seekwire run -- sockets hold 192.0.2.1 7000 60000 /tmp/go"
    for guest in 1 2; do
        on "$guest" "grep evtchn /proc/interrupts" || fail "guest $guest has no channel"
        doctor "$guest" "attached at both ends"
    done
    # Making a channel rings it once at each end.
    [[ $(events 1 sockets) -gt 4 && $(events 2 sockets) -gt 4 ]] || fail "rings do not go by the channel"
    on 2 'echo >/tmp/go; await talker' | grep "talked again" || fail "the connection has ended"
}

test_programs_wake_each_other_by_event_channels() {
    granted rings_by_channel
}

# Without event channels, the line carries the rings.
rings_without_channels() {
    on 2 mv /dev/xen/evtchn /dev/xen/none
    doctor 2 "wake-ups go by TCP, which takes longer: there is no /dev/xen/evtchn"
    shows_the_link
    on 2 mv /dev/xen/none /dev/xen/evtchn
}

test_without_event_channels_the_line_carries_rings() {
    granted rings_without_channels
}

test_a_link_by_xen_is_attached_and_detached() {
    granted both_are_attached
}

test_redis_over_xen() {
    granted by_ring test_redis_between_guests
}

many() {
    local clients=40
    on 2 mkdir /dev/shm/stats
    on 1 "start redis '*Ready to accept connections*' seekwire run -- redis-server --bind 0.0.0.0 --protected-mode no --save ''"
    LIMIT=120 on 2 "SEEKWIRE_STATS=/dev/shm/stats seekwire run -- redis-benchmark -h 192.0.2.1 -c $clients -n $((clients * 20)) -t get --csv"
    on 2 redis-cli -h 192.0.2.1 shutdown nosave
    on 1 await redis >/dev/null
    on 2 'cat /dev/shm/stats/*' >"$bed/stats"
    [[ $(sum attached) -ge $clients ]] || fail "$(sum attached) of $clients connections over the link"
}

test_more_connections_over_xen_than_vchan_has() {
    granted many
}

test_iperf3_over_xen() {
    granted by_ring test_iperf3_between_guests
}

test_nginx_and_curl_over_xen() {
    granted by_ring test_nginx_and_curl_between_guests
}

test_status_shows_the_link_by_xen() {
    granted shows_the_link
}

# FROM TO: the program that forks is there, the one that it talks with here; each runs the library.
forks() {
    local output
    on "$2" "rm -f /tmp/server*; start server 'listening *' seekwire run -- sockets echo 0.0.0.0 7000"
    output=$(on "$1" "SEEKWIRE_STATS=/dev/shm/stats seekwire run -- sockets fork 192.0.2.$2 7000")
    [[ $output == *"talked after a fork" ]] || fail "in guest $1: $output"
    on "$1" 'cat /dev/shm/stats/*' >"$bed/stats"
    [[ $(sum attached) -gt 0 && $(sum tx_ring) -gt 0 ]] || fail "not over the link: $(<"$bed/stats")"
}

both_fork() {
    on 1 mkdir /dev/shm/stats
    on 2 mkdir /dev/shm/stats
    # In the domain that maps pages of the other, the kernel leaves them out of a child.
    forks 2 1
    forks 1 2
}

test_a_child_has_the_memory_by_xen() {
    granted both_fork
}

holder_ends() {
    on 2 "start server 'listening *' seekwire run -- sockets echo 0.0.0.0 7000"
    on 1 "mkfifo /tmp/go && start talker talked seekwire run -- sockets hold 192.0.2.2 7000 60000 /tmp/go"
    end_hold
    on 1 'echo >/tmp/go; await talker' | grep "talked again" || fail "the connection has ended with who held its memory"
    doctor 1 "nobody holds the memory of this link"
    on 1 "start other talked seekwire run -- sockets wait 192.0.2.2 7000"
    [[ $(on 1 seekwire status --json) == *'"peer":"192.0.2.2:7000"'*'"tx":"tcp"'* ]] || fail "over memory that nobody holds"
    # New memory, to which the other one attaches again.
    hold
    [[ $(on 2 seekwire vm attach) == "guests: attached" ]] || fail "guest 2 does not attach to the new memory"
    on 1 'killall -q -9 sockets || true'
    on 2 'killall -q -9 sockets || true; rm -f /tmp/server* /tmp/other*'
    on 1 'rm -f /tmp/server* /tmp/other*'
    shows_the_link
}

test_connections_outlive_who_holds_the_memory_by_xen() {
    granted holder_ends
}

domain_restarts() {
    restart 2
    write_maps
    says 2 "offers no memory for the link guests" seekwire vm attach
    end_hold
    hold
    on 2 seekwire vm attach
    shows_the_link
}

test_a_domain_that_restarts_has_another_number_and_is_granted_memory_anew() {
    granted domain_restarts
}

test_xl_takes_the_planned_limits_of_a_domain() {
    local planned read key value
    planned=$(on 1 "seekwire vm plan db web --size 64M --for xen | grep -A 3 '^# For the machine web' | grep '^max_'")
    read=$(on 0 "{ cat /run/1; echo '$planned'; } >/run/planned && xl create --dryrun /run/planned")
    while read -r key _ value; do
        # libxl has another name for it.
        [[ $key != max_event_channels ]] || key=event_channels
        echo "$key: $value"
        [[ $read == *"\"$key\": $value,"* ]] || fail "xl does not read $key: $read"
    done <<<"$planned"
    [[ $planned == *max_grant_frames*max_maptrack_frames*max_event_channels* ]] || fail "other limits are planned: $planned"
}
