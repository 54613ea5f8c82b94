/* Transposition of a block in cache: to[c][r] = from[r][c], both with contiguous rows.
 *
 * Elements of 2 and 4 bytes go through registers, 8 by 8 and 4 by 4; other sizes one by one. Edges
 * are done one by one. Blocks must not overlap. Cost: 0.1 to 0.2 ns an element of 2 or 4 bytes. */
#ifndef CPU_TRANSPOSE_H
#define CPU_TRANSPOSE_H

#include <stdint.h>

/* element_bytes is 1, 2, 4, 8 or 16; strides are bytes between rows. from has rows by columns
 * elements. */
void transpose_block(int64_t element_bytes, char *to, int64_t to_stride, const char *from,
                     int64_t from_stride, int64_t rows, int64_t columns);

#endif
