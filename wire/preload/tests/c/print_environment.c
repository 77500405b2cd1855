/* Reports two variables. Needs only a C library. */
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    const char *libraries = getenv("LD_PRELOAD"), *other = getenv("OTHER");
    printf("%s, OTHER=%s\n", libraries ? libraries : "none", other ? other : "none");
    return 7;
}
