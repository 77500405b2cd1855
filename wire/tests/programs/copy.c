/* Copies standard input to standard output until it ends. Built statically: no library is loaded into it. */
#include <unistd.h>

int main(void)
{
    static char buffer[65536];
    ssize_t length;
    while ((length = read(0, buffer, sizeof buffer)) > 0) {
        for (ssize_t done = 0; done < length;) {
            ssize_t written = write(1, buffer + done, length - done);
            if (written < 0)
                return 1;
            done += written;
        }
    }
    return length < 0;
}
