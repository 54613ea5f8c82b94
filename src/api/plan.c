/* Plans as objects: planning, binding kernels, keeping frames, answering questions. */
#include <stdio.h>

#include "api/objects.h"
#include "base/status.h"
#include "compile/compile.h"
#include "cpu/cpu.h"
#include "cpu/tile.h"

/* ---- making ---- */

static uncopy_status_t bind_tile(uncopy_plan_t *object, const plan_instruction_t *at,
                                 run_kernel_t *kernel)
{
    TRY(tile_prepare(at->tile, &object->plan.arena, &kernel->tile));
    kernel->cost_ns = kernel->tile.cost_ns;
    kernel->cut.num_chunks = cut_units(kernel->tile.num_units, kernel->cost_ns);
    return UNCOPY_OK;
}

static uncopy_status_t bind_call(const plan_instruction_t *at, run_kernel_t *kernel)
{
    kernel->function = cpu_find(at->call);
    kernel->prefers_host = cpu_prefers_host_matmul(at->call);
    kernel->cost_ns = cpu_cost_ns(at->call);
    kernel->cut = cut_choose(at->call, kernel->cost_ns);
    if (kernel->function == NULL && at->kind != PLAN_MATMUL) {
        return status_fail(UNCOPY_ERROR_UNSUPPORTED, "no kernel takes %s of %s (%s:%d)",
                           op_row(at->opcode)->name, uncopy_dtype_name(at->call->operands[0].dtype),
                           at->file == NULL ? "?" : at->file, at->line);
    }
    return UNCOPY_OK;
}

