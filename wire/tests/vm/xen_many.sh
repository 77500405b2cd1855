# shellcheck shell=bash
# shellcheck disable=SC2154  # variables of scripts/vm
# needs xen seekwire
# A thousand connections between two domains at a time, all of them over memory that one grants the other, and woken by event
# channels. libxenvchan needs xenstore for each, and ends at about 25.

# shellcheck source=wire/tests/vm/xen_links.sh
source wire/tests/vm/xen_links.sh
# shellcheck source=wire/tests/vm/links_many.sh
source wire/tests/vm/links_many.sh

test_a_thousand_connections_over_xen_at_once() {
    local size=160M
    granted many_at_once
}
