/* Whether a program means something on given memory, byte by byte, by the rules that
 * random_program.h names. */
#include <stdlib.h>
#include <string.h>

#include "ir/verify.h"
#include "random_program.h"

enum { MAX_IN_FLIGHT = 16 };

typedef struct state {
    const scene_t *scene;
    const ir_program_t *program;
    char **known; /* by storage: 1 for each byte written so far; NULL for arguments */
    const ir_operation_t *flights[MAX_IN_FLIGHT];
    size_t num_flights;
} state_t;

/* ---- bytes ---- */

/* Offset of element index of the view from where its bytes are counted. */
static int64_t element_offset(const span_t *span, int64_t index)
{
    int64_t offset = span->start;
    for (int32_t d = span->rank - 1; d >= 0; d--) {
        offset += index % span->sizes[d] * span->strides[d];
        index /= span->sizes[d];
    }
    return offset;
}

static const span_t *span_of(const state_t *state, uncopy_view_t view)
{
    return &state->scene->extents[view].span;
}

/* A number that views with the same bytes have in common; storages are far apart. */
static int64_t address_of(const state_t *state, uncopy_view_t view, int64_t index)
{
    const ir_view_t *known = &state->program->views[view];
    int64_t base = ((int64_t)known->storage + 1) << 40;
    if (known->storage < state->program->num_arguments) {
        const reference_place_t *place = &state->scene->places[known->storage];
        base = known->is_from_storage ? place->storage : place->data;
    }
    return base + element_offset(span_of(state, view), index);
}

static bool meets(const state_t *state, uncopy_view_t a, uncopy_view_t b)
{
    int64_t count_a = span_count(span_of(state, a));
    int64_t count_b = span_count(span_of(state, b));
    int64_t bytes_a = span_of(state, a)->element_bytes;
    int64_t bytes_b = span_of(state, b)->element_bytes;
    for (int64_t i = 0; i < count_a; i++) {
        int64_t x = address_of(state, a, i);
        for (int64_t j = 0; j < count_b; j++) {
            int64_t y = address_of(state, b, j);
            if (x < y + bytes_b && y < x + bytes_a) {
                return true;
            }
        }
    }
    return false;
}

/* Whether a's elements are those of b from `first` on, one for one. */
static bool is_same(const state_t *state, uncopy_view_t a, uncopy_view_t b, int64_t first)
{
    int64_t count = span_count(span_of(state, a));
    bool is_equal = span_of(state, a)->element_bytes == span_of(state, b)->element_bytes;
    for (int64_t i = 0; is_equal && i < count; i++) {
        is_equal = address_of(state, a, i) == address_of(state, b, first + i);
    }
    return is_equal;
}

static char *known_bytes(const state_t *state, uncopy_view_t view, int64_t index)
{
    char *known = state->known[state->program->views[view].storage];
    return known == NULL ? NULL : known + element_offset(span_of(state, view), index);
}

static bool is_known(const state_t *state, uncopy_view_t view)
{
    int64_t count = span_count(span_of(state, view));
    for (int64_t i = 0; i < count; i++) {
        const char *known = known_bytes(state, view, i);
        for (int64_t b = 0; known != NULL && b < span_of(state, view)->element_bytes; b++) {
            if (known[b] == 0) {
                return false;
            }
        }
    }
    return true;
}

static void write_bytes(const state_t *state, uncopy_view_t view)
{
    int64_t count = span_count(span_of(state, view));
    for (int64_t i = 0; i < count; i++) {
        char *known = known_bytes(state, view, i);
        if (known != NULL) {
            memset(known, 1, (size_t)span_of(state, view)->element_bytes);
        }
    }
}

/* ---- operations ---- */

static bool is_target(const ir_operation_t *operation, const char *name)
{
    return operation->target != NULL && strncmp(operation->target, name, strlen(name)) == 0;
}

/* Whether the view may be used while what is in flight is in flight. */
static bool leaves_flights_alone(const state_t *state, uncopy_view_t view, bool is_write)
{
    for (size_t i = 0; i < state->num_flights; i++) {
        const ir_operation_t *other = state->flights[i];
        bool is_source_taken =
            other->opcode == OPCODE_ALL_REDUCE || other->opcode == OPCODE_BROADCAST;
        if (meets(state, view, other->writes[0]) ||
            (is_write && !is_source_taken && meets(state, view, other->reads[0].view))) {
            return false;
        }
    }
    return true;
}

static bool is_extern_fine(const state_t *state, const ir_operation_t *operation)
{
    bool is_unknown = (operation->effects & UNCOPY_EFFECT_AUDITED) == 0;
    bool may_see_flights = is_unknown || is_target(operation, "test.fail");
    bool reads_its_write = is_target(operation, "test.increment_");
    for (size_t i = 0; i < operation->num_writes; i++) {
        if (!span_is_injective(span_of(state, operation->writes[i])) ||
            (reads_its_write && !is_known(state, operation->writes[i]))) {
            return false;
        }
    }
    return !may_see_flights || state->num_flights == 0;
}

