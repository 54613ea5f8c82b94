/* The verifier's rules about the order of operations.
 *
 *   v14 a fence names what an earlier, unfenced collective writes: the same view, or the same span
 *       of the same storage
 *   v15 every collective is fenced
 *   v16 from a collective's start to its fence no operation touches a byte of its destination or
 *       writes one of its source, by views of the same storage. The source of all_reduce and
 *       broadcast is taken at the start, and free. Other arguments over the same bytes are not
 *       known here.
 *   v17 a returned view is of an operand's storage, or makes a scratch or fresh storage that no
 *       operation has touched before: first by the storage's first view
 *
 * v16 needs numbers. Cost: operands times collectives in flight. */
#include <string.h>

#include "base/status.h"
#include "ir/verify_parts.h"

typedef struct order_state {
    verifier_t verifier;
    arena_t arena;
    bool *is_touched;  /* by storage: an operation before has read, written or made it */
    size_t *in_flight; /* numbers of collectives that are started and not fenced */
    size_t num_in_flight;
} order_state_t;

static const ir_view_t *view_of(const order_state_t *state, uncopy_view_t view)
{
    return &state->verifier.program->views[view];
}

/* Whether both count from the same address. */
static bool is_comparable(const ir_view_t *a, const ir_view_t *b)
{
    return a->storage == b->storage && a->is_from_storage == b->is_from_storage;
}

static const ir_operation_t *flight(const order_state_t *state, size_t index)
{
    return &state->verifier.program->operations[state->in_flight[index]];
}

/* ---- v14, v15 ---- */

static bool is_destination(const order_state_t *state, uncopy_view_t destination,
                           uncopy_view_t fenced)
{
    const ir_extent_t *extents = state->verifier.extents;
    if (destination == fenced) {
        return true;
    }
    if (!is_comparable(view_of(state, destination), view_of(state, fenced))) {
        return false;
    }
    return extents == NULL ||
           span_relate(&extents[destination].span, &extents[fenced].span) == SPAN_SAME;
}

static uncopy_status_t check_fence(order_state_t *state, const ir_operation_t *operation)
{
    for (size_t i = 0; i < state->num_in_flight; i++) {
        if (is_destination(state, flight(state, i)->writes[0], operation->writes[0])) {
            state->in_flight[i] = state->in_flight[--state->num_in_flight];
            return UNCOPY_OK;
        }
    }
    char shown[VERIFY_SHOWN_BYTES];
    return verify_fail(&state->verifier, "v14", "no collective in flight writes %s",
                       verify_show(&state->verifier, operation->writes[0], shown));
}

static uncopy_status_t check_all_fenced(order_state_t *state)
{
    if (state->num_in_flight == 0) {
        return UNCOPY_OK;
    }
    state->verifier.operation = state->in_flight[0];
    return verify_fail(&state->verifier, "v15", "no fence ends this collective");
}

/* ---- v16 ---- */

static bool meets(const order_state_t *state, uncopy_view_t a, uncopy_view_t b)
{
    const ir_extent_t *extents = state->verifier.extents;
    return is_comparable(view_of(state, a), view_of(state, b)) &&
           span_overlaps(&extents[a].span, &extents[b].span);
}

static uncopy_status_t check_access(order_state_t *state, uncopy_view_t view, bool is_write)
{
    for (size_t i = 0; i < state->num_in_flight; i++) {
        const ir_operation_t *collective = flight(state, i);
        bool has_free_source =
            collective->opcode == OPCODE_ALL_REDUCE || collective->opcode == OPCODE_BROADCAST;
        bool is_bad =
            meets(state, view, collective->writes[0]) ||
            (is_write && !has_free_source && meets(state, view, collective->reads[0].view));
        if (is_bad) {
            char shown[VERIFY_SHOWN_BYTES];
            return verify_fail(&state->verifier, "v16",
                               "%s %s while operation %zu, %s, is in flight over its bytes",
                               is_write ? "writes" : "reads",
                               verify_show(&state->verifier, view, shown), state->in_flight[i],
                               op_row(collective->opcode)->name);
        }
    }
    return UNCOPY_OK;
}

