/* A function: a program with the plans made for it so far, one for each set of alias facts that
 * calls have brought.
 *
 * Owner: whoever created or retained it. Threads: any number may run one function; planning takes
 * its lock, running does not. A plan in use stays until its run ends. */
#ifndef UNCOPY_FUNCTION_H
#define UNCOPY_FUNCTION_H

#include <stddef.h>
#include <stdint.h>

#include "uncopy/argument.h"
#include "uncopy/host.h"
#include "uncopy/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct uncopy_function uncopy_function_t;

/* program is retained and frozen. options NULL means the defaults; host NULL means none; both are
 * copied. Errors: UNCOPY_ERROR_ARGUMENT (no program; options that do not exist), _MEMORY. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t
uncopy_function_create(uncopy_program_t *program, const uncopy_options_t *options,
                       const uncopy_host_t *host, uncopy_function_t **out_function);
UNCOPY_API void uncopy_function_retain(uncopy_function_t *function);
/* NULL is allowed. */
UNCOPY_API void uncopy_function_release(uncopy_function_t *function);

/* What a run gave back. */
typedef struct uncopy_run {
    uncopy_plan_t *plan; /* the caller's to release (uncopy_plan_release) */
    int has_planned;     /* a plan was made in this call */
} uncopy_run_t;

/* Checks facts, plans when they differ, runs. outputs (num_outputs of the program) get what each
 * result is; NULL when the host's allocate keeps them or all are arguments' bytes. call_data
 * reaches the host's entries. out_run may be NULL. Errors: UNCOPY_ERROR_ARGUMENT (number, dtype,
 * sizes or strides differ from the program's), _RANGE (an argument's storage does not hold what is
 * taken of it), _HOST, _STRICT, _MEMORY: before any effect; _HOST from an entry: effects up to it
 * are done. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_function_run(
    uncopy_function_t *function, const uncopy_argument_t *arguments, size_t num_arguments,
    void *call_data, uncopy_argument_t *outputs, uncopy_run_t *out_run);

/* Makes the plan for these arguments, or finds it, without running. The caller releases it
 * (uncopy_plan_release). */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t
uncopy_function_plan(uncopy_function_t *function, const uncopy_argument_t *arguments,
                     size_t num_arguments, uncopy_plan_t **out_plan);

/* Runs one plan. Errors: as uncopy_function_run, and UNCOPY_ERROR_FACTS naming the pair of
 * arguments. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_plan_run(uncopy_plan_t *plan,
                                                             const uncopy_host_t *host,
                                                             const uncopy_argument_t *arguments,
                                                             size_t num_arguments, void *call_data,
                                                             uncopy_argument_t *outputs);

/* Releases what the context's allocator gave for outputs of a run without the host's allocate.
 * outputs are those that the run filled; arguments among them are left alone. */
UNCOPY_API void uncopy_function_release_outputs(const uncopy_function_t *function,
                                                uncopy_argument_t *outputs);

/* The newest plans, at most UNCOPY_FUNCTION_MAX_PLANS: older ones are dropped when more are
 * made. */
#define UNCOPY_FUNCTION_MAX_PLANS 64
UNCOPY_API size_t uncopy_function_num_plans(uncopy_function_t *function);
/* Plan number index, NULL past the last. The caller releases it (uncopy_plan_release). */
UNCOPY_API uncopy_plan_t *uncopy_function_plan_at(uncopy_function_t *function, size_t index);

/* Counts of all runs since creation or reset. */
typedef struct uncopy_counts {
    int64_t calls;
    int64_t plans, replans;
    int64_t moves, bytes_moved;
    int64_t copies, bytes_copied;
    int64_t externs;
    int64_t collectives, bytes_staged; /* on communicators of comm.h */
    int64_t collectives_host;          /* started by the host */
    int64_t bytes_allocated;           /* outputs, arenas, scratch and results of host calls */
} uncopy_counts_t;

UNCOPY_API void uncopy_function_counts(uncopy_function_t *function, uncopy_counts_t *out_counts);
UNCOPY_API void uncopy_function_reset_counts(uncopy_function_t *function);

#ifdef __cplusplus
}
#endif

#endif
