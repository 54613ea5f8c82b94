/* Who owns which bytes: the arithmetic of collectives, without memory of others and without
 * waiting. Pure; tested alone.
 *
 * A pattern says where the bytes for (or from) each rank lie in this process: rows, of which each
 * rank has its part of every one, `stride` apart, or, by_rank, row p whole to rank p. A stream
 * walks one rank's bytes of a pattern in order. So a flat buffer, a list of segments and a list of
 * blocks of uneven sizes are one thing to the algorithms. */
#ifndef COMM_PATTERN_H
#define COMM_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pattern_row {
    char *address; /* sources are only read */
    size_t bytes;  /* of one rank's part */
    size_t stride; /* from one rank's part to the next; 0: all ranks have the same bytes */
} pattern_row_t;

typedef struct pattern {
    const pattern_row_t *rows;
    size_t num_rows;
    bool is_by_rank; /* num_rows is the number of ranks, strides are not used */
} pattern_t;

/* What is left of one rank's bytes. */
typedef struct stream {
    const pattern_row_t *row;
    size_t num_rows; /* left, *row included */
    size_t rank;     /* times the stride; 0 by rank */
    size_t at;       /* within *row */
} stream_t;

stream_t pattern_stream(const pattern_t *pattern, int32_t rank);
/* Bytes of one rank. */
size_t pattern_bytes(const pattern_t *pattern, int32_t rank);
/* Of the rank with the most, among size ranks but `except`. */
size_t pattern_most_bytes(const pattern_t *pattern, int32_t size, int32_t except);
/* Hash of all sizes: equal lists give equal values. */
uint64_t pattern_shape(const pattern_t *pattern);
/* Whether rank's bytes are one run (or none); its address. */
bool pattern_is_run(const pattern_t *pattern, int32_t rank, char **out_address);

/* The run that the stream stands at: its address, at most limit bytes of it in *out_bytes, and the
 * stream moves past them. *out_bytes is 0 only at the end or for limit 0. */
char *stream_next(stream_t *stream, size_t limit, size_t *out_bytes);
/* Bytes in the run at which the stream stands; 0 at the end. */
size_t stream_run_bytes(stream_t *stream);

/* The part of rank when count elements of element_bytes are cut in size parts that begin at lines
 * of 64 bytes, the first ones the larger. */
void pattern_part(size_t count, size_t element_bytes, int32_t size, int32_t rank, size_t *out_first,
                  size_t *out_count);

/* Payload of chunk_bytes cut for num_parts readers: bytes of one, whole lines. */
size_t pattern_part_bytes(size_t chunk_bytes, int32_t num_parts);
/* Steps that carry bytes in parts of part_bytes; 1 for 0 bytes. */
uint32_t pattern_rounds(size_t bytes, size_t part_bytes);
/* Which of owner's parts is reader's, where each of the size - 1 others has one. */
int32_t pattern_part_index(int32_t owner, int32_t reader, int32_t size);

#endif
