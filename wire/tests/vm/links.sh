# shellcheck shell=bash
# shellcheck disable=SC2154  # variables of scripts/vm
# fast
# needs ivshmem seekwire
# The memory that the guests share, as a link: guest 1 has its first side, guest 2 the second one (guest/init).

# shellcheck source=wire/tests/vm/links_programs.sh
source wire/tests/vm/links_programs.sh

# is GUEST TEXT...: what `seekwire vm status` says there.
is() {
    local guest=$1 status text
    shift
    status=$(on "$guest" seekwire vm status --json)
    for text; do
        [[ $status == *"$text"* ]] || fail "guest $guest: not $text: $status"
    done
}

# Cleans up after tests: other tests have nothing attached.
leave() {
    local guest
    for guest in 1 2; do
        let_go "$guest"
        on "$guest" rm -r /run/seekwire
    done
}

test_links_are_attached_and_detached() {
    local guest size
    size=$(stat --format=%s "$region")
    on 1 seekwire vm map
    is 1 '"state":"not attached"' "\"length\":$size"
    for guest in 1 2; do
        [[ $(on "$guest" seekwire vm attach) == "guests: attached" ]] || fail "guest $guest does not attach"
    done
    for guest in 1 2; do
        is "$guest" '"state":"attached"' '"peer":"attached"' '"processes":[]'
        on "$guest" seekwire doctor | grep "link .* guests: .* attached at both ends" || fail "doctor does not see guest $guest's link"
    done
    on 2 seekwire vm detach guests
    is 1 '"state":"attached"' '"peer":"detached"'
    on 2 seekwire vm attach
    is 1 '"peer":"attached"'
    leave
}

test_links_have_to_be_attached_after_a_start() {
    local guest
    on 1 seekwire vm attach
    on 2 seekwire vm attach
    restart 2
    is 2 '"state":"not attached"'
    on 2 seekwire vm attach
    for guest in 1 2; do
        is "$guest" '"state":"attached"' '"peer":"attached"'
    done
    leave
}

test_links_name_who_has_the_memory_mapped() {
    local last pid left
    # A place without memory of a connection.
    last=$(($(stat --format=%s "$region") - 8))
    on 1 seekwire vm attach
    on 2 seekwire vm attach
    on 1 "region write $last 0; region wait $last 1 & echo \$! >/tmp/pid"
    pid=$(on 1 cat /tmp/pid)
    is 1 "\"processes\":[{\"pid\":$pid,\"program\":\"region\"}]"
    left=$(on 1 "seekwire vm detach guests 2>&1 || [ \$? -eq 3 ]")
    [[ $left == *"mapped by $pid (region)"* ]] || fail "a mapped region counts as free: $left"
    on 1 "kill $pid"
    leave
}
