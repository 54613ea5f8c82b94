/* The tests' own host: memory that is poisoned, a loopback group of any number of ranks, and the
 * operations of externs.h. It checks what a run owes it, and counts and prints each violation:
 *
 *   h1 operands lie in blocks that are there and not released
 *   h2 a SCRATCH base is released once, and all are when a run has succeeded; so is each MADE base
 *      that is no output
 *   h3 each collective started is fenced once; its source is unchanged then, unless it is taken at
 *      the start
 *   h4 no entry gets an operand over a destination in flight
 *
 * Memory that a run allocates starts as 0xcb bytes, released memory becomes 0xdd, a destination in
 * flight 0x5a. Outputs live until fake_host_release. Confined to one thread. */
#ifndef FAKE_HOST_H
#define FAKE_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "uncopy/host.h"

typedef struct fake_block {
    uint32_t base;
    uncopy_base_kind_t kind;
    char *data;
    int64_t bytes;
    bool is_released;
    bool is_of_frame; /* an arena: until its frame ends */
    uncopy_frame_t *frame;
} fake_block_t;

typedef struct fake_work {
    uint32_t work;
    uncopy_collective_t collective;
    uncopy_bound_t source, destination; /* with arrays of their own, in numbers */
    int64_t numbers[4 * UNCOPY_MAX_RANK];
    char *snapshot;
} fake_work_t;

enum { FAKE_HOST_ROOM = 256 };

typedef struct fake_host {
    fake_block_t blocks[FAKE_HOST_ROOM];
    size_t num_blocks;
    fake_work_t *works[FAKE_HOST_ROOM];
    size_t num_works;
    int64_t num_violations;
    int64_t num_calls, num_collectives;
} fake_host_t;

/* host's entries with self as their self; matmul is absent. A run's call_data is the bound of
 * argument 0, for test.kept. */
void fake_host_init(fake_host_t *self, uncopy_host_t *out_host);
/* After a run and the comparison of its outputs (data pointers of num_outputs of them): checks h2
 * and h3 unless has_failed, and frees what is not a frame's. */
void fake_host_finish(fake_host_t *self, void *const *outputs, size_t num_outputs, bool has_failed);
/* When all functions that used it are released. */
void fake_host_release(fake_host_t *self);

#endif
