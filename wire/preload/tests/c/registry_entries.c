/* An accepted connection whose other end makes raw system calls stays on TCP. It is in the registry until it is closed. */
#include "common.h"
#include "raw.h"

#include <dirent.h>
#include <sys/stat.h>

#define HEADER 4096
#define SLOT 256
#define LIVE 2

/* Number of live entries in the registry; -1 without one. */
static int entries(void)
{
    const char *path = getenv("SEEKWIRE_DIR");
    DIR *directory = path ? opendir(path) : NULL;
    if (!directory)
        return -1;
    int found = -1;
    for (struct dirent *file; (file = readdir(directory));) {
        if (strncmp(file->d_name, "registry-", 9) != 0)
            continue;
        int fd = openat(dirfd(directory), file->d_name, O_RDONLY);
        struct stat about;
        CHECK(fd >= 0 && fstat(fd, &about) == 0);
        found = 0;
        for (off_t at = HEADER; at < about.st_size; at += SLOT) {
            uint64_t state;
            CHECK(pread(fd, &state, sizeof state, at) == sizeof state);
            found += (uint32_t)state == LIVE;
        }
        CHECK(close(fd) == 0);
    }
    closedir(directory);
    return found;
}

int main(void)
{
    struct sockaddr_in address;
    char byte = 0;
    int listener = listener_on(&address), is_accelerated = getenv("LD_PRELOAD") != NULL;
    for (int i = 0; i < 5; i++) {
        long peer = raw(SYS_socket, AF_INET, SOCK_STREAM, 0);
        CHECK(peer >= 0 && raw(SYS_connect, peer, (long)&address, sizeof address) == 0);
        int end = accept(listener, NULL, NULL);
        CHECK(end >= 0);
        for (int message = 0; message < 20; message++) {
            CHECK(raw(SYS_write, peer, (long)&byte, 1) == 1);
            read_all(end, &byte, 1);
        }
        CHECK(!is_accelerated || entries() == 1);
        CHECK(close(end) == 0 && raw(SYS_close, peer, 0, 0) == 0);
        CHECK(!is_accelerated || entries() == 0);
    }
    return 0;
}
