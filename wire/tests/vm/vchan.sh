# shellcheck shell=bash
# needs xen
# Xen's own carrier between two domains.

# Xen's number of a guest, which is another one after each start.
number() {
    on 0 cat "/run/number.$1"
}

test_bytes_come_back_over_vchan() {
    on 1 start echo listening vchan echo "$(number 2)" one
    on 2 vchan ask "$(number 1)" one 100 1
    on 1 await echo >/dev/null
    on 2 start echo listening vchan echo "$(number 1)" two
    on 1 vchan ask "$(number 2)" two 20 60000
    on 2 await echo >/dev/null
}
