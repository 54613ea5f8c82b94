/* A plan: the instructions that run a program for one set of alias facts. Immutable, safe to share
 * between threads. */
#ifndef UNCOPY_PLAN_H
#define UNCOPY_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "uncopy/argument.h"
#include "uncopy/host.h"
#include "uncopy/program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct uncopy_plan uncopy_plan_t;

/* In which order operations are laid out (the field's names of the sort strategies). */
typedef enum uncopy_order {
    UNCOPY_ORDER_PROGRAM = 0,
    UNCOPY_ORDER_BFS = 1,
    UNCOPY_ORDER_DFS = 2,
    UNCOPY_ORDER_RDFS = 3,
    UNCOPY_ORDER_STABLE_RDFS = 4,
} uncopy_order_t;

/* Whose kernels run. */
typedef enum uncopy_kernels {
    UNCOPY_KERNELS_NATIVE = 0, /* ours where we have one, else the host's */
    UNCOPY_KERNELS_EXTERN = 1, /* the host's for every operation */
} uncopy_kernels_t;

/* Bits of uncopy_options_t.strict: what must not be in a plan. */
enum {
    UNCOPY_STRICT_COPIES = 1 << 0,
    UNCOPY_STRICT_EXTERNS = 1 << 1,
    UNCOPY_STRICT_REPLANS = 1 << 2,
};

/* Bits of uncopy_options_t.passes_off. */
enum {
    UNCOPY_PASS_NORMALISE = 1 << 0,
    UNCOPY_PASS_ELIDE = 1 << 1,
    UNCOPY_PASS_PLACE = 1 << 2, /* off: scratch storages share no memory */
};

/* Zero-initialised options are the defaults. */
typedef struct uncopy_options {
    uncopy_order_t order;
    uncopy_kernels_t kernels;
    unsigned strict;
    unsigned passes_off;
    int threads;     /* that a run may use, the calling one included; 0: as many as the host says */
    int has_overlap; /* collectives start as early and are fenced as late as conflicts allow */
} uncopy_options_t;

/* Plans a program for these arguments' addresses, or for its assume lines where arguments is NULL.
 * Errors: UNCOPY_ERROR_ARGUMENT (also options that do not exist), _PROGRAM, _RANGE, _STRICT,
 * _MEMORY, _UNSUPPORTED. Functions that ask a plan something take NULL as a plan with nothing in
 * it; those that return a status refuse it. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_plan_create(uncopy_program_t *program,
                                                                const uncopy_options_t *options,
                                                                const uncopy_argument_t *arguments,
                                                                size_t num_arguments,
                                                                uncopy_plan_t **out_plan);
UNCOPY_API void uncopy_plan_retain(uncopy_plan_t *plan);
/* NULL is allowed. */
UNCOPY_API void uncopy_plan_release(uncopy_plan_t *plan);

/* The plan as a person reads it: instructions, bytes, order edges. uncopy_text_release when done.
 */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_plan_print(const uncopy_plan_t *plan,
                                                               char **out_text);

/* In words: what shares with what, each copy that stays and why, each extern, each order edge with
 * its bytes. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_plan_explain(const uncopy_plan_t *plan,
                                                                 char **out_text);

/* What one run of a plan does, counted when it was made. */
typedef struct uncopy_plan_counts {
    int64_t instructions;
    int64_t moves, bytes_moved;
    int64_t copies, bytes_copied;
    int64_t externs, collectives;
    int64_t arena_bytes, arena_lower_bound_bytes;
    int64_t removed;    /* copies that elide removed */
    int64_t cost_ns;    /* rough estimate of the native instructions' time */
    int64_t made_bytes; /* of results that host calls make and of scratch that the host allocates */
} uncopy_plan_counts_t;

UNCOPY_API void uncopy_plan_count(const uncopy_plan_t *plan, uncopy_plan_counts_t *out_counts);

/* A copy that stayed. Texts are borrowed from the plan. */
typedef struct uncopy_copy {
    const char *reason; /* code, as "read-after-write" (docs/reasons.md) */
    const char *words;  /* the sentence with the conflicting operations, bytes and lines */
    int64_t bytes;
    const char *file;
    int line;
} uncopy_copy_t;

UNCOPY_API size_t uncopy_plan_num_copies(const uncopy_plan_t *plan);
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_plan_copy(const uncopy_plan_t *plan,
                                                              size_t index,
                                                              uncopy_copy_t *out_copy);

/* Name of the host operation of extern number index ("aten.sort.default"), with its line. */
UNCOPY_API size_t uncopy_plan_num_externs(const uncopy_plan_t *plan);
UNCOPY_API const char *uncopy_plan_extern(const uncopy_plan_t *plan, size_t index,
                                          const char **out_file, int *out_line);

/* How output number index is given. */
typedef enum uncopy_output_kind {
    UNCOPY_OUTPUT_ARGUMENT = 0,   /* the caller's own argument, as a whole */
    UNCOPY_OUTPUT_VIEW = 1,       /* a view of an argument's storage */
    UNCOPY_OUTPUT_FRESH = 2,      /* a base of kind OUTPUT or MADE, exactly its layout */
    UNCOPY_OUTPUT_FRESH_VIEW = 3, /* a view of such a base */
    UNCOPY_OUTPUT_CONSTANT = 4,   /* a view of a constant */
} uncopy_output_kind_t;

typedef struct uncopy_output {
    uncopy_output_kind_t kind;
    uncopy_bound_t bound; /* data is NULL until a run */
} uncopy_output_t;

UNCOPY_API size_t uncopy_plan_num_outputs(const uncopy_plan_t *plan);
/* index below uncopy_plan_num_outputs; borrowed from the plan. */
UNCOPY_API const uncopy_output_t *uncopy_plan_output(const uncopy_plan_t *plan, size_t index);

/* Number index of the program for this plan's sizes; 0 for one that is not there. */
UNCOPY_API int64_t uncopy_plan_number(const uncopy_plan_t *plan, size_t index);

/* Whether instructions that are not the host's write bytes of this argument (the host bumps
 * versions for these). */
UNCOPY_API int uncopy_plan_writes_argument(const uncopy_plan_t *plan, size_t argument);

#ifdef __cplusplus
}
#endif

#endif
