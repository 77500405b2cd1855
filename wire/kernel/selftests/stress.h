/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef STRESS_H
#define STRESS_H

#include "net.h"

/* Several threads take all bytes of one stream; each is received once. */
void stress_share(const struct pair_options *options, size_t total);

#endif
