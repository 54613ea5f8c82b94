/* Functions: finding the plan whose facts hold, planning when none does.
 *
 * Plans stand in a table of at most UNCOPY_FUNCTION_MAX_PLANS, newest use first by a hint. A short
 * lock guards the table and its references; planning has a lock of its own, so that calls whose
 * plan is there never wait for one that plans. */
#include <string.h>

#include "api/objects.h"
#include "base/status.h"

struct uncopy_function {
    atomic_size_t references;
    uncopy_program_t *program;
    uncopy_options_t options;
    uncopy_host_t host;
    bool has_host;
    pthread_mutex_t table_lock;    /* plans, num_plans, next_victim, retired */
    pthread_mutex_t planning_lock; /* taken before table_lock */
    uncopy_plan_t *plans[UNCOPY_FUNCTION_MAX_PLANS];
    size_t num_plans, next_victim;
    atomic_size_t hint;      /* index of the plan that ran last; any value is fine */
    uncopy_counts_t retired; /* counts of plans that were dropped */
    atomic_llong calls, planned, replanned;
};

/* ---- life ---- */

uncopy_status_t uncopy_function_create(uncopy_program_t *program, const uncopy_options_t *options,
                                       const uncopy_host_t *host, uncopy_function_t **out_function)
{
    if (program == NULL || out_function == NULL) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "no program, or no place for the function");
    }
    TRY(plan_object_check_options(options));
    const uncopy_allocator_t *allocator = &program->context->allocator;
    uncopy_function_t *function = memory_allocate(allocator, sizeof(*function), "a function");
    if (function == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    atomic_init(&function->references, 1);
    function->program = program;
    function->options = options == NULL ? (uncopy_options_t){0} : *options;
    function->has_host = host != NULL;
    function->host = host == NULL ? (uncopy_host_t){0} : *host;
    (void)pthread_mutex_init(&function->table_lock, NULL);
    (void)pthread_mutex_init(&function->planning_lock, NULL);
    uncopy_program_retain(program);
    atomic_store(&program->is_frozen, true);
    *out_function = function;
    return UNCOPY_OK;
}

void uncopy_function_retain(uncopy_function_t *function)
{
    /* relaxed: whoever calls holds a reference already */
    atomic_fetch_add_explicit(&function->references, 1, memory_order_relaxed);
}

