/* What the core cannot do itself, supplied by whoever embeds it. Every entry is optional: a program
 * that needs an absent one compiles and prints; running it returns UNCOPY_ERROR_HOST before any
 * effect.
 *
 * A run has a table of bases: the memory blocks its operands lie in. Bases 0..n-1 are the n
 * arguments' data, n..2n-1 their storages; the rest are made in the run. Entries get the run's
 * frame, the host's data of the call (uncopy_function_run's call_data) and numbers of bases, and
 * keep whatever they need by base.
 *
 * Threads: entries are called from the thread that runs the function. An entry fails by returning a
 * status other than UNCOPY_OK; uncopy_host_fail words the failure. */
#ifndef UNCOPY_HOST_H
#define UNCOPY_HOST_H

#include <stdint.h>

#include "uncopy/comm.h"
#include "uncopy/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of memory blocks a run uses. */
typedef enum uncopy_base_kind {
    UNCOPY_BASE_ARGUMENT = 0, /* from an argument's data pointer */
    UNCOPY_BASE_STORAGE = 1,  /* from the start of an argument's storage */
    UNCOPY_BASE_CONSTANT = 2,
    UNCOPY_BASE_ARENA =
        3, /* one block for all scratch that native instructions use; lives with the frame */
    UNCOPY_BASE_OUTPUT = 4,  /* a fresh storage: allocate gives it, the caller keeps it */
    UNCOPY_BASE_SCRATCH = 5, /* a scratch storage of its own: allocate gives it, release ends it */
    UNCOPY_BASE_MADE = 6,    /* a storage that a host call made and returned */
} uncopy_base_kind_t;

/* A view bound for one run. Pointers are borrowed for the call of the entry; id is the same at
 * every run of the plan, unique within it: hosts may cache what they make of an operand in the
 * frame by it. */
typedef struct uncopy_bound {
    uint32_t id;
    uint32_t base;
    uncopy_base_kind_t kind;
    uint32_t argument; /* number of the argument for ARGUMENT and STORAGE */
    const char *name;  /* of the base, as the plan prints it; NULL for the arena */
    int is_whole; /* exactly the caller's argument, or exactly the layout of its storage's first
                     view */
    void *data;   /* address of the first element; NULL when the base is yet to be made */
    int64_t offset_bytes; /* of the first element from the base's address */
    uncopy_dtype_t dtype;
    int32_t rank;
    const int64_t *sizes;
    const int64_t *strides; /* elements */
} uncopy_bound_t;

/* How a host call gives its results. */
typedef enum uncopy_call_form {
    UNCOPY_CALL_RETURN = 0, /* each result is made by the host */
    UNCOPY_CALL_OUT = 1,    /* the one result is written where results[0] says */
} uncopy_call_form_t;

typedef struct uncopy_call {
    int64_t host_id;
    const char *target;
    uncopy_call_form_t form;
    const uncopy_bound_t *reads; /* views read, in order; numbers of the program are left out */
    size_t num_reads;
    const uncopy_bound_t *writes;
    size_t num_writes;
    uncopy_bound_t *results; /* RETURN: the host sets data (and keeps the result by base); sizes and
                                strides are what the plan expects of it. A result whose kind is not
                                MADE is an alias of that base. */
    size_t num_results;
    const char *file;
    int line;
    const int64_t *numbers; /* the program's numbers at this call's sizes */
    size_t num_numbers;
} uncopy_call_t;

typedef struct uncopy_collective {
    const char *operation; /* "all_gather", ... */
    const char *group_name;
    int32_t group_size, group_rank;
    double attribute; /* broadcast: root */
    int64_t host_id;
    const uncopy_bound_t *source;
    const uncopy_bound_t *destination;
    uint32_t work; /* number of the work in this run, for fence */
    const char *file;
    int line;
} uncopy_collective_t;

typedef struct uncopy_frame uncopy_frame_t;

/* The host's own pointer in a frame, NULL at first. Frames are reused by later runs of the same
 * plan. */
UNCOPY_API void **uncopy_frame_slot(uncopy_frame_t *frame);

typedef struct uncopy_host {
    void *self;
    /* Threads that a run of the calling thread may use, itself included; asked where the options
     * say 0 and there is work for several. Without this entry: the processors that the process may
     * use. */
    int (*threads)(void *self);
    /* Gives block->base memory for its layout (of an arena: u8[bytes]); sets block->data. Without
     * this entry the context's allocator serves, and outputs are released by the caller through
     * uncopy_function_release_outputs. */
    uncopy_status_t (*allocate)(void *self, uncopy_frame_t *frame, void *call_data,
                                uncopy_bound_t *block);
    /* A SCRATCH or MADE base is used no more in this run. */
    void (*release)(void *self, uncopy_frame_t *frame, void *call_data, uint32_t base);
    /* Runs an operation of the host's. */
    uncopy_status_t (*call)(void *self, uncopy_frame_t *frame, void *call_data,
                            const uncopy_call_t *call);
    /* result = a @ b (2-d, or 3-d batched), operands disjoint; for shapes where the host is faster.
     * May decline by setting *out_done to 0; a native kernel runs then. */
    uncopy_status_t (*matmul)(void *self, uncopy_frame_t *frame, void *call_data,
                              const uncopy_bound_t *result, const uncopy_bound_t *a,
                              const uncopy_bound_t *b, int *out_done);
    /* Moves bytes between layouts on the host's kernels; used when kernels are the host's alone. */
    uncopy_status_t (*copy)(void *self, uncopy_frame_t *frame, void *call_data,
                            const uncopy_bound_t *destination, const uncopy_bound_t *source);
    uncopy_status_t (*fill)(void *self, uncopy_frame_t *frame, void *call_data,
                            const uncopy_bound_t *destination, const uncopy_operand_t *number);
    /* The communicator (comm.h) of this process that serves a group, retained, or NULL: then the
     * entry collective does. A run calls it itself, in its own thread, and releases it. */
    uncopy_comm_t *(*find_comm)(void *self, void *call_data, const char *group_name);
    /* Asked while a run waits for peers: non-zero ends the wait with UNCOPY_ERROR_INTERRUPTED. */
    int (*is_interrupted)(void *self, void *call_data);
    /* Starts a collective; complete only after fence of the same work. */
    uncopy_status_t (*collective)(void *self, uncopy_frame_t *frame, void *call_data,
                                  const uncopy_collective_t *collective);
    uncopy_status_t (*fence)(void *self, uncopy_frame_t *frame, void *call_data, uint32_t work);
    /* The run has ended: drop what belongs to the call and not to the frame. */
    void (*end)(void *self, uncopy_frame_t *frame, void *call_data, int has_failed);
    /* The frame ends: drop what its slot holds. */
    void (*frame_release)(void *self, uncopy_frame_t *frame);
} uncopy_host_t;

/* Sets this thread's message to words and returns UNCOPY_ERROR_HOST. */
UNCOPY_API uncopy_status_t uncopy_host_fail(const char *words);

#ifdef __cplusplus
}
#endif

#endif
