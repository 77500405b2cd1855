# shellcheck shell=bash
# fast
# The test bed itself: guests that take commands, and their network.

test_commands_come_back_with_output_and_status() {
    local output status=0
    output=$(on 1 'echo out; echo err >&2; printf "no end of line"; exit 7') || status=$?
    [[ $status -eq 7 ]] || fail "status $status"
    [[ $output == $'out\nerr\nno end of line' ]] || fail "output: $output"
    [[ $(on 2 hostname) == guest2 ]] || fail "who is guest 2?"
}

test_the_guests_reach_each_other() {
    on 1 'ping -c 3 -i 0.2 192.0.2.2'
    on 2 'ping -c 3 -i 0.2 192.0.2.1'
}
