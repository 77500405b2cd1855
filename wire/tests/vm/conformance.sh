# shellcheck shell=bash
# shellcheck disable=SC2154  # variables of scripts/vm
# needs conformance
# The promises of every carrier, which no peer can break, over memory that machines really share: tests of
# seekwire-transport, with both ends in one guest. Under Xen, a domain grants that memory to itself.

# shellcheck source=wire/tests/vm/vchan.sh
source wire/tests/vm/vchan.sh

# passes MODULE: all tests of that module, over the region.
passes() {
    # shellcheck disable=SC2034  # for `on`
    local LIMIT=500
    local region_is output
    if [[ $xen -eq 1 ]]; then
        region_is=xen:$(number 1)
        on 1 'echo 16384 >/sys/module/xen_gntalloc/parameters/limit'
    else
        region_is=$(on 1 "sed -n 's/^link guests ivshmem \([^ ]*\) .*/\/sys\/bus\/pci\/devices\/\1/p' /etc/seekwire/links")
        on 1 "echo 1 >$region_is/enable"
        region_is+=/resource2
    fi
    # One test at a time, so that each has its part of the region to itself. Tests that do not use the region are skipped.
    output=$(on 1 "SEEKWIRE_TEST_REGION=$region_is transport $1:: --test-threads=1 --skip kernel_tcp")
    echo "$output"
    [[ $output == *"memory of two machines: "*" bytes of $region_is"* ]] || fail "not over the region"
    [[ $output =~ "test result: ok. "([0-9]+)" passed; 0 failed; 0 ignored;" && ${BASH_REMATCH[1]} -gt 0 ]] || fail "not all have passed"
}

test_conformance_over_the_region() {
    passes conformance
}

test_switching_over_the_region() {
    passes switching
}

test_no_hostile_peer_breaks_an_end_over_the_region() {
    passes hostile
}