static uncopy_status_t check_accesses(order_state_t *state, const ir_operation_t *operation)
{
    if (state->verifier.extents == NULL || state->num_in_flight == 0) {
        return UNCOPY_OK;
    }
    for (size_t i = 0; i < operation->num_reads; i++) {
        if (operation->reads[i].view != UNCOPY_NONE) {
            TRY(check_access(state, operation->reads[i].view, false));
        }
    }
    for (size_t i = 0; i < operation->num_writes; i++) {
        TRY(check_access(state, operation->writes[i], true));
    }
    return UNCOPY_OK;
}

/* ---- v17 ---- */

static bool has_operand_of(const order_state_t *state, const ir_operation_t *operation,
                           uint32_t storage)
{
    for (size_t i = 0; i < operation->num_reads; i++) {
        if (operation->reads[i].view != UNCOPY_NONE &&
            view_of(state, operation->reads[i].view)->storage == storage) {
            return true;
        }
    }
    for (size_t i = 0; i < operation->num_writes; i++) {
        if (view_of(state, operation->writes[i])->storage == storage) {
            return true;
        }
    }
    return false;
}

/* Whether an earlier return of the same operation has made the storage. */
static bool is_made_by(const order_state_t *state, const ir_operation_t *operation, size_t before,
                       uint32_t storage)
{
    for (size_t i = 0; i < before; i++) {
        if (view_of(state, operation->returns[i])->storage == storage) {
            return true;
        }
    }
    return false;
}

static uncopy_status_t check_returns(const order_state_t *state, const ir_operation_t *operation)
{
    const ir_program_t *program = state->verifier.program;
    for (size_t i = 0; i < operation->num_returns; i++) {
        const ir_view_t *view = view_of(state, operation->returns[i]);
        const ir_storage_t *storage = &program->storages[view->storage];
        bool is_ours = storage->kind == IR_STORAGE_SCRATCH || storage->kind == IR_STORAGE_FRESH;
        bool makes = is_ours && !state->is_touched[view->storage] &&
                     storage->first_view == operation->returns[i];
        if (!makes && !has_operand_of(state, operation, view->storage) &&
            !is_made_by(state, operation, i, view->storage)) {
            return verify_fail(&state->verifier, "v17",
                               "returns %s: neither an alias of an operand nor the first view of "
                               "a storage that is not there yet",
                               view->name);
        }
    }
    return UNCOPY_OK;
}

static void touch(order_state_t *state, const ir_operation_t *operation)
{
    for (size_t i = 0; i < operation->num_reads; i++) {
        if (operation->reads[i].view != UNCOPY_NONE) {
            state->is_touched[view_of(state, operation->reads[i].view)->storage] = true;
        }
    }
    for (size_t i = 0; i < operation->num_writes; i++) {
        state->is_touched[view_of(state, operation->writes[i])->storage] = true;
    }
    for (size_t i = 0; i < operation->num_returns; i++) {
        state->is_touched[view_of(state, operation->returns[i])->storage] = true;
    }
}

/* ---- the walk ---- */

static uncopy_status_t walk(order_state_t *state)
{
    const ir_program_t *program = state->verifier.program;
    for (size_t i = 0; i < program->num_operations; i++) {
        const ir_operation_t *operation = &program->operations[i];
        state->verifier.operation = i;
        op_class_t class_ = op_row(operation->opcode)->class_;
        if (class_ == OP_CLASS_FENCE) {
            TRY(check_fence(state, operation));
        } else if (class_ != OP_CLASS_ORDER) {
            TRY(check_accesses(state, operation));
            TRY(check_returns(state, operation));
            touch(state, operation);
        }
        if (class_ == OP_CLASS_COLLECTIVE) {
            state->in_flight[state->num_in_flight++] = i;
        }
    }
    return check_all_fenced(state);
}

uncopy_status_t verify_order(const ir_program_t *program, const ir_extent_t *extents)
{
    order_state_t state = {.verifier = {program, extents, program->num_operations}};
    arena_init(&state.arena, program->arena.allocator);
    state.is_touched =
        arena_allocate(&state.arena, program->num_storages, sizeof(*state.is_touched));
    state.in_flight =
        arena_allocate(&state.arena, program->num_operations, sizeof(*state.in_flight));
    uncopy_status_t status = UNCOPY_ERROR_MEMORY;
    if (state.is_touched != NULL && state.in_flight != NULL) {
        status = walk(&state);
    }
    arena_release(&state.arena);
    return status;
}
