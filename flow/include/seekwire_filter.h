/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Seekwire: filters in C and C++ for `seekwire flow`, as separate programs.
 *
 * A pipeline names the program by `run = "framed"`. The program reads blocks from standard input and answers
 * on standard output, in the filter protocol of flow/docs/filter-protocol.md. It needs nothing but this file,
 * which is for C99 and C++ on POSIX systems: there is no library to link with.
 *
 *     static const char *process(void *state, const struct seekwire_filter_block *block,
 *                                struct seekwire_filter_output *out)
 *     {
 *         seekwire_filter_send(out, 0, block->bytes, block->length);
 *         return NULL;
 *     }
 *
 *     int main(void)
 *     {
 *         struct seekwire_filter filter = { 0 };
 *         filter.process = process;
 *         return seekwire_filter_run(&filter, NULL);
 *     }
 *
 * Every callback returns NULL, or a text that describes an error. The text ends the unit of work and this
 * program; another process is started for the next unit. Callbacks may print: standard output is redirected
 * to standard error while the filter runs.
 *
 * Callbacks are called from one thread only, one at a time.
 */
#ifndef SEEKWIRE_FILTER_H
#define SEEKWIRE_FILTER_H

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the filter protocol. */
#define SEEKWIRE_FILTER_VERSION 1u

/* A block. The callback may read and change its bytes until it returns. */
struct seekwire_filter_block {
    unsigned char *bytes; /* never NULL */
    size_t length;
    uint32_t port;     /* input port, from 0 */
    uint64_t sequence; /* of the block in the unit, on its stream, from 0 */
};

/* The destination of a callback's blocks. Callbacks must not use its members. */
struct seekwire_filter_output {
    int fd;
    uint64_t number;
    int error; /* errno of what could not be written */
};

/* A filter. A callback that is NULL does nothing, which is not an error, except `process` if blocks come,
 * and `generate` in a source. */
struct seekwire_filter {
    /* A unit of work begins. `argument` is the argument of its request, valid until the callback returns. */
    const char *(*init)(void *state, const char *argument, uint64_t unit, struct seekwire_filter_output *out);
    /* A block has arrived. */
    const char *(*process)(void *state, const struct seekwire_filter_block *block,
                           struct seekwire_filter_output *out);
    /* A source sends some of its blocks. It sets *more to 1 if it is to be called again. */
    const char *(*generate)(void *state, int *more, struct seekwire_filter_output *out);
    /* The unit has no more blocks. */
    const char *(*finalize)(void *state, struct seekwire_filter_output *out);
    /* Memory for blocks and arguments. NULL: memory from malloc(3), as much as the largest one needs; no
     * other memory is allocated. */
    unsigned char *buffer;
    size_t buffer_size;
};

/* The rest up to seekwire_filter_send() is for this file only. */

enum seekwire_filter_kind {
    SEEKWIRE_FILTER_INIT = 1,
    SEEKWIRE_FILTER_BLOCK,
    SEEKWIRE_FILTER_GENERATE,
    SEEKWIRE_FILTER_END,
    SEEKWIRE_FILTER_DONE,
    SEEKWIRE_FILTER_MORE,
    SEEKWIRE_FILTER_ERROR
};