void uncopy_function_release(uncopy_function_t *function)
{
    /* acq_rel: pairs with the other releases */
    if (function == NULL ||
        atomic_fetch_sub_explicit(&function->references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (size_t i = 0; i < function->num_plans; i++) {
        uncopy_plan_release(function->plans[i]);
    }
    (void)pthread_mutex_destroy(&function->table_lock);
    (void)pthread_mutex_destroy(&function->planning_lock);
    uncopy_program_t *program = function->program;
    memory_release(&program->context->allocator, function, sizeof(*function));
    uncopy_program_release(program);
}

/* ---- the table ---- */

size_t uncopy_function_num_plans(uncopy_function_t *function)
{
    if (function == NULL) {
        return 0;
    }
    (void)pthread_mutex_lock(&function->table_lock);
    size_t count = function->num_plans;
    (void)pthread_mutex_unlock(&function->table_lock);
    return count;
}

uncopy_plan_t *uncopy_function_plan_at(uncopy_function_t *function, size_t index)
{
    uncopy_plan_t *plan = NULL;
    if (function == NULL) {
        return NULL;
    }
    (void)pthread_mutex_lock(&function->table_lock);
    if (index < function->num_plans) {
        plan = function->plans[index];
        uncopy_plan_retain(plan);
    }
    (void)pthread_mutex_unlock(&function->table_lock);
    return plan;
}

static void add_runs(uncopy_plan_t *plan, uncopy_counts_t *counts)
{
    int64_t runs = atomic_load_explicit(&plan->runs, memory_order_relaxed);
    const uncopy_plan_counts_t *once = &plan->plan.counts;
    counts->moves += runs * once->moves;
    counts->bytes_moved += runs * once->bytes_moved;
    counts->copies += runs * once->copies;
    counts->bytes_copied += runs * once->bytes_copied;
    counts->externs += runs * once->externs;
    int64_t ours = atomic_load_explicit(&plan->num_collectives, memory_order_relaxed);
    counts->collectives += ours;
    counts->collectives_host += runs * once->collectives - ours;
    counts->bytes_staged += atomic_load_explicit(&plan->bytes_staged, memory_order_relaxed);
    counts->bytes_allocated += runs * (plan->output_bytes + once->made_bytes) +
                               atomic_load_explicit(&plan->arena_grown_bytes, memory_order_relaxed);
}

/* Adds a plan, dropping the oldest when the table is full. Takes over the reference. */
static void add_plan(uncopy_function_t *function, uncopy_plan_t *plan)
{
    uncopy_plan_t *dropped = NULL;
    (void)pthread_mutex_lock(&function->table_lock);
    size_t at = function->num_plans;
    if (at == UNCOPY_FUNCTION_MAX_PLANS) {
        at = function->next_victim;
        function->next_victim = (at + 1) % UNCOPY_FUNCTION_MAX_PLANS;
        dropped = function->plans[at];
        add_runs(dropped, &function->retired);
    } else {
        function->num_plans++;
    }
    function->plans[at] = plan;
    atomic_store_explicit(&function->hint, at, memory_order_relaxed);
    (void)pthread_mutex_unlock(&function->table_lock);
    uncopy_plan_release(dropped);
}

/* ---- finding and running ---- */

/* A plan ready to run: its frame holds the call's addresses and the facts hold. */
typedef struct ready {
    uncopy_plan_t *plan; /* a reference of ours */
    uncopy_frame_t *frame;
} ready_t;

static void drop_ready(ready_t *ready)
{
    if (ready->frame != NULL) {
        plan_object_give_frame(ready->plan, ready->frame);
    }
    uncopy_plan_release(ready->plan);
    *ready = (ready_t){NULL, NULL};
}

/* Tries one plan; on success ready is filled and owns plan's reference, else the reference is
 * dropped. */
static uncopy_status_t try_plan(uncopy_plan_t *plan, const uncopy_argument_t *arguments,
                                size_t num_arguments, ready_t *ready, facts_failure_t *failure)
{
    *ready = (ready_t){plan, NULL};
    bool holds = false;
    uncopy_status_t status = UNCOPY_OK;
    if (run_fits(&plan->plan, arguments, num_arguments)) {
        status = plan_object_take_frame(plan, &ready->frame);
        if (status == UNCOPY_OK) {
            status = run_enter(ready->frame, arguments, &holds, failure);
        }
    }
    if (status != UNCOPY_OK || !holds) {
        drop_ready(ready);
    }
    return status;
}

static uncopy_status_t find_plan(uncopy_function_t *function, const uncopy_argument_t *arguments,
                                 size_t num_arguments, ready_t *ready, facts_failure_t *failure)
{
    size_t hint = atomic_load_explicit(&function->hint, memory_order_relaxed);
    for (size_t i = 0; i <= UNCOPY_FUNCTION_MAX_PLANS; i++) {
        size_t at = i == 0 ? hint : i - 1;
        if (i > 0 && at == hint) {
            continue;
        }
        uncopy_plan_t *plan = uncopy_function_plan_at(function, at);
        if (plan == NULL) {
            if (i == 0) {
                continue;
            }
            break;
        }
        TRY(try_plan(plan, arguments, num_arguments, ready, failure));
        if (ready->plan != NULL) {
            atomic_store_explicit(&function->hint, at, memory_order_relaxed);
            return UNCOPY_OK;
        }
    }
    return UNCOPY_OK;
}

static uncopy_status_t make_plan(uncopy_function_t *function, const uncopy_argument_t *arguments,
                                 size_t num_arguments, const facts_failure_t *failure,
                                 ready_t *ready)
{
    bool is_first = uncopy_function_num_plans(function) == 0;
    if (!is_first && (function->options.strict & UNCOPY_STRICT_REPLANS) != 0) {
        uncopy_plan_t *other = uncopy_function_plan_at(function, 0);
        uncopy_status_t status = plan_object_fail_facts(other, UNCOPY_ERROR_STRICT, failure);
        uncopy_plan_release(other);
        return status;
    }
    uncopy_plan_t *plan = NULL;
    TRY(plan_object_create(function->program, &function->options,
                           function->has_host ? &function->host : NULL, arguments, num_arguments,
                           &plan));
    atomic_fetch_add_explicit(&function->planned, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&function->replanned, is_first ? 0 : 1, memory_order_relaxed);
    uncopy_plan_retain(plan);
    add_plan(function, plan);
    facts_failure_t after = {0};
    TRY(try_plan(plan, arguments, num_arguments, ready, &after));
    if (ready->plan == NULL) {
        return status_fail(UNCOPY_ERROR_PROGRAM,
                           "%s: a plan does not hold for the arguments it was made for",
                           function->program->ir.name);
    }
    return UNCOPY_OK;
}

static uncopy_status_t find_or_make(uncopy_function_t *function, const uncopy_argument_t *arguments,
                                    size_t num_arguments, ready_t *ready, bool *out_made)
{
    facts_failure_t failure = {0};
    *out_made = false;
    if (num_arguments != 0 && arguments == NULL) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "no arguments");
    }
    TRY(find_plan(function, arguments, num_arguments, ready, &failure));
    if (ready->plan != NULL) {
        return UNCOPY_OK;
    }
    (void)pthread_mutex_lock(&function->planning_lock);
    uncopy_status_t status = find_plan(function, arguments, num_arguments, ready, &failure);
    if (status == UNCOPY_OK && ready->plan == NULL) {
        status = make_plan(function, arguments, num_arguments, &failure, ready);
        *out_made = status == UNCOPY_OK;
    }
    (void)pthread_mutex_unlock(&function->planning_lock);
    return status;
}

