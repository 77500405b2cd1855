# shellcheck shell=bash
# shellcheck disable=SC2154  # variables of scripts/vm
# needs xen seekwire
# links_load.sh between two domains: random bytes over several connections, and a domain that detaches under load.

# shellcheck source=wire/tests/vm/xen_links.sh
source wire/tests/vm/xen_links.sh
# shellcheck source=wire/tests/vm/links_load.sh
source wire/tests/vm/links_load.sh

test_stress_over_xen() {
    granted stress_between_guests
}

test_a_domain_detaches_under_load() {
    granted detaches_under_load
}
