# shellcheck shell=bash
# needs ivshmem seekwire
# Links without addresses in the maps: the agents of the guests find them, also after one of them was restarted.

# shellcheck source=wire/tests/vm/links_programs.sh
source wire/tests/vm/links_programs.sh

# forget GUEST: removes the addresses from its map until `remember`.
forget() {
    on "$1" "sed -i '/ guests\$/{/^link /!d}' /etc/seekwire/links && seekwire vm map | grep 'no address'"
}

remember() {
    on "$1" "killall -q seekwire || true; echo '192.0.2.$((3 - $1)) guests' >>/etc/seekwire/links"
}

agents_find_each_other() {
    on 1 "start agent '*answers at port*' seekwire vm agent"
    on 2 "start agent '*leads to the machine at the other end' seekwire vm agent"
    found_by 1
}

found_by() {
    on "$1" "until seekwire vm map | grep '192.0.2.$((3 - $1)) by agent'; do sleep 0.2; done"
}

found_and_found_anew() {
    agents_find_each_other
    shows_the_link
    on 1 'killall -q -9 sockets || true'
    restart 2
    forget 2
    on 2 seekwire vm attach
    on 2 "start agent '*leads to the machine at the other end' seekwire vm agent"
    found_by 1
    on 1 "rm -f /tmp/server*"
    shows_the_link
}

test_agents_find_the_other_guest_and_find_it_anew_after_a_restart() {
    forget 1
    forget 2
    linked found_and_found_anew
    remember 1
    remember 2
}