uncopy_status_t uncopy_function_run(uncopy_function_t *function, const uncopy_argument_t *arguments,
                                    size_t num_arguments, void *call_data,
                                    uncopy_argument_t *outputs, uncopy_run_t *out_run)
{
    if (function == NULL) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "no function");
    }
    ready_t ready = {NULL, NULL};
    bool has_planned = false;
    TRY(find_or_make(function, arguments, num_arguments, &ready, &has_planned));
    atomic_fetch_add_explicit(&function->calls, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&ready.plan->runs, 1, memory_order_relaxed);
    uncopy_status_t status =
        run_execute(ready.frame, function->has_host ? &function->host : NULL, call_data, outputs);
    plan_object_give_frame(ready.plan, ready.frame);
    if (status == UNCOPY_OK && out_run != NULL) {
        *out_run = (uncopy_run_t){ready.plan, has_planned};
    } else {
        uncopy_plan_release(ready.plan);
    }
    return status;
}

uncopy_status_t uncopy_function_plan(uncopy_function_t *function,
                                     const uncopy_argument_t *arguments, size_t num_arguments,
                                     uncopy_plan_t **out_plan)
{
    if (function == NULL || out_plan == NULL) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "no function, or no place for the plan");
    }
    ready_t ready = {NULL, NULL};
    bool has_planned = false;
    TRY(find_or_make(function, arguments, num_arguments, &ready, &has_planned));
    plan_object_give_frame(ready.plan, ready.frame);
    *out_plan = ready.plan;
    return UNCOPY_OK;
}

void uncopy_function_release_outputs(const uncopy_function_t *function, uncopy_argument_t *outputs)
{
    const ir_program_t *ir = &function->program->ir;
    for (size_t i = 0; i < ir->num_outputs; i++) {
        bool is_repeated = false;
        for (size_t j = 0; j < i; j++) {
            is_repeated |= outputs[j].storage == outputs[i].storage;
        }
        if (!is_repeated && outputs[i].storage_bytes >= 0) {
            memory_release(&function->program->context->allocator, outputs[i].storage,
                           (size_t)outputs[i].storage_bytes);
        }
    }
}

/* ---- counts ---- */

void uncopy_function_counts(uncopy_function_t *function, uncopy_counts_t *out_counts)
{
    if (function == NULL) {
        *out_counts = (uncopy_counts_t){0};
        return;
    }
    (void)pthread_mutex_lock(&function->table_lock);
    uncopy_counts_t counts = function->retired;
    for (size_t i = 0; i < function->num_plans; i++) {
        add_runs(function->plans[i], &counts);
    }
    (void)pthread_mutex_unlock(&function->table_lock);
    counts.calls = atomic_load_explicit(&function->calls, memory_order_relaxed);
    counts.plans = atomic_load_explicit(&function->planned, memory_order_relaxed);
    counts.replans = atomic_load_explicit(&function->replanned, memory_order_relaxed);
    *out_counts = counts;
}

void uncopy_function_reset_counts(uncopy_function_t *function)
{
    (void)pthread_mutex_lock(&function->table_lock);
    function->retired = (uncopy_counts_t){0};
    for (size_t i = 0; i < function->num_plans; i++) {
        atomic_store_explicit(&function->plans[i]->runs, 0, memory_order_relaxed);
        atomic_store_explicit(&function->plans[i]->arena_grown_bytes, 0, memory_order_relaxed);
        atomic_store_explicit(&function->plans[i]->num_collectives, 0, memory_order_relaxed);
        atomic_store_explicit(&function->plans[i]->bytes_staged, 0, memory_order_relaxed);
    }
    (void)pthread_mutex_unlock(&function->table_lock);
    atomic_store_explicit(&function->calls, 0, memory_order_relaxed);
    atomic_store_explicit(&function->planned, 0, memory_order_relaxed);
    atomic_store_explicit(&function->replanned, 0, memory_order_relaxed);
}
