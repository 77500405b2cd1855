/* Numbers that are closed where the library cannot see it, and what gets them next. */
#include "common.h"
#include "raw.h"

/* The library's own descriptors, too, begin at such numbers. */
static void many_at_once(void)
{
    enum { COUNT = 150 };
    static int a[COUNT], b[COUNT];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT; i++)
            pair(&a[i], &b[i]);
        for (int i = 0; i < COUNT; i++)
            CHECK(raw(SYS_close, a[i], 0, 0) == 0 && raw(SYS_close, b[i], 0, 0) == 0);
    }
    int c, d;
    char byte;
    pair(&c, &d);
    write_all(c, "x", 1);
    say("after many others", read(d, &byte, 1));
    close(c), close(d);
}

int main(void)
{
    many_at_once();
    return 0;
}
