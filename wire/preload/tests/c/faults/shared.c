/* Code that both the ends and their driver use. */
#include "faults.h"

#include <dirent.h>
#include <stdarg.h>
#include <time.h>

struct shared *shared;
const char *self, *library;
char directory[LONGEST] = "/dev/shm/seekwire-faults";

void complain(int who, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (shared->complaint[who][0] == 0)
        vsnprintf(shared->complaint[who], sizeof shared->complaint[who], format, list);
    va_end(list);
}

void nap(long microseconds)
{
    nanosleep(&(struct timespec){microseconds / 1000000, microseconds % 1000000 * 1000}, NULL);
}

/* splitmix64 (Steele, Lea, Flood 2014) */
uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

uint64_t roll(uint64_t *state, uint64_t below)
{
    *state = mix(*state);
    return *state % below;
}

int count_files(const char *path, const char *ending)
{
    DIR *files = opendir(path);
    int count = 0;
    for (struct dirent *file; files != NULL && (file = readdir(files)) != NULL;) {
        size_t length = strlen(file->d_name);
        count += file->d_name[0] != '.' && length >= strlen(ending) &&
                 strcmp(file->d_name + length - strlen(ending), ending) == 0;
    }
    if (files != NULL)
        closedir(files);
    return count;
}
