# shellcheck shell=bash
# fast
# needs seekwire
# The carriers of a connection in `seekwire status`.

# row GUEST PEER: its row for the connection with that peer.
row() {
    on "$1" seekwire status --json | tr -d '\n' | sed 's/},{/}\n{/g' | grep "\"peer\":\"$2" || fail "no connection with $2"
}

# is ROW TEXT...
is() {
    local row=$1 text
    shift
    for text; do
        [[ $row == *"$text"* ]] || fail "not $text: $row"
    done
}

test_only_connections_within_a_guest_are_on_the_ring() {
    local here there
    on 1 "start server 'listening *' seekwire run -- sockets echo 0.0.0.0 7000 &&
        start own talked seekwire run -- sockets wait 127.0.0.1 7000"
    on 2 "start other talked seekwire run -- sockets wait 192.0.2.1 7000"
    here=$(row 1 127.0.0.1:7000)
    echo "$here"
    is "$here" '"tx":"ring"' '"rx":"ring"'
    for there in "$(row 1 192.0.2.2:)" "$(row 2 192.0.2.1:7000)"; do
        echo "$there"
        is "$there" '"tx":"tcp"' '"rx":"tcp"' '"tx_ring":0' '"rx_ring":0'
    done
}