static bool is_collective_fine(const state_t *state, const ir_operation_t *operation)
{
    uncopy_view_t source = operation->reads[0].view;
    uncopy_view_t target = operation->writes[0];
    const ir_group_t *group = &state->program->groups[operation->group];
    bool is_in_place = (op_row(operation->opcode)->flags & OP_FLAG_IN_PLACE) != 0;
    int64_t slot = span_count(span_of(state, source)) * group->rank;
    return span_is_contiguous(span_of(state, source)) &&
           span_is_contiguous(span_of(state, target)) && state->num_flights < MAX_IN_FLIGHT &&
           (!meets(state, source, target) || (is_in_place && is_same(state, source, target, 0)) ||
            (operation->opcode == OPCODE_ALL_GATHER && is_same(state, source, target, slot)));
}

/* A row whose operands overlap its result runs on the host; there must be one. A matmul's sums then
 * grow until the order of their terms shows. */
static bool is_row_fine(const state_t *state, const ir_operation_t *operation)
{
    bool is_in_place = (op_row(operation->opcode)->flags & OP_FLAG_IN_PLACE) != 0;
    op_class_t class_ = op_row(operation->opcode)->class_;
    bool has_host =
        class_ == OP_CLASS_MOVE || (class_ == OP_CLASS_POINTWISE && operation->host_id >= 0);
    for (size_t i = 0; !has_host && i < operation->num_reads; i++) {
        uncopy_view_t view = operation->reads[i].view;
        if (view != UNCOPY_NONE && meets(state, view, operation->writes[0]) &&
            !(is_in_place && is_same(state, view, operation->writes[0], 0))) {
            return false;
        }
    }
    return true;
}

static bool are_operands_fine(const state_t *state, const ir_operation_t *operation)
{
    for (size_t i = 0; i < operation->num_reads; i++) {
        uncopy_view_t view = operation->reads[i].view;
        if (view != UNCOPY_NONE &&
            (!is_known(state, view) || !leaves_flights_alone(state, view, false))) {
            return false;
        }
    }
    for (size_t i = 0; i < operation->num_writes; i++) {
        if (!leaves_flights_alone(state, operation->writes[i], true)) {
            return false;
        }
    }
    return true;
}

static void take_effect(state_t *state, const ir_operation_t *operation)
{
    for (size_t i = 0; i < operation->num_writes; i++) {
        write_bytes(state, operation->writes[i]);
    }
    for (size_t i = 0; !is_target(operation, "test.same") && i < operation->num_returns; i++) {
        write_bytes(state, operation->returns[i]);
    }
    if (op_row(operation->opcode)->class_ == OP_CLASS_COLLECTIVE) {
        state->flights[state->num_flights++] = operation;
    }
}

static void end_flight(state_t *state, const ir_operation_t *fence)
{
    for (size_t i = 0; i < state->num_flights; i++) {
        if (is_same(state, fence->writes[0], state->flights[i]->writes[0], 0)) {
            state->flights[i] = state->flights[--state->num_flights];
            return;
        }
    }
}

static bool run_operation(state_t *state, const ir_operation_t *operation)
{
    bool is_fine = true;
    switch (op_row(operation->opcode)->class_) {
    case OP_CLASS_FENCE:
        end_flight(state, operation);
        return true;
    case OP_CLASS_ORDER:
        return true;
    case OP_CLASS_EXTERN:
        is_fine = is_extern_fine(state, operation);
        break;
    case OP_CLASS_COLLECTIVE:
        is_fine = is_collective_fine(state, operation);
        break;
    case OP_CLASS_POINTWISE:
    case OP_CLASS_MOVE:
    case OP_CLASS_MATMUL:
        is_fine = is_row_fine(state, operation);
        break;
    }
    is_fine = is_fine && are_operands_fine(state, operation);
    if (is_fine) {
        take_effect(state, operation);
    }
    return is_fine;
}

static bool run_all(state_t *state)
{
    for (size_t i = 0; i < state->program->num_operations; i++) {
        if (!run_operation(state, &state->program->operations[i])) {
            return false;
        }
    }
    for (size_t i = 0; i < state->program->num_outputs; i++) {
        if (!is_known(state, state->program->outputs[i])) {
            return false;
        }
    }
    return true;
}

bool random_program_is_defined(const scene_t *scene)
{
    const ir_program_t *program = &scene->program;
    state_t state = {.scene = scene, .program = program};
    if (ir_verify(program, scene->extents) != UNCOPY_OK) {
        return false;
    }
    state.known = calloc(program->num_storages + 1, sizeof(*state.known));
    for (size_t s = program->num_arguments; state.known != NULL && s < program->num_storages; s++) {
        int64_t first = 0;
        int64_t end = 0;
        span_hull(span_of(&state, program->storages[s].first_view), &first, &end);
        state.known[s] = calloc((size_t)end + 1, 1);
        if (state.known[s] != NULL && program->storages[s].kind == IR_STORAGE_CONSTANT) {
            memset(state.known[s], 1, (size_t)end);
        }
    }
    bool is_defined = state.known != NULL && run_all(&state);
    for (size_t s = 0; state.known != NULL && s < program->num_storages; s++) {
        free(state.known[s]);
    }
    free(state.known);
    return is_defined;
}
