/* The C interface, linked against the library. */
#include "common.h"
#include "seekwire.h"

/* A program that was built with a later header, in which both structs are longer. */
static void a_later_struct_is_filled_as_far_as_it_is_known(int fd)
{
    struct {
        struct seekwire_status known;
        uint64_t later;
    } status = {.known.size = sizeof status, .later = 7};
    CHECK(seekwire_status(fd, &status.known) == 0);
    CHECK(status.known.size == sizeof status.known && status.known.attached == 1 && status.later == 7);
    struct {
        struct seekwire_extent known;
        uint64_t later;
    } extent = {.known.size = sizeof extent, .later = 7};
    CHECK(seekwire_avail(fd, &extent.known, NULL, 0) == 0);
    CHECK(extent.known.size == sizeof extent.known && extent.known.head == 32 && extent.later == 7);
}

int main(void)
{
    int a, b, other = open("/dev/null", O_RDWR), datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    char buf[16];
    struct seekwire_status status = {.size = sizeof status};
    CHECK(seekwire_version()[0] >= '0' && seekwire_version()[0] <= '9');
    CHECK(seekwire_status(-1, &status) == -1 && errno == EBADF);
    CHECK(seekwire_status(other, &status) == -1 && errno == ENOTSOCK);
    CHECK(seekwire_status(datagrams, &status) == -1 && errno == EINVAL);
    CHECK(seekwire_fall_back(other) == -1 && errno == ENOTSOCK);
    pair(&a, &b);
    CHECK(seekwire_status(a, NULL) == -1 && errno == EINVAL);
    CHECK(seekwire_status(a, (void *)8) == -1 && errno == EFAULT);
    status.size = 4;
    CHECK(seekwire_status(a, &status) == -1 && errno == EINVAL && status.size == 4);
    a_later_struct_is_filled_as_far_as_it_is_known(a);
    status.size = sizeof status;
    CHECK(seekwire_status(a, &status) == 0 && status.attached == 1);
    CHECK(status.tx_carrier == SEEKWIRE_CARRIER_RING && status.rx_carrier == SEEKWIRE_CARRIER_RING);
    CHECK(status.tx_tcp + status.tx_ring == 32 && status.rx_tcp + status.rx_ring == 32 && status.tx_ring > 0);
    write_all(a, "before", 6);
    CHECK(seekwire_fall_back(a) == 0);
    write_all(a, "after", 5);
    CHECK(recv(b, buf, 11, MSG_WAITALL) == 11 && memcmp(buf, "beforeafter", 11) == 0);
    write_all(b, "back", 4);
    read_all(a, buf, 4);
    CHECK(seekwire_status(a, &status) == 0 && status.tx_carrier == SEEKWIRE_CARRIER_TCP && status.rx_carrier == SEEKWIRE_CARRIER_TCP);
    CHECK(status.tx_tcp + status.tx_ring == 43 && status.rx_tcp + status.rx_ring == 36);
    CHECK(shutdown(a, SHUT_WR) == 0 && recv(b, buf, 1, 0) == 0 && shutdown(b, SHUT_WR) == 0 && recv(a, buf, 1, 0) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(seekwire_status(i ? b : a, &status) == 0 && status.attached == 1);
        CHECK(status.tx_tcp + status.tx_ring == (i ? 36 : 43) && status.rx_tcp + status.rx_ring == (i ? 43 : 36));
    }
    return 0;
}
