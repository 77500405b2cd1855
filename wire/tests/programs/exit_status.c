/* Ends with the status that it is told. Built statically for the warning of `seekwire run`. */
#include <stdlib.h>

int main(int argc, char **argv)
{
    return argc > 1 ? atoi(argv[1]) : 0;
}
