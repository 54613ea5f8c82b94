/* Places storages in one arena: a pure function from sizes and lifetimes to offsets. */
#ifndef COMPILE_PLACE_H
#define COMPILE_PLACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"

/* A storage that lives from instruction first to last, both included. */
typedef struct place_item {
    int64_t size_bytes;
    uint32_t first, last;
    int64_t offset_bytes; /* result */
} place_item_t;

enum { PLACE_ALIGNMENT = 64 };

/* Sets the offsets (multiples of PLACE_ALIGNMENT) so that items alive at the same time share no
 * byte. *out_peak_bytes is the end of the highest, *out_lower_bound_bytes the largest sum of sizes
 * (rounded up to the alignment) alive at one time, which no placement can beat. scratch memory
 * comes from arena. */
UNCOPY_MUST_CHECK uncopy_status_t place_items(arena_t *arena, place_item_t *items, size_t count,
                                              int64_t *out_peak_bytes,
                                              int64_t *out_lower_bound_bytes);

#endif