/* Kernels of every instruction. A call that no kernel takes is found here, before anything runs. */
static uncopy_status_t bind_kernels(uncopy_plan_t *object, int num_threads)
{
    plan_t *plan = &object->plan;
    run_kernel_t *kernels = arena_allocate(&plan->arena, plan->num_instructions, sizeof(*kernels));
    if (kernels == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    int64_t shared_ns = 0;
    for (size_t i = 0; i < plan->num_instructions; i++) {
        const plan_instruction_t *at = &plan->instructions[i];
        if (at->kind == PLAN_TILE) {
            TRY(bind_tile(object, at, &kernels[i]));
        } else if (at->call != NULL) {
            TRY(bind_call(at, &kernels[i]));
        }
        shared_ns += kernels[i].cut.num_chunks > 1 ? kernels[i].cost_ns : 0;
        plan->counts.cost_ns += kernels[i].cost_ns;
    }
    object->binding = (run_binding_t){.plan = plan,
                                      .kernels = kernels,
                                      .allocator = &object->context->allocator,
                                      .pool = object->context->pool,
                                      .num_threads = num_threads,
                                      .shared_ns = shared_ns,
                                      .collective = collective_run};
    return UNCOPY_OK;
}

uncopy_status_t plan_object_check_options(const uncopy_options_t *options)
{
    if (options == NULL) {
        return UNCOPY_OK;
    }
    const unsigned strict = UNCOPY_STRICT_COPIES | UNCOPY_STRICT_EXTERNS | UNCOPY_STRICT_REPLANS;
    const unsigned passes = UNCOPY_PASS_NORMALISE | UNCOPY_PASS_ELIDE | UNCOPY_PASS_PLACE;
    if ((unsigned)options->order > UNCOPY_ORDER_STABLE_RDFS ||
        (unsigned)options->kernels > UNCOPY_KERNELS_EXTERN || (options->strict & ~strict) != 0 ||
        (options->passes_off & ~passes) != 0 || options->threads < 0) {
        return status_fail(UNCOPY_ERROR_ARGUMENT,
                           "options that do not exist: order %d, kernels %d, strict %#x, "
                           "passes_off %#x, threads %d; zeros are the defaults",
                           (int)options->order, (int)options->kernels, options->strict,
                           options->passes_off, options->threads);
    }
    return UNCOPY_OK;
}

static uncopy_status_t check_arguments(const uncopy_argument_t *arguments, size_t num_arguments)
{
    for (size_t a = 0; arguments != NULL && a < num_arguments; a++) {
        if (arguments[a].rank > 0 && arguments[a].sizes == NULL) {
            return status_fail(UNCOPY_ERROR_ARGUMENT, "argument %zu has %d dims and no sizes", a,
                               (int)arguments[a].rank);
        }
    }
    return UNCOPY_OK;
}

static uncopy_status_t fill_object(uncopy_plan_t *object, const uncopy_program_t *program,
                                   const uncopy_options_t *options,
                                   const uncopy_argument_t *arguments, size_t num_arguments)
{
    static const uncopy_options_t defaults = {0};
    const uncopy_context_t *context = object->context;
    TRY(plan_object_check_options(options));
    TRY(check_arguments(arguments, num_arguments));
    TRY(compile_plan(&context->allocator, &program->ir, &context->target,
                     options == NULL ? &defaults : options, arguments, num_arguments,
                     &object->plan));
    for (size_t b = 0; b < object->plan.num_bases; b++) {
        const plan_base_t *base = &object->plan.bases[b];
        object->output_bytes += base->kind == UNCOPY_BASE_OUTPUT ? base->size_bytes : 0;
    }
    return bind_kernels(object, options == NULL ? 0 : options->threads);
}

/* One line for each plan made, a warning for each copy that stays in it. */
static void log_plan(const uncopy_context_t *context, const plan_t *plan)
{
    enum { LINE_BYTES = 512 };
    char line[LINE_BYTES];
    const uncopy_plan_counts_t *counts = &plan->counts;
    (void)snprintf(line, sizeof(line), "%s: planned %lld instructions, %lld copies, %lld externs",
                   plan->name, (long long)counts->instructions, (long long)counts->copies,
                   (long long)counts->externs);
    context->log.write(context->log.self, UNCOPY_LOG_INFO, line);
    for (size_t i = 0; i < plan->num_copies; i++) {
        const uncopy_copy_t *copy = &plan->copies[i];
        (void)snprintf(line, sizeof(line), "%s: a copy of %lld bytes stays (%s:%d), %s: %s",
                       plan->name, (long long)copy->bytes, copy->file == NULL ? "?" : copy->file,
                       copy->line, copy->reason, copy->words);
        context->log.write(context->log.self, UNCOPY_LOG_WARNING, line);
    }
}

uncopy_status_t plan_object_create(uncopy_program_t *program, const uncopy_options_t *options,
                                   const uncopy_host_t *host, const uncopy_argument_t *arguments,
                                   size_t num_arguments, uncopy_plan_t **out_plan)
{
    uncopy_context_t *context = program->context;
    uncopy_plan_t *object = memory_allocate(&context->allocator, sizeof(*object), "a plan");
    if (object == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    atomic_init(&object->references, 1);
    object->context = context;
    object->has_host = host != NULL;
    object->host = host == NULL ? (uncopy_host_t){0} : *host;
    arena_init(&object->plan.arena, &context->allocator);
    uncopy_context_retain(context);
    uncopy_status_t status = fill_object(object, program, options, arguments, num_arguments);
    if (status != UNCOPY_OK) {
        uncopy_plan_release(object);
        return status;
    }
    atomic_store(&program->is_frozen, true);
    log_plan(context, &object->plan);
    *out_plan = object;
    return UNCOPY_OK;
}

uncopy_status_t uncopy_plan_create(uncopy_program_t *program, const uncopy_options_t *options,
                                   const uncopy_argument_t *arguments, size_t num_arguments,
                                   uncopy_plan_t **out_plan)
{
    if (program == NULL || out_plan == NULL) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "no program, or no place for the plan");
    }
    return plan_object_create(program, options, NULL, arguments, num_arguments, out_plan);
}

void uncopy_plan_retain(uncopy_plan_t *plan)
{
    if (plan != NULL) {
        /* relaxed: whoever calls holds a reference already */
        atomic_fetch_add_explicit(&plan->references, 1, memory_order_relaxed);
    }
}

