# shellcheck shell=bash
# shellcheck disable=SC2154  # variables of scripts/vm
# fast
# needs ivshmem
# The memory that the guests share.

test_what_one_guest_writes_the_other_reads() {
    local size
    size=$(on 1 region size)
    [[ $size -eq $(stat --format=%s "$region") ]] || fail "guest 1 has $size bytes"
    on 1 "region write 4096 0x1122334455667788; region write $((size - 8)) 0xabc"
    [[ $(on 2 region read 4096) == 0x1122334455667788 ]] || fail "guest 2 reads something else"
    [[ $(on 2 "region read $((size - 8))") == 0xabc ]] || fail "guest 2 has another last word"
    on 2 region write 4096 0x99
    [[ $(on 1 region read 4096) == 0x99 ]] || fail "guest 1 reads something else"
    # The host also sees it.
    [[ $(od -An -tx8 -j 4096 -N 8 "$region") == *99 ]] || fail "the host reads something else"
    echo "$size bytes"
}

test_a_guest_sees_what_is_written_while_it_waits() {
    on 1 'region write 0 0; region write 8 0'
    on 1 'region wait 0 1; region write 8 2' &
    on 2 'region write 0 1; region wait 8 2'
    wait $!
}

test_the_memory_outlives_a_guest() {
    on 2 region write 64 0x5ee0
    kill_guest 2
    [[ $(on 1 region read 64) == 0x5ee0 ]] || fail "guest 1 reads something else"
    boot 2
    [[ $(on 2 region read 64) == 0x5ee0 ]] || fail "guest 2 reads something else"
    restart 2
    [[ $(on 2 region read 64) == 0x5ee0 ]] || fail "guest 2 reads something else after it restarted"
}
