# shellcheck shell=bash
# needs ivshmem seekwire
# deaths.sh with attached guests: programs see the errors of TCP, and a restarted guest can attach again.

# shellcheck source=wire/tests/vm/links_programs.sh
source wire/tests/vm/links_programs.sh
# shellcheck source=wire/tests/vm/deaths.sh
source wire/tests/vm/deaths.sh

has_talked() {
    over_the_link 1 192.0.2.2:7001
}

test_a_process_of_the_other_guest_is_killed_over_the_link() {
    linked test_a_process_of_the_other_guest_is_killed
}

killed_and_attached_anew() {
    test_the_other_guest_is_killed
    on 2 seekwire vm attach
    on 1 'killall -q -9 sockets || true'
    on 2 'killall -q -9 sockets || true'
    shows_the_link
}

test_the_other_guest_is_killed_over_the_link() {
    linked killed_and_attached_anew
}

restarted_and_attached_anew() {
    test_the_other_guest_restarts
    on 2 seekwire vm attach
    on 1 'killall -q -9 sockets || true'
    on 2 'killall -q -9 sockets || true'
    shows_the_link
}

test_the_other_guest_restarts_over_the_link() {
    linked restarted_and_attached_anew
}