void uncopy_plan_release(uncopy_plan_t *plan)
{
    /* acq_rel: pairs with the other releases */
    if (plan == NULL ||
        atomic_fetch_sub_explicit(&plan->references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (int i = 0; i < PLAN_FRAME_SLOTS; i++) {
        uncopy_frame_t *frame = atomic_load(&plan->frames[i]);
        if (frame != NULL) {
            run_frame_release(frame, plan->has_host ? &plan->host : NULL);
        }
    }
    uncopy_context_t *context = plan->context;
    plan_release(&plan->plan);
    memory_release(&context->allocator, plan, sizeof(*plan));
    uncopy_context_release(context);
}

/* ---- frames ---- */

uncopy_status_t plan_object_take_frame(uncopy_plan_t *plan, uncopy_frame_t **out_frame)
{
    for (int i = 0; i < PLAN_FRAME_SLOTS; i++) {
        if (atomic_load_explicit(&plan->frames[i], memory_order_relaxed) == NULL) {
            continue;
        }
        /* acquire: pairs with the release in plan_object_give_frame */
        uncopy_frame_t *frame =
            atomic_exchange_explicit(&plan->frames[i], NULL, memory_order_acquire);
        if (frame != NULL) {
            *out_frame = frame;
            return UNCOPY_OK;
        }
    }
    return run_frame_create(&plan->binding, out_frame);
}

void plan_object_give_frame(uncopy_plan_t *plan, uncopy_frame_t *frame)
{
    if (frame->arena_grown_bytes != 0) {
        atomic_fetch_add_explicit(&plan->arena_grown_bytes, frame->arena_grown_bytes,
                                  memory_order_relaxed);
        frame->arena_grown_bytes = 0;
    }
    if (frame->served.num_collectives != 0) {
        atomic_fetch_add_explicit(&plan->num_collectives, frame->served.num_collectives,
                                  memory_order_relaxed);
        atomic_fetch_add_explicit(&plan->bytes_staged, frame->served.bytes_staged,
                                  memory_order_relaxed);
        frame->served = (run_served_t){0};
    }
    for (int i = 0; i < PLAN_FRAME_SLOTS; i++) {
        uncopy_frame_t *empty = NULL;
        /* release: the next taker sees what this run wrote into the frame */
        if (atomic_compare_exchange_strong_explicit(&plan->frames[i], &empty, frame,
                                                    memory_order_release, memory_order_relaxed)) {
            return;
        }
    }
    run_frame_release(frame, plan->has_host ? &plan->host : NULL);
}

uncopy_status_t plan_object_fail_facts(const uncopy_plan_t *plan, uncopy_status_t code,
                                       const facts_failure_t *failure)
{
    size_t n = plan->plan.num_arguments;
    size_t a = failure->base_a % n;
    size_t b = failure->base_b % n;
    return status_fail(code, "%s: arguments %zu (%s) and %zu (%s) were planned %s and are now %s",
                       plan->plan.name, a, plan->plan.arguments[a].name, b,
                       plan->plan.arguments[b].name, span_relation_name(failure->planned),
                       span_relation_name(failure->found));
}

/* ---- running one plan ---- */

static uncopy_status_t check_fit(const uncopy_plan_t *plan, const uncopy_argument_t *arguments,
                                 size_t num_arguments)
{
    if (num_arguments != 0 && arguments == NULL) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "no arguments");
    }
    if (!run_fits(&plan->plan, arguments, num_arguments)) {
        return status_fail(
            UNCOPY_ERROR_ARGUMENT,
            "%s: the number (%zu), dtypes, sizes or strides of the arguments are not those it was "
            "planned for",
            plan->plan.name, num_arguments);
    }
    return UNCOPY_OK;
}

