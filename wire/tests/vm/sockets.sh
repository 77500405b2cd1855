# shellcheck shell=bash
# fast
# needs seekwire
# Sockets that belong to one machine stay there, with the library in each program. These are defects of libkrun's TSI, which
# implements the sockets of a guest on its host: containers/libkrun, issues 510, 818, 819 and 860.

# listening GUEST NAME ADDRESS PORT WORD: starts such a server; its port comes out.
listening() {
    on "$1" "start $2 'listening *' seekwire run -- sockets answer $3 $4 $5 && cut -d ' ' -f 3 /tmp/$2"
}

# says GUEST ADDRESS PORT WHAT
says() {
    local answer
    answer=$(on "$1" seekwire run -- sockets ask "$2" "$3")
    [[ $answer == "$4" ]] || fail "from guest $1, $2 port $3 says \"$answer\" instead of \"$4\""
    echo "from guest $1, $2 port $3: $answer"
}

test_a_port_that_the_kernel_picks_is_the_one_that_others_reach() {
    local port
    # The program ends with an error if bind() and listen() differ about it.
    port=$(listening 1 any 0.0.0.0 0 one)
    says 2 192.0.2.1 "$port" one
    [[ $(on 1 "awk '\$4 == \"0A\" { print \$2 }' /proc/net/tcp") == "00000000:$(printf %04X "$port")" ]] ||
        fail "the kernel has other listeners: $(on 1 cat /proc/net/tcp)"
}

test_a_listener_has_a_name_while_another_thread_accepts() {
    local output
    output=$(on 1 seekwire run -- sockets during_accept)
    echo "$output"
    [[ $output =~ ^"listening 0.0.0.0 "([0-9]+)$'\nnamed '([0-9]+)$'\naccepted '([0-9]+)$ ]] || fail "something else"
    [[ ${BASH_REMATCH[1]} == "${BASH_REMATCH[2]}" && ${BASH_REMATCH[1]} == "${BASH_REMATCH[3]}" ]] || fail "three ports"
}

test_loopback_stays_in_its_guest() {
    listening 1 own 127.0.0.1 7000 one
    says 1 127.0.0.1 7000 one
    says 2 127.0.0.1 7000 "connect: ECONNREFUSED"
    says 2 192.0.2.1 7000 "connect: ECONNREFUSED"
    listening 2 own 127.0.0.1 7000 two
    says 1 127.0.0.1 7000 one
    says 2 127.0.0.1 7000 two
}

test_both_guests_listen_at_one_port() {
    local guest
    listening 1 all 0.0.0.0 7000 one
    listening 2 all 0.0.0.0 7000 two
    for guest in 1 2; do
        says "$guest" 192.0.2.1 7000 one
        says "$guest" 192.0.2.2 7000 two
    done
    says 1 127.0.0.1 7000 one
    says 2 127.0.0.1 7000 two
}
