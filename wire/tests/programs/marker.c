/* A library for LD_PRELOAD that shows that it was loaded. */
#include <unistd.h>

__attribute__((constructor)) static void loaded(void)
{
    (void)!write(2, "marker loaded\n", 14);
}
