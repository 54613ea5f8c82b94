/* A direct interpreter of programs: operations one after the other on real memory, no plan. What it
 * leaves in memory is what a plan has to leave. Collectives end at their start. */
#ifndef REFERENCE_H
#define REFERENCE_H

#include "element.h"
#include "ir/program.h"

/* Where an argument lies in an image of the caller's memory. */
typedef struct reference_place {
    int64_t data, storage; /* bytes from the image's start */
    int64_t storage_bytes;
} reference_place_t;

typedef struct reference {
    const ir_program_t *program;
    const ir_extent_t *extents;
    const reference_place_t *places; /* of each argument */
    char *image;
    char **storages; /* by storage: what its views count from; owned unless an argument's */
    bool has_failed; /* an operation failed: the run stopped before it */
} reference_t;

/* image is written by the run. False where there is no memory. */
bool reference_init(reference_t *reference, const ir_program_t *program, const ir_extent_t *extents,
                    const reference_place_t *places, char *image);
void reference_release(reference_t *reference);
void reference_run(reference_t *reference);

/* The view in the reference's memory. Borrows the extents. */
uncopy_bound_t reference_bound(const reference_t *reference, uncopy_view_t view);

#endif
