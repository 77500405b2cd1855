/* System calls that bypass the C library. */
#ifndef RAW_H
#define RAW_H

#include <sys/syscall.h>

/* Returns the kernel's result: minus an error number on failure. */
__attribute__((unused)) static long raw6(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#endif
}

__attribute__((unused)) static long raw(long number, long a, long b, long c)
{
    return raw6(number, a, b, c, 0, 0, 0);
}

#endif