uncopy_status_t uncopy_plan_run(uncopy_plan_t *plan, const uncopy_host_t *host,
                                const uncopy_argument_t *arguments, size_t num_arguments,
                                void *call_data, uncopy_argument_t *outputs)
{
    if (plan == NULL) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "no plan");
    }
    TRY(check_fit(plan, arguments, num_arguments));
    uncopy_frame_t *frame = NULL;
    bool keeps_frame = host == NULL && !plan->has_host; /* a host's slot must end with that host */
    TRY(keeps_frame ? plan_object_take_frame(plan, &frame)
                    : run_frame_create(&plan->binding, &frame));
    bool holds = false;
    facts_failure_t failure = {0};
    uncopy_status_t status = run_enter(frame, arguments, &holds, &failure);
    if (status == UNCOPY_OK && !holds) {
        status = plan_object_fail_facts(plan, UNCOPY_ERROR_FACTS, &failure);
    }
    if (status == UNCOPY_OK) {
        status = run_execute(frame, host, call_data, outputs);
    }
    if (keeps_frame) {
        plan_object_give_frame(plan, frame);
    } else {
        run_frame_release(frame, host);
    }
    return status;
}

/* ---- questions ---- */

static uncopy_status_t check_question(const uncopy_plan_t *plan, const void *result)
{
    if (plan == NULL || result == NULL) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "no plan, or no place for the result");
    }
    return UNCOPY_OK;
}

uncopy_status_t uncopy_plan_print(const uncopy_plan_t *plan, char **out_text)
{
    TRY(check_question(plan, out_text));
    text_t text;
    text_init(&text, &plan->context->allocator);
    plan_print(&plan->plan, &text);
    return text_take(&text, out_text);
}

uncopy_status_t uncopy_plan_explain(const uncopy_plan_t *plan, char **out_text)
{
    TRY(check_question(plan, out_text));
    text_t text;
    text_init(&text, &plan->context->allocator);
    plan_explain(&plan->plan, &text);
    return text_take(&text, out_text);
}

void uncopy_plan_count(const uncopy_plan_t *plan, uncopy_plan_counts_t *out_counts)
{
    *out_counts = plan == NULL ? (uncopy_plan_counts_t){0} : plan->plan.counts;
}

size_t uncopy_plan_num_copies(const uncopy_plan_t *plan)
{
    return plan == NULL ? 0 : plan->plan.num_copies;
}

uncopy_status_t uncopy_plan_copy(const uncopy_plan_t *plan, size_t index, uncopy_copy_t *out_copy)
{
    TRY(check_question(plan, out_copy));
    if (index >= plan->plan.num_copies) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "copy %zu of %zu", index, plan->plan.num_copies);
    }
    *out_copy = plan->plan.copies[index];
    return UNCOPY_OK;
}

size_t uncopy_plan_num_externs(const uncopy_plan_t *plan)
{
    return plan == NULL ? 0 : (size_t)plan->plan.counts.externs;
}

const char *uncopy_plan_extern(const uncopy_plan_t *plan, size_t index, const char **out_file,
                               int *out_line)
{
    for (size_t i = 0; plan != NULL && i < plan->plan.num_instructions; i++) {
        const plan_instruction_t *at = &plan->plan.instructions[i];
        if (at->kind == PLAN_HOST_CALL && index-- == 0) {
            if (out_file != NULL) {
                *out_file = at->file;
            }
            if (out_line != NULL) {
                *out_line = at->line;
            }
            return at->target != NULL ? at->target : op_row(at->opcode)->name;
        }
    }
    return NULL;
}

size_t uncopy_plan_num_outputs(const uncopy_plan_t *plan)
{
    return plan == NULL ? 0 : plan->plan.num_outputs;
}

const uncopy_output_t *uncopy_plan_output(const uncopy_plan_t *plan, size_t index)
{
    return plan != NULL && index < plan->plan.num_outputs ? &plan->plan.outputs[index] : NULL;
}

int64_t uncopy_plan_number(const uncopy_plan_t *plan, size_t index)
{
    return plan != NULL && index < plan->plan.num_numbers ? plan->plan.numbers[index] : 0;
}

int uncopy_plan_writes_argument(const uncopy_plan_t *plan, size_t argument)
{
    return plan != NULL && argument < plan->plan.num_arguments &&
           plan->plan.arguments[argument].is_written;
}
