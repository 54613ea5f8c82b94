/* The objects behind the public handles. Here, and only here, towers, kernels and hosts meet. */
#ifndef API_OBJECTS_H
#define API_OBJECTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/memory.h"
#include "ir/program.h"
#include "plan/plan.h"
#include "plan/target.h"
#include "run/run.h"
#include "uncopy/uncopy.h"

struct uncopy_context {
    atomic_size_t references;
    uncopy_allocator_t allocator;
    uncopy_log_t log;
    target_t target;
    pool_t *pool; /* of threads */
};

struct uncopy_program {
    atomic_size_t references;
    uncopy_context_t *context;
    ir_program_t ir;
    atomic_bool is_frozen; /* a function or plan holds it: adding fails */
};

enum { PLAN_FRAME_SLOTS = 8 };

/* A plan with the kernels bound and frames that wait for their next run. */
struct uncopy_plan {
    atomic_size_t references;
    uncopy_context_t *context;
    plan_t plan;
    run_binding_t binding;
    uncopy_host_t host; /* of the function that owns the frames */
    bool has_host;
    int64_t output_bytes;
    atomic_llong runs;              /* since counts were reset */
    atomic_llong arena_grown_bytes; /* likewise */
    atomic_llong num_collectives;   /* likewise, on communicators of ours */
    atomic_llong bytes_staged;      /* likewise */
    _Atomic(uncopy_frame_t *) frames[PLAN_FRAME_SLOTS];
};

/* Fills what the kernels of this library take. */
void target_fill(target_t *target);

/* Whether every option is one that exists. NULL: the defaults. */
UNCOPY_MUST_CHECK uncopy_status_t plan_object_check_options(const uncopy_options_t *options);

/* Plans a program and binds kernels. host NULL: none. */
UNCOPY_MUST_CHECK uncopy_status_t plan_object_create(
    uncopy_program_t *program, const uncopy_options_t *options, const uncopy_host_t *host,
    const uncopy_argument_t *arguments, size_t num_arguments, uncopy_plan_t **out_plan);

/* Takes a waiting frame or makes one; giving back keeps it for the next run. */
UNCOPY_MUST_CHECK uncopy_status_t plan_object_take_frame(uncopy_plan_t *plan,
                                                         uncopy_frame_t **out_frame);
void plan_object_give_frame(uncopy_plan_t *plan, uncopy_frame_t *frame);

/* A collective of a plan on a communicator of ours: run_collective_t. */
uncopy_status_t collective_run(const uncopy_host_t *host, void *call_data, opcode_t opcode,
                               const uncopy_collective_t *collective, run_served_t *served,
                               bool *out_is_served);

/* Words a failed fact with the arguments' names. */
uncopy_status_t plan_object_fail_facts(const uncopy_plan_t *plan, uncopy_status_t code,
                                       const facts_failure_t *failure);

#endif