static inline void seekwire_filter_put(unsigned char *at, uint64_t value, size_t bytes)
{
    size_t i;
    for (i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static inline uint64_t seekwire_filter_get(const unsigned char *at, size_t bytes)
{
    uint64_t value = 0;
    while (bytes > 0)
        value = value << 8 | at[--bytes];
    return value;
}

/* Number of bytes before the end; -1 with errno. */
static inline ssize_t seekwire_filter_read(int fd, unsigned char *to, size_t length)
{
    size_t have = 0;
    while (have < length) {
        size_t most = length - have > 1 << 30 ? 1 << 30 : length - have;
        ssize_t count = read(fd, to + have, most);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return -1;
        if (count == 0)
            break;
        have += (size_t)count;
    }
    return (ssize_t)have;
}

static inline int seekwire_filter_write(struct seekwire_filter_output *out, const void *from, size_t length)
{
    const unsigned char *at = (const unsigned char *)from;
    while (length > 0 && out->error == 0) {
        ssize_t count = write(out->fd, at, length > 1 << 30 ? 1 << 30 : length);
        if (count >= 0) {
            at += count;
            length -= (size_t)count;
        } else if (errno != EINTR) {
            out->error = errno;
        }
    }
    return out->error == 0 ? 0 : -1;
}

static inline int seekwire_filter_frame(struct seekwire_filter_output *out, enum seekwire_filter_kind kind,
                                        uint32_t port, const void *bytes, size_t length)
{
    unsigned char header[24];
    seekwire_filter_put(header, (uint64_t)kind, 4);
    seekwire_filter_put(header + 4, port, 4);
    seekwire_filter_put(header + 8, out->number, 8);
    seekwire_filter_put(header + 16, length, 8);
    if (seekwire_filter_write(out, header, sizeof header) != 0)
        return -1;
    return length == 0 ? 0 : seekwire_filter_write(out, bytes, length);
}

/*
 * Sends a block of `length` bytes to the output port `port`, from 0. May wait while the next filter has no
 * room. `bytes` may be NULL if `length` is 0; the caller may reuse it afterwards.
 *
 * Returns 0, or -1 with errno if the output has been closed. The callback should return then, but need not.
 */
static inline int seekwire_filter_send(struct seekwire_filter_output *out, uint32_t port, const void *bytes,
                                       size_t length)
{
    int result = seekwire_filter_frame(out, SEEKWIRE_FILTER_BLOCK, port, bytes, length);
    if (result != 0)
        errno = out->error;
    return result;
}

/* Prints an error for the user. */
static inline int seekwire_filter_fail(const char *what)
{
    fprintf(stderr, "filter: %s\n", what);
    return 1;
}

static inline int seekwire_filter_serve(const struct seekwire_filter *filter, void *state, int fd,
                                        struct seekwire_filter_output *out, unsigned char **buffer, size_t size)
{
    unsigned char head[24];
    unsigned char hello[16] = { 's', 'e', 'e', 'k', 'f', 'l', 't', '<' };
    ssize_t count = seekwire_filter_read(fd, head, sizeof hello);
    if (count != (ssize_t)sizeof hello || memcmp(head, "seekflt>", 8) != 0 ||
        seekwire_filter_get(head + 8, 4) != SEEKWIRE_FILTER_VERSION)
        return seekwire_filter_fail("this program is a filter for `seekwire flow`: use it with run = \"framed\"");
    seekwire_filter_put(hello + 8, SEEKWIRE_FILTER_VERSION, 4);
    if (seekwire_filter_write(out, hello, sizeof hello) != 0)
        return seekwire_filter_fail("cannot write to standard output");

    while ((count = seekwire_filter_read(fd, head, sizeof head)) == (ssize_t)sizeof head) {
        struct seekwire_filter_block block;
        uint64_t kind = seekwire_filter_get(head, 4);
        uint64_t length = seekwire_filter_get(head + 16, 8);
        const char *error = NULL;
        int more = 0;
        out->number = seekwire_filter_get(head + 8, 8);
        if (length >= size) {
            unsigned char *larger = NULL;
            if (filter->buffer == NULL && length < (uint64_t)(SIZE_MAX / 2))
                larger = (unsigned char *)realloc(*buffer, (size_t)length + 1);
            if (larger == NULL) {
                error = filter->buffer == NULL ? "no memory for a block as large as this one"
                                               : "a block is larger than the buffer: let the stream cut it";
                seekwire_filter_frame(out, SEEKWIRE_FILTER_ERROR, 0, error, strlen(error));
                return seekwire_filter_fail(error);
            }
            *buffer = larger;
            size = (size_t)length + 1;
        }
        if (seekwire_filter_read(fd, *buffer, (size_t)length) != (ssize_t)length)
            return seekwire_filter_fail("a request ends in the middle");
        block.bytes = *buffer;
        block.length = (size_t)length;
        block.port = (uint32_t)seekwire_filter_get(head + 4, 4);
        block.sequence = out->number;
        switch (kind) {
        case SEEKWIRE_FILTER_INIT:
            block.bytes[block.length] = 0;
            if (filter->init != NULL)
                error = filter->init(state, (const char *)block.bytes, out->number, out);
            break;
        case SEEKWIRE_FILTER_BLOCK:
            error = filter->process != NULL ? filter->process(state, &block, out) : "this filter takes no blocks";
            break;
        case SEEKWIRE_FILTER_GENERATE:
            error = filter->generate != NULL ? filter->generate(state, &more, out) : "this filter is not a source";
            break;
        case SEEKWIRE_FILTER_END:
            if (filter->finalize != NULL)
                error = filter->finalize(state, out);
            break;
        default:
            error = "a request of an unknown kind";
        }
        if (error != NULL) {
            size_t text = strlen(error);
            seekwire_filter_frame(out, SEEKWIRE_FILTER_ERROR, 0, error, text > 65536 ? 65536 : text);
            return 1;
        }
        if (seekwire_filter_frame(out, more ? SEEKWIRE_FILTER_MORE : SEEKWIRE_FILTER_DONE, 0, NULL, 0) != 0)
            return seekwire_filter_fail("cannot write to standard output");
    }
    return count == 0 ? 0 : seekwire_filter_fail("a request ends in the middle");
}

/*
 * Serves one unit after another until standard input ends. The callbacks get `state`.
 *
 * Returns the exit status for main(): 0, or 1 if a callback failed or the input is not the filter protocol;
 * then a line on standard error reports it.
 */
static inline int seekwire_filter_run(const struct seekwire_filter *filter, void *state)
{
    struct seekwire_filter_output out = { -1, 0, 0 };
    unsigned char *buffer = filter->buffer;
    size_t size = filter->buffer != NULL ? filter->buffer_size : 0;
    int result;
    out.fd = dup(STDOUT_FILENO);
    if (out.fd < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return seekwire_filter_fail("standard output and standard error must be open");
    result = seekwire_filter_serve(filter, state, STDIN_FILENO, &out, &buffer, size);
    if (filter->buffer == NULL)
        free(buffer);
    close(out.fd);
    return result;
}

#ifdef __cplusplus
}
#endif

#endif
