# shellcheck shell=bash
# shellcheck disable=SC2154  # variables of scripts/vm
# needs ivshmem seekwire
# The memory device is unplugged from guest 2, which keeps running.

# shellcheck source=wire/tests/vm/links_programs.sh
source wire/tests/vm/links_programs.sh

# talker NAME: starts a program in guest 2 that has exchanged data with the server in guest 1 and repeats it on a signal.
talker() {
    on 2 "mkfifo /tmp/go_$1 && start $1 talked sh -c \
        'seekwire run -- sockets hold 192.0.2.1 7000 60000 /tmp/go_$1; echo status \$?'"
}

# ends NAME TEXT: signals the program NAME, which must write TEXT at its end.
ends() {
    local output
    on 2 "echo >/tmp/go_$1"
    output=$(on 2 await "$1" | tail -n +2 | tr '\n' ' ')
    echo "$1: $output"
    [[ $output == "$2 " ]] || fail "$1 writes \"$output\" instead of \"$2\""
}

# carried WHAT: what carries the connection of the only program in guest 2, as it says itself.
carried() {
    local pid there
    pid=$(on 2 pidof sockets)
    there=$(on 2 seekwire status --json | tr -d '\n' | sed 's/},{/}\n{/g' | grep "\"pid\":$pid,")
    echo "$there"
    [[ $there == *"\"tx\":\"$1\""*"\"rx\":\"$1\""* ]] || fail "not carried by $1"
}

# The one that the guests had.
plug_and_attach() {
    plug 2
    # shellcheck disable=SC2016  # what the guest expands
    on 2 'until [ -e "/sys/bus/pci/devices/$(sed -n "s/^link guests ivshmem \([^ ]*\) .*/\1/p" /etc/seekwire/links)" ]; do
        sleep 0.1; done; seekwire vm attach'
}

serves() {
    on 1 "start server 'listening *' seekwire run -- sockets echo 0.0.0.0 7000"
}

goes_on_without_it() {
    serves
    talker before
    carried ring
    ends before "talked again status 0"
    on 2 seekwire vm detach guests --wait 30
    talker meanwhile
    carried tcp
    unplug 2
    [[ $(on 2 seekwire vm status) == *"no PCI device"* ]] || fail "vm status does not miss the device"
    ends meanwhile "talked again status 0"
    plug_and_attach
    talker after
    carried ring
    ends after "talked again status 0"
}

test_a_device_that_nobody_has_mapped_is_taken_away_and_given_back() {
    linked goes_on_without_it
}

stands_alone() {
    local pid detached
    serves
    talker one
    carried ring
    pid=$(on 2 pidof sockets)
    ! detached=$(on 2 seekwire vm detach guests --wait 0 2>&1) || fail "nothing keeps the device: $detached"
    [[ $detached == *"mapped by $pid (sockets)"* ]] || fail "who has it mapped is not named: $detached"
    unplug 2
    # As the kernel has it: nothing is taken from the process, which does not learn that the memory is gone.
    on 2 "grep resource2 /proc/$pid/maps"
    # Later programs connect to the same server.
    on 2 "start other talked seekwire run -- sockets wait 192.0.2.1 7000 && kill -9 $pid \$(cat /tmp/other.pid)"
    plug_and_attach
    talker after
    carried ring
    ends after "talked again status 0"
}

test_who_still_has_the_device_mapped_keeps_the_mapping_and_harms_nobody() {
    linked stands_alone
}
