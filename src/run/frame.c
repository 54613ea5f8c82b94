#include <string.h>

#include "base/status.h"
#include "run/run.h"

/* One block holds the frame and all its arrays. */
static size_t aligned(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

static void set_bounds(const plan_t *plan, uncopy_bound_t *bounds)
{
    for (size_t i = 0; i < plan->num_operands; i++) {
        const plan_operand_t *operand = &plan->operands[i];
        const plan_base_t *base = &plan->bases[operand->base];
        bounds[i] = (uncopy_bound_t){.id = (uint32_t)i,
                                     .name = base->name,
                                     .base = operand->base,
                                     .kind = base->kind,
                                     .argument = base->argument,
                                     .is_whole = operand->is_whole,
                                     .offset_bytes = operand->offset_bytes,
                                     .dtype = operand->dtype,
                                     .rank = operand->rank,
                                     .sizes = operand->sizes,
                                     .strides = operand->strides};
    }
}

static void set_constants(const plan_t *plan, char **addresses)
{
    for (size_t b = 0; b < plan->num_bases; b++) {
        if (plan->bases[b].kind == UNCOPY_BASE_CONSTANT) {
            /* Instructions never write a constant: the verifier refuses it. */
            memcpy(&addresses[b], &plan->bases[b].bytes, sizeof(addresses[b]));
        }
    }
}

/* What the instruction that needs most shares among its units. */
static size_t most_workspace_bytes(const run_binding_t *binding)
{
    size_t most = 0;
    for (size_t i = 0; i < binding->plan->num_instructions; i++) {
        size_t bytes = binding->kernels[i].tile.workspace_bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

uncopy_status_t run_frame_create(const run_binding_t *binding, uncopy_frame_t **out_frame)
{
    const plan_t *plan = binding->plan;
    size_t num_facts = plan->num_arguments * 2;
    size_t frame_bytes = aligned(sizeof(uncopy_frame_t));
    size_t addresses_bytes = aligned(plan->num_bases * sizeof(char *));
    size_t planned_bytes = aligned(num_facts * sizeof(int64_t));
    size_t scratch_bytes = aligned(num_facts * sizeof(uint32_t));
    size_t bounds_bytes = aligned(plan->num_operands * sizeof(uncopy_bound_t));
    size_t workspace_bytes = aligned(most_workspace_bytes(binding));
    size_t works_bytes = aligned(plan->num_works * sizeof(bool));
    size_t size = frame_bytes + addresses_bytes + planned_bytes + scratch_bytes + workspace_bytes +
                  works_bytes + bounds_bytes;
    char *block = memory_allocate(binding->allocator, size, "a frame");
    if (block == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    uncopy_frame_t *frame = (uncopy_frame_t *)(void *)block;
    frame->binding = binding;
    frame->size_bytes = size;
    frame->addresses = (char **)(void *)(block + frame_bytes);
    frame->planned = (int64_t *)(void *)(block + frame_bytes + addresses_bytes);
    frame->facts_scratch =
        (uint32_t *)(void *)(block + frame_bytes + addresses_bytes + planned_bytes);
    frame->workspace = block + size - bounds_bytes - works_bytes - workspace_bytes;
    frame->is_served = (bool *)(block + size - bounds_bytes - works_bytes);
    frame->bounds = (uncopy_bound_t *)(void *)(block + size - bounds_bytes);
    for (uint32_t i = 0; i < num_facts; i++) {
        frame->facts_scratch[i] = i;
    }
    set_bounds(plan, frame->bounds);
    set_constants(plan, frame->addresses);
    *out_frame = frame;
    return UNCOPY_OK;
}

void run_frame_release(uncopy_frame_t *frame, const uncopy_host_t *host)
{
    const run_binding_t *binding = frame->binding;
    const plan_t *plan = binding->plan;
    if (host != NULL && host->frame_release != NULL) {
        host->frame_release(host->self, frame);
    }
    if (frame->owns_arena) {
        memory_release(binding->allocator, frame->addresses[plan->arena_base],
                       (size_t)plan->bases[plan->arena_base].size_bytes);
    }
    memory_release(binding->allocator, frame, frame->size_bytes);
}

void **uncopy_frame_slot(uncopy_frame_t *frame)
{
    return &frame->host_slot;
}

bool run_fits(const plan_t *plan, const uncopy_argument_t *arguments, size_t num_arguments)
{
    if (num_arguments != plan->num_arguments) {
        return false;
    }
    for (size_t a = 0; a < num_arguments; a++) {
        const plan_argument_t *planned = &plan->arguments[a];
        const uncopy_argument_t *argument = &arguments[a];
        if (argument->dtype != planned->dtype || argument->rank != planned->rank ||
            (planned->rank > 0 && argument->sizes == NULL)) {
            return false;
        }
        int64_t row_major = 1;
        for (int32_t d = planned->rank - 1; d >= 0; d--) {
            int64_t size = argument->sizes[d];
            int64_t stride = argument->strides == NULL ? row_major : argument->strides[d];
            if (size != planned->sizes[d] || (size > 1 && stride != planned->strides[d])) {
                return false;
            }
            row_major *= size > 1 ? size : 1;
        }
    }
    for (size_t s = 0; s < plan->num_symbols; s++) {
        const plan_symbol_t *symbol = &plan->symbols[s];
        int64_t value = 0;
        if (!plan_symbol_read(symbol, &arguments[symbol->argument], &value) ||
            value != symbol->value) {
            return false;
        }
    }
    return true;
}

/* Bytes that would lie before address 0 or beyond all memory. */
static bool wraps(const char *data, facts_hull_t hull)
{
    int64_t at = (int64_t)(intptr_t)data; /* user addresses are not negative */
    return at < 0 || at + hull.first < 0 || hull.end > INT64_MAX - at;
}

static uncopy_status_t check_range(const plan_argument_t *planned, size_t number, const char *what,
                                   facts_hull_t hull, const char *data, int64_t from_storage,
                                   int64_t storage_bytes)
{
    if (hull.first == hull.end) {
        return UNCOPY_OK;
    }
    if (wraps(data, hull)) {
        return status_fail(UNCOPY_ERROR_RANGE,
                           "argument %zu (%s): bytes %lld to %lld from address %p (%s) lie outside "
                           "all memory",
                           number, planned->name, (long long)hull.first, (long long)hull.end,
                           (const void *)data, what);
    }
    if (storage_bytes < 0 ||
        (from_storage + hull.first >= 0 && from_storage + hull.end <= storage_bytes)) {
        return UNCOPY_OK;
    }
    return status_fail(
        UNCOPY_ERROR_RANGE,
        "argument %zu (%s): the program takes bytes %lld to %lld of its storage (%s), which has "
        "%lld bytes: it was freed or resized",
        number, planned->name, (long long)(from_storage + hull.first),
        (long long)(from_storage + hull.end), what, (long long)storage_bytes);
}

uncopy_status_t run_enter(uncopy_frame_t *frame, const uncopy_argument_t *arguments,
                          bool *out_holds, facts_failure_t *out_failure)
{
    const plan_t *plan = frame->binding->plan;
    size_t n = plan->num_arguments;
    bool is_equal = frame->has_run;
    for (size_t a = 0; a < n; a++) {
        const uncopy_argument_t *argument = &arguments[a];
        const plan_argument_t *planned = &plan->arguments[a];
        char *data = argument->data;
        char *storage = argument->storage == NULL ? data : argument->storage;
        TRY(check_range(planned, a, "views of it", planned->hull, data,
                        (int64_t)((intptr_t)data - (intptr_t)storage), argument->storage_bytes));
        TRY(check_range(planned, a, "as_strided", planned->storage_hull, storage, 0,
                        argument->storage_bytes));
        frame->addresses[a] = data;
        frame->addresses[n + a] = storage;
        int64_t x = (int64_t)(intptr_t)data;
        int64_t y = (int64_t)(intptr_t)storage;
        is_equal = is_equal && frame->planned[a] == x && frame->planned[n + a] == y;
        frame->planned[a] = x;
        frame->planned[n + a] = y;
    }
    *out_holds =
        is_equal || facts_hold(plan->facts, frame->planned, frame->facts_scratch, out_failure);
    frame->has_run = *out_holds;
    return UNCOPY_OK;
}
