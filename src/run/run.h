/* Running a plan: frames, the check of a call's arguments, the walk.
 *
 * A binding pairs a plan with the kernels that run it; immutable and shared. A frame is what one
 * running call needs: addresses, arena, bound operands. It belongs to one binding, is reused by
 * later calls, and is confined to the call that holds it. */
#ifndef RUN_RUN_H
#define RUN_RUN_H

#include "plan/plan.h"
#include "run/cut.h"
#include "run/pool.h"
#include "uncopy/host.h"

typedef struct run_kernel {
    kernel_function_t function; /* NULL for instructions that need none */
    bool prefers_host;          /* the host's matmul is asked first */
    cut_t cut;                  /* for several threads */
    int64_t cost_ns;            /* estimate on one thread */
    tile_runner_t tile;         /* of PLAN_TILE */
} run_kernel_t;

/* What communicators of ours did for a run. */
typedef struct run_served {
    int64_t num_collectives;
    int64_t bytes_staged;
} run_served_t;

/* Runs a collective on the communicator that the host finds for its group; *out_is_served false:
 * there is none, or it has not this reduction. */
typedef uncopy_status_t (*run_collective_t)(const uncopy_host_t *host, void *call_data,
                                            opcode_t opcode, const uncopy_collective_t *collective,
                                            run_served_t *served, bool *out_is_served);

typedef struct run_binding {
    const plan_t *plan;
    const run_kernel_t *kernels; /* one an instruction */
    const uncopy_allocator_t *allocator;
    pool_t *pool;                /* NULL: instructions run on the calling thread */
    int num_threads;             /* of a run; 0: what the host says, without one the processors */
    int64_t shared_ns;           /* estimate of what may run on several threads, on one */
    run_collective_t collective; /* NULL: all collectives are the host's */
} run_binding_t;

struct uncopy_frame {
    const run_binding_t *binding;
    char **addresses; /* of each base in this run; NULL for what is yet to be made */
    int64_t *planned; /* argument bases' addresses of the last run whose facts held */
    uint32_t *facts_scratch;
    uncopy_bound_t *bounds; /* one an operand; data is set where the host is told of it */
    char *workspace;        /* of the tile program at hand */
    void *host_slot;
    bool has_run;              /* planned is set */
    bool owns_arena;           /* the arena came from the allocator, not from the host */
    int64_t arena_grown_bytes; /* asked for since last taken for the counts */
    run_served_t served;       /* likewise */
    bool *is_served;           /* by work: a communicator of ours did it */
    size_t size_bytes;
    struct uncopy_frame *next; /* in its owner's list */
};

/* Errors: UNCOPY_ERROR_MEMORY. */
UNCOPY_MUST_CHECK uncopy_status_t run_frame_create(const run_binding_t *binding,
                                                   uncopy_frame_t **out_frame);
/* host NULL: none. */
void run_frame_release(uncopy_frame_t *frame, const uncopy_host_t *host);

/* Whether the arguments are what the plan was made for: number, dtype, sizes, strides. Cheap;
 * wording the difference is the planner's. */
bool run_fits(const plan_t *plan, const uncopy_argument_t *arguments, size_t num_arguments);

/* Takes the arguments' addresses into the frame. Errors: UNCOPY_ERROR_RANGE (a storage does not
 * hold what the plan takes of it). *out_holds: whether the plan's facts hold; *out_failure names
 * the pair where not. */
UNCOPY_MUST_CHECK uncopy_status_t run_enter(uncopy_frame_t *frame,
                                            const uncopy_argument_t *arguments, bool *out_holds,
                                            facts_failure_t *out_failure);

/* Runs the plan after run_enter said that the facts hold. outputs NULL: not wanted. Errors:
 * UNCOPY_ERROR_HOST, _MEMORY before any effect; what an entry of the host returned, with the
 * effects before it done. */
UNCOPY_MUST_CHECK uncopy_status_t run_execute(uncopy_frame_t *frame, const uncopy_host_t *host,
                                              void *call_data, uncopy_argument_t *outputs);

#endif
