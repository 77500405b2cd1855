/*
 * The memory that the two guests share, as a program gets it without a driver: ivshmem-plain is a PCI device
 * whose BAR2 is the memory, and sysfs maps it (QEMU's docs/specs/ivshmem-spec.txt; Linux's
 * Documentation/PCI/sysfs-pci.rst).
 *
 *   region size
 *   region write OFFSET WORD
 *   region read OFFSET
 *   region wait OFFSET WORD      until it is there
 *
 * OFFSET is in bytes, a WORD has 64 bits.
 */
#include <err.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether the file DIRECTORY/NAME of sysfs begins with this number. */
static int has(const char *directory, const char *name, unsigned int number)
{
    char path[256];
    unsigned int found = 0;
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    file = fopen(path, "re");
    if (!file || fscanf(file, "%x", &found) != 1)
        found = 0;
    if (file)
        fclose(file);
    return found == number;
}

static int open_region(void)
{
    glob_t devices;
    char path[256];

    if (glob("/sys/bus/pci/devices/*", 0, NULL, &devices))
        errx(1, "no PCI devices");
    for (size_t i = 0; i < devices.gl_pathc; i++) {
        if (!has(devices.gl_pathv[i], "vendor", 0x1af4) || !has(devices.gl_pathv[i], "device", 0x1110))
            continue;
        snprintf(path, sizeof(path), "%s/resource2", devices.gl_pathv[i]);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0)
            err(1, "%s", path);
        globfree(&devices);
        return fd;
    }
    errx(1, "no device 1af4:1110");
}

int main(int argc, char **argv)
{
    int fd = open_region();
    struct stat about;
    uint64_t offset = argc > 2 ? strtoull(argv[2], NULL, 0) : 0, word = argc > 3 ? strtoull(argv[3], NULL, 0) : 0;

    if (fstat(fd, &about))
        err(1, "fstat");
    if (argc < 2 || offset % sizeof(word) || offset + sizeof(word) > (uint64_t)about.st_size)
        errx(2, "no such command or offset");
    char *memory = mmap(NULL, about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        err(1, "mmap");
    uint64_t *at = (uint64_t *)(memory + offset);

    if (!strcmp(argv[1], "size") && argc == 2) {
        printf("%jd\n", (intmax_t)about.st_size);
    } else if (!strcmp(argv[1], "write") && argc == 4) {
        __atomic_store_n(at, word, __ATOMIC_RELEASE);
    } else if (!strcmp(argv[1], "read") && argc == 3) {
        printf("%#" PRIx64 "\n", __atomic_load_n(at, __ATOMIC_ACQUIRE));
    } else if (!strcmp(argv[1], "wait") && argc == 4) {
        while (__atomic_load_n(at, __ATOMIC_ACQUIRE) != word)
            sched_yield();
    } else {
        errx(2, "no such command");
    }
    return 0;
}
