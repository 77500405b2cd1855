/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A filter for `seekwire flow` in C: for each block it sends a line with its CRC-32, and at the end of a unit of work the number
 * of bytes.
 *
 *     cc checksum.c $(pkg-config --cflags seekwire) -o checksum
 *
 *     [filter.checksum]
 *     run = "framed"
 *     command = ["./checksum"]
 */
#include <inttypes.h>
#include <seekwire_filter.h>
#include <stdio.h>

struct checksum {
    uint32_t table[256];
    uint64_t bytes;
};

static const char *init(void *state, const char *argument, uint64_t unit, struct seekwire_filter_output *out)
{
    struct checksum *sum = state;
    (void)argument, (void)unit, (void)out;
    sum->bytes = 0;
    return NULL;
}

static const char *process(void *state, const struct seekwire_filter_block *block, struct seekwire_filter_output *out)
{
    struct checksum *sum = state;
    uint32_t crc = UINT32_MAX;
    char line[64];
    for (size_t at = 0; at < block->length; at++)
        crc = sum->table[(crc ^ block->bytes[at]) & 0xff] ^ crc >> 8;
    sum->bytes += block->length;
    int length = snprintf(line, sizeof line, "%" PRIu64 " %08" PRIx32 "\n", block->sequence, crc ^ UINT32_MAX);
    seekwire_filter_send(out, 0, line, (size_t)length);
    return NULL;
}

static const char *finalize(void *state, struct seekwire_filter_output *out)
{
    struct checksum *sum = state;
    char line[64];
    int length = snprintf(line, sizeof line, "%" PRIu64 " bytes\n", sum->bytes);
    seekwire_filter_send(out, 0, line, (size_t)length);
    return NULL;
}

int main(void)
{
    struct checksum sum;
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
        sum.table[byte] = crc;
    }
    struct seekwire_filter filter = { .init = init, .process = process, .finalize = finalize };
    return seekwire_filter_run(&filter, &sum);
}
