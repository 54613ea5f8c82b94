/* The scalar twin of the tile machine: a tile program run one element after the other, by the
 * formulas of pointwise.def and the definition of sums at the head of src/cpu/tile_reduce.c. */
#ifndef TESTS_TILE_TWIN_H
#define TESTS_TILE_TWIN_H

#include "plan/tile.h"

/* Runs the program; operands in place are allowed as for the machine. */
void tile_twin_run(const tile_program_t *program, char *const *data);

#endif
