/* What the sender of the programs that seek sends: no range of the stream looks like another one near it. */
#ifndef PATTERN_H
#define PATTERN_H

#include <stdint.h>

static inline unsigned char pattern(uint64_t position)
{
    uint64_t mixed = (position + 1) * 0x9e3779b97f4a7c15u;
    return mixed >> 56;
}

#endif
