/* The tile machine: tile programs (plan/tile.h) made ready for this processor, and run.
 *
 * tile_prepare chooses how the loop is walked and which inner loops run, once for a program; a run
 * then only moves pointers. A run is cut into units, numbered from 0; any thread may run any range
 * of them in any order, and the result is the same bits for every cut. A run is
 *
 *      tile_check   where the program may raise: all indices, before any effect
 *      tile_run     units 0 .. num_units - 1, in ranges
 *      tile_join    once all units are done, where workspace_bytes is not 0
 *
 * Addresses come one a slot and need no alignment. Operands of equal index map may be the same
 * bytes (in place); others are disjoint from what is written.
 *
 * Threads: prepared code is immutable; every function here is safe on it. Stack: 128 KiB. */
#ifndef CPU_TILE_H
#define CPU_TILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/tile.h"

/* program is read until the kernel is dropped. The kernel lies in arena. Errors:
 * UNCOPY_ERROR_MEMORY, UNCOPY_ERROR_UNSUPPORTED (a row or dtype that no inner loop takes; too many
 * values at once). */
UNCOPY_MUST_CHECK uncopy_status_t tile_prepare(const tile_program_t *program, arena_t *arena,
                                               tile_runner_t *out_runner);

/* False: an index is out of range, and *out_failure says which. */
bool tile_check(const tile_kernel_t *kernel, char *const *data, tile_failure_t *out_failure);

void tile_run(const tile_kernel_t *kernel, char *const *data, void *workspace, int64_t first,
              int64_t end);

void tile_join(const tile_kernel_t *kernel, char *const *data, void *workspace);

/* How the loop is walked, for printing: "tiles", "rows", "columns". Static storage. */
const char *tile_method_name(const tile_kernel_t *code);

#endif
