/* Limited resources: a file system of the registry's own, and a control group with a limit on its memory. */
#include "faults.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* ---- the file system ---- */

static char place[64], usual[LONGEST];

/* Mounts it where no other process sees it, and puts the registry there. */
const char *enter_small_place(enum fault fault)
{
    static int apart;
    char command[512];
    strcpy(place, "/tmp/seekwire-faults-XXXXXX");
    if (!apart && (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0))
        return "no mount namespace is to be had";
    apart = 1;
    if (mkdtemp(place) == NULL)
        return "no directory in /tmp";
    if (fault == FULL) {
        if (mount("small", place, "tmpfs", MS_NOSUID | MS_NODEV, "size=8m,mode=0700") != 0) {
            rmdir(place);
            return "no tmpfs can be mounted";
        }
    } else {
        /* Like NFS 3 and FAT: no fallocate(2). The other one cannot be smaller. */
        const char *megabytes = fault == SPARSE ? "10" : "160", *make = fault == SPARSE ? "ext2 -q -F" : "btrfs -q";
        snprintf(command, sizeof command,
                 "{ truncate -s %sm %s.image && mkfs.%s %s.image && mount -o loop %s.image %s; } >/dev/null 2>&1", megabytes,
                 place, make, place, place, place);
        int mounted = system(command) == 0;
        snprintf(command, sizeof command, "%s.image", place);
        unlink(command);
        if (!mounted) {
            rmdir(place);
            return fault == SPARSE ? "no ext2 can be made and mounted" : "no btrfs can be made and mounted";
        }
    }
    strcpy(usual, directory);
    snprintf(directory, sizeof directory, "%s/registry", place);
    return NULL;
}

void leave_small_place(void)
{
    umount2(place, MNT_DETACH);
    rmdir(place);
    strcpy(directory, usual);
}

static int filling(int flags)
{
    char path[80];
    snprintf(path, sizeof path, "%s/filling", place);
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0600);
}

void fill_place(void)
{
    static const char zeros[1 << 16];
    int fd = filling(0);
    for (size_t piece = sizeof zeros; fd >= 0 && piece >= 512;)
        if (write(fd, zeros, piece) <= 0)
            piece /= 2;
    /* Dirty pages have their room reserved; written ones need new room when they change. */
    syncfs(fd);
    close(fd);
}

void empty_place(void)
{
    close(filling(O_TRUNC));
}

/* Frees room that the filling took. */
void leave_room(size_t length)
{
    int fd = filling(0);
    off_t end = lseek(fd, 0, SEEK_END);
    /* Even that can take room. */
    if (ftruncate(fd, end > (off_t)length ? end - length : 0) != 0)
        empty_place();
    close(fd);
}

/* ---- the control group ---- */

static char group[LONGEST];
/* Whether it is version 2. */
static int unified;

/* Returns false if it cannot be written. */
static int put(const char *name, const char *text)
{
    char path[LONGEST + 40];
    snprintf(path, sizeof path, "%s/%s", group, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return done;
}

/* The number after `key`, or the only one. */
static long number(const char *name, const char *key)
{
    char path[LONGEST + 40], line[256];
    long found = 0;
    snprintf(path, sizeof path, "%s/%s", group, name);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, key, strlen(key)) == 0)
            found = atol(line + strlen(key));
    if (file != NULL)
        fclose(file);
    return found;
}

/* Looks for the group of this process below one of the mount points of groups. */
static int find_own(const char *entry, const char *const *mounts)
{
    char line[PATH_MAX];
    FILE *file = fopen("/proc/self/cgroup", "re");
    int found = 0;
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        char *path = strstr(line, entry);
        if (path == NULL)
            continue;
        path += strlen(entry);
        path[strcspn(path, "\n")] = 0;
        for (; *mounts != NULL && !found; mounts++) {
            snprintf(group, sizeof group, "%.100s%.800s/cgroup.procs", *mounts, path);
            found = access(group, W_OK) == 0;
            *strrchr(group, '/') = 0;
        }
    }
    if (file != NULL)
        fclose(file);
    return found;
}

/* Makes a group below that of this process. */
const char *make_group(void)
{
    static const char *const first[] = {"/sys/fs/cgroup/memory", NULL};
    static const char *const second[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified", NULL};
    unified = 0;
    if (!find_own(":memory:", first)) {
        unified = 1;
        if (!find_own("0::", second))
            return "this process may not make control groups";
        /* If processes are in the group itself, a process above has to do this. */
        put("cgroup.subtree_control", "+memory");
    }
    snprintf(group + strlen(group), sizeof group - strlen(group), "/seekwire-faults-%d", getpid());
    if (mkdir(group, 0755) != 0)
        return "no control group can be made";
    if (!put(unified ? "memory.max" : "memory.limit_in_bytes", unified ? "max" : "-1")) {
        rmdir(group);
        return "the memory of control groups is not to be limited here";
    }
    return NULL;
}

/* Called in a new process. */
void join_group(void)
{
    if (!put("cgroup.procs", "0"))
        _exit(96);
}

void limit_group(uint64_t *random)
{
    char text[32];
    long used = number(unified ? "memory.current" : "memory.usage_in_bytes", "");
    /* Pages are charged by batches of some dozens. */
    sprintf(text, "%ld", used + (long)roll(random, 1 << (10 + roll(random, 12))));
    put(unified ? "memory.max" : "memory.limit_in_bytes", text);
}

void free_group(void)
{
    put(unified ? "memory.max" : "memory.limit_in_bytes", unified ? "max" : "-1");
}

/* Returns the number of processes that the kernel has killed there. */
int remove_group(void)
{
    int kills = number(unified ? "memory.events" : "memory.oom_control", "oom_kill ");
    /* A killed process does not disappear at once. */
    for (int tries = 0; tries < 1000 && rmdir(group) != 0; tries++)
        nap(1000);
    return kills;
}
