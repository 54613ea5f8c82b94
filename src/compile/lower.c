/* Lower: from operations to instructions, from storages to bases.
 *
 * Requires     an indexed unit, its order final
 * Establishes  q1, q2, q3 of plan.h
 * Breaks       nothing: the unit is left as it is
 *
 * Cost: linear in operations, operands and storages, but for placement. */
#include <string.h>

#include "base/status.h"
#include "compile/lower.h"
#include "compile/passes.h"

/* ---- operands ---- */

static bool is_whole_view(const unit_t *unit, const unit_view_t *view)
{
    const unit_view_t *first = &unit->views[unit->storages[view->storage].first_view];
    return !view->is_from_storage && view->dtype == first->dtype &&
           view->span.rank == first->span.rank && view->span.start == first->span.start &&
           span_has_same_layout(&view->span, &first->span);
}

static uncopy_status_t copy_dims(lowering_t *lowering, const unit_view_t *view,
                                 plan_operand_t *operand)
{
    arena_t *arena = &lowering->plan->arena;
    int64_t *sizes = arena_copy(arena, view->span.sizes, (size_t)view->span.rank, sizeof(int64_t));
    int64_t *strides = arena_allocate(arena, (size_t)view->span.rank, sizeof(int64_t));
    if (sizes == NULL || strides == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    for (int32_t d = 0; d < view->span.rank; d++) {
        strides[d] = view->span.strides[d] / view->span.element_bytes;
    }
    operand->sizes = sizes;
    operand->strides = strides;
    return UNCOPY_OK;
}

uncopy_status_t lower_add_operand(lowering_t *lowering, uint32_t number, uint32_t *out_operand)
{
    plan_t *plan = lowering->plan;
    unit_t *unit = lowering->unit;
    const unit_view_t *view = &unit->views[number];
    plan_operand_t operand = {.base = lower_base(lowering, view),
                              .dtype = view->dtype,
                              .rank = view->span.rank,
                              .is_whole = is_whole_view(unit, view),
                              .offset_bytes = view->span.start};
    span_hull(&view->span, &operand.hull_first, &operand.hull_end);
    if (plan->bases[operand.base].kind == UNCOPY_BASE_ARENA) {
        int64_t offset = lowering->storages[view->storage].offset_bytes;
        operand.offset_bytes += offset;
        operand.hull_first += offset;
        operand.hull_end += offset;
        operand.is_whole = false;
    }
    TRY(copy_dims(lowering, view, &operand));
    *out_operand = (uint32_t)plan->num_operands;
    ARENA_PUSH(&plan->arena, plan->operands, plan->num_operands, lowering->operands_capacity,
               operand);
    return UNCOPY_OK;
}

/* ---- instructions ---- */

static bool has_kernel(const unit_t *unit, const unit_op_t *op)
{
    if (op->opcode == OPCODE_EXTERN) {
        return false;
    }
    uncopy_dtype_t result = unit->views[op->writes[0]].dtype;
    uncopy_dtype_t read = result;
    for (size_t i = 0; i < op->num_reads; i++) {
        read = op->reads[i].view != UNCOPY_NONE ? unit->views[op->reads[i].view].dtype : read;
    }
    return target_takes(unit->target, op->opcode, read, result);
}

/* An operation that a row describes, and that the host runs all the same: its first write may be
 * what it returns. */
static bool returns_its_write(const lowering_t *lowering, const unit_op_t *op)
{
    const unit_t *unit = lowering->unit;
    const unit_view_t *view = &unit->views[op->writes[0]];
    const unit_storage_t *storage = &unit->storages[view->storage];
    return (storage->kind == IR_STORAGE_SCRATCH || storage->kind == IR_STORAGE_FRESH) &&
           storage->num_touches > 0 && &unit->ops[storage->touches[0]] == op &&
           is_whole_view(unit, view);
}

static plan_kind_t choose_kind(const lowering_t *lowering, const unit_op_t *op)
{
    const unit_t *unit = lowering->unit;
    bool is_overlapping = lowering->is_overlapping[op - unit->ops];
    bool is_extern_run = unit->options->kernels == UNCOPY_KERNELS_EXTERN || is_overlapping;
    switch (op_row(op->opcode)->class_) {
    case OP_CLASS_COLLECTIVE:
        return unit->program->groups[op->group].size == 1 ? PLAN_MOVE_RANK : PLAN_COLLECTIVE;
    case OP_CLASS_FENCE:
        return PLAN_FENCE;
    case OP_CLASS_MOVE:
        if (is_extern_run || !has_kernel(unit, op)) {
            return op->opcode == OPCODE_FILL ? PLAN_HOST_FILL : PLAN_HOST_COPY;
        }
        return PLAN_KERNEL;
    case OP_CLASS_POINTWISE:
    case OP_CLASS_MATMUL: {
        bool host_can = op->host_id >= 0 && (is_overlapping || returns_its_write(lowering, op) ||
                                             (op->effects & UNCOPY_EFFECT_OUT) != 0);
        if (host_can && (is_extern_run || !has_kernel(unit, op))) {
            return PLAN_HOST_CALL;
        }
        return op->opcode == OPCODE_MATMUL ? PLAN_MATMUL : PLAN_KERNEL;
    }
    case OP_CLASS_ORDER:
    case OP_CLASS_EXTERN:
        break;
    }
    return PLAN_HOST_CALL;
}

bool lower_makes_storage(const lowering_t *lowering, const unit_op_t *op, uint32_t storage)
{
    const unit_t *unit = lowering->unit;
    if (op->opcode == OPCODE_ORDER || choose_kind(lowering, op) != PLAN_HOST_CALL) {
        return false;
    }
    if (op->opcode != OPCODE_EXTERN) {
        return unit->views[op->writes[0]].storage == storage && returns_its_write(lowering, op);
    }
    return unit->storages[storage].maker == (uint32_t)(op - unit->ops);
}

static void describe_move(const unit_t *unit, const unit_op_t *op, plan_instruction_t *instruction)
{
    bool is_conversion = op->opcode == OPCODE_CONVERT && op->reason.code != REASON_NONE;
    if (op->opcode != OPCODE_COPY && !is_conversion && instruction->kind != PLAN_MOVE_RANK) {
        return;
    }
    const span_t *span = &unit->views[op->writes[0]].span;
    instruction->move_bytes = span_count(span) * span->element_bytes;
    bool is_scratch = unit->storages[unit->views[op->writes[0]].storage].kind == IR_STORAGE_SCRATCH;
    for (size_t i = 0; i < op->num_reads; i++) {
        uint32_t view = op->reads[i].view;
        is_scratch |= view != UNCOPY_NONE &&
                      unit->storages[unit->views[view].storage].kind == IR_STORAGE_SCRATCH;
    }
    instruction->move_kind = is_scratch ? PLAN_MOVE_COPY : PLAN_MOVE_ASKED;
    if (instruction->kind == PLAN_MOVE_RANK) {
        instruction->move_kind = PLAN_MOVE_ASKED;
    }
}

static uncopy_status_t note_copy(lowering_t *lowering, const unit_op_t *op,
                                 plan_instruction_t *instruction)
{
    plan_t *plan = lowering->plan;
    if (instruction->move_kind != PLAN_MOVE_COPY) {
        return UNCOPY_OK;
    }
    bool is_off = (lowering->unit->options->passes_off & UNCOPY_PASS_ELIDE) != 0;
    reason_t reason = is_off ? REASON_PASS_OFF : (reason_t)op->reason.code;
    const char *words = is_off || op->reason.words == NULL ? "no rule was asked" : op->reason.words;
    uncopy_copy_t copy = {.reason = reason_code(reason),
                          .words = arena_copy_text(&plan->arena, words, strlen(words)),
                          .bytes = instruction->move_bytes,
                          .file = instruction->file,
                          .line = instruction->line};
    if (copy.words == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    instruction->copy = (uint32_t)plan->num_copies;
    ARENA_PUSH(&plan->arena, plan->copies, plan->num_copies, lowering->copies_capacity, copy);
    return UNCOPY_OK;
}

static uncopy_status_t add_operands(lowering_t *lowering, const unit_op_t *op,
                                    plan_instruction_t *instruction)
{
    uint32_t operand = 0;
    instruction->first_operand = (uint32_t)lowering->plan->num_operands;
    bool has_row = op->opcode != OPCODE_EXTERN;
    for (size_t i = 0; i < (has_row ? 1 : op->num_returns); i++) {
        TRY(lower_add_operand(lowering, has_row ? op->writes[0] : op->returns[i], &operand));
        instruction->num_results++;
    }
    for (size_t i = 0; !has_row && i < op->num_writes; i++) {
        TRY(lower_add_operand(lowering, op->writes[i], &operand));
        instruction->num_writes++;
    }
    for (size_t i = 0; i < op->num_reads; i++) {
        if (op->reads[i].view != UNCOPY_NONE) {
            TRY(lower_add_operand(lowering, op->reads[i].view, &operand));
            instruction->num_reads++;
        } else if (instruction->kind == PLAN_HOST_FILL) {
            instruction->number = op->reads[i].number;
        }
    }
    return UNCOPY_OK;
}

/* RETURN, unless the one result goes to memory that is there already. */
static uncopy_call_form_t choose_form(const lowering_t *lowering, const unit_op_t *op)
{
    const unit_t *unit = lowering->unit;
    if (op->opcode != OPCODE_EXTERN) {
        return returns_its_write(lowering, op) ? UNCOPY_CALL_RETURN : UNCOPY_CALL_OUT;
    }
    bool is_out =
        op->num_returns == 1 && !op->return_is_alias[0] &&
        unit->storages[unit->views[op->returns[0]].storage].maker != (uint32_t)(op - unit->ops);
    return is_out ? UNCOPY_CALL_OUT : UNCOPY_CALL_RETURN;
}

static uncopy_status_t copy_name(lowering_t *lowering, const char *name, const char **out_copy)
{
    if (name != NULL) {
        *out_copy = arena_copy_text(&lowering->plan->arena, name, strlen(name));
        return *out_copy == NULL ? UNCOPY_ERROR_MEMORY : UNCOPY_OK;
    }
    return UNCOPY_OK;
}

static void mark_written(lowering_t *lowering, const unit_op_t *op,
                         const plan_instruction_t *instruction)
{
    const unit_t *unit = lowering->unit;
    size_t count = op->num_writes + (instruction->form == UNCOPY_CALL_OUT ? op->num_returns : 0);
    for (size_t i = 0; i < count; i++) {
        uint32_t view = i < op->num_writes ? op->writes[i] : op->returns[i - op->num_writes];
        uint32_t storage = unit->views[view].storage;
        if (storage >= unit->num_arguments) {
            continue;
        }
        bool is_host = instruction->kind == PLAN_HOST_CALL || instruction->kind == PLAN_HOST_COPY ||
                       instruction->kind == PLAN_HOST_FILL;
        lowering->plan->arguments[storage].is_written |= !is_host;
        lowering->plan->arguments[storage].is_written_by_host |= is_host;
    }
}

static uncopy_status_t lower_op(lowering_t *lowering, uint32_t number)
{
    plan_t *plan = lowering->plan;
    unit_t *unit = lowering->unit;
    const unit_op_t *op = &unit->ops[number];
    plan_instruction_t instruction = {.kind = choose_kind(lowering, op),
                                      .opcode = op->opcode,
                                      .host_id = op->host_id,
                                      .group = op->group,
                                      .copy = UNCOPY_NONE,
                                      .attribute = op->attributes[0],
                                      .line = op->line};
    TRY(copy_name(lowering, op->file, &instruction.file));
    TRY(copy_name(lowering, op->target, &instruction.target));
    if (instruction.kind == PLAN_FENCE) {
        if (unit->program->groups[unit->ops[op->partner].group].size == 1) {
            size_t before = plan->num_instructions;
            lowering->instruction_of[op->position] = (uint32_t)(before == 0 ? 0 : before - 1);
            return UNCOPY_OK;
        }
        instruction.work = lowering->works[op->partner];
    } else if (instruction.kind == PLAN_COLLECTIVE) {
        instruction.work = lowering->works[number] = (uint32_t)plan->num_works++;
        plan->needs_host_collective = true;
    } else if (instruction.kind == PLAN_HOST_CALL) {
        instruction.form = choose_form(lowering, op);
        plan->needs_host_call = true;
    }
    TRY(add_operands(lowering, op, &instruction));
    if (instruction.kind == PLAN_KERNEL || instruction.kind == PLAN_MATMUL ||
        instruction.kind == PLAN_MOVE_RANK) {
        TRY(lower_kernel_call(lowering, op, &instruction));
    }
    mark_written(lowering, op, &instruction);
    describe_move(unit, op, &instruction);
    TRY(note_copy(lowering, op, &instruction));
    lowering->instruction_of[op->position] = (uint32_t)plan->num_instructions;
    plan->instructions[plan->num_instructions++] = instruction;
    return UNCOPY_OK;
}

/* ---- releases ---- */

/* Bases of a run's own end after the last instruction that touches them. */
static uncopy_status_t add_releases(lowering_t *lowering)
{
    plan_t *plan = lowering->plan;
    unit_t *unit = lowering->unit;
    for (size_t s = unit->num_arguments; s < unit->num_storages; s++) {
        const unit_storage_t *storage = &unit->storages[s];
        uint32_t base = lowering->storages[s].base;
        if (base == UNCOPY_NONE || storage->is_output || storage->num_touches == 0 ||
            (plan->bases[base].kind != UNCOPY_BASE_SCRATCH &&
             plan->bases[base].kind != UNCOPY_BASE_MADE)) {
            continue;
        }
        const unit_op_t *last = &unit->ops[storage->touches[storage->num_touches - 1]];
        plan_instruction_t *at = &plan->instructions[lowering->instruction_of[last->position]];
        uint32_t *list = arena_allocate(&plan->arena, at->num_releases + 1, sizeof(*list));
        if (list == NULL) {
            return UNCOPY_ERROR_MEMORY;
        }
        if (at->num_releases != 0) {
            memcpy(list, at->releases, at->num_releases * sizeof(*list));
        }
        list[at->num_releases++] = base;
        at->releases = list;
    }
    return UNCOPY_OK;
}

/* ---- the plan's tables ---- */

static uncopy_status_t copy_arguments(lowering_t *lowering)
{
    plan_t *plan = lowering->plan;
    unit_t *unit = lowering->unit;
    plan->num_arguments = unit->num_arguments;
    plan->arguments = arena_allocate(&plan->arena, plan->num_arguments, sizeof(*plan->arguments));
    if (plan->arguments == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    for (size_t a = 0; a < plan->num_arguments; a++) {
        const unit_view_t *view = &unit->views[unit->storages[a].first_view];
        plan_argument_t *argument = &plan->arguments[a];
        plan_operand_t layout = {0};
        TRY(copy_dims(lowering, view, &layout));
        TRY(copy_name(lowering, view->name, &argument->name));
        argument->dtype = view->dtype;
        argument->rank = view->span.rank;
        argument->sizes = layout.sizes;
        argument->strides = layout.strides;
        argument->hull = facts_hull(unit->facts, (uint32_t)a);
        argument->storage_hull = facts_hull(unit->facts, (uint32_t)(a + unit->num_arguments));
    }
    return UNCOPY_OK;
}

static uncopy_status_t copy_groups(lowering_t *lowering)
{
    plan_t *plan = lowering->plan;
    const ir_program_t *program = lowering->unit->program;
    plan->num_groups = program->num_groups;
    plan->groups = arena_allocate(&plan->arena, plan->num_groups, sizeof(*plan->groups));
    if (plan->groups == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    for (size_t g = 0; g < plan->num_groups; g++) {
        plan->groups[g].size = program->groups[g].size;
        plan->groups[g].rank = program->groups[g].rank;
        TRY(copy_name(lowering, program->groups[g].token, &plan->groups[g].token));
        TRY(copy_name(lowering, program->groups[g].name, &plan->groups[g].name));
    }
    return UNCOPY_OK;
}

/* A result is the object itself where it names the storage's first view; any other view of it, the
 * same layout included, is a view in eager too. */
static uncopy_output_kind_t output_kind(const plan_t *plan, const plan_operand_t *operand,
                                        bool is_first_view)
{
    switch (plan->bases[operand->base].kind) {
    case UNCOPY_BASE_ARGUMENT:
        return is_first_view ? UNCOPY_OUTPUT_ARGUMENT : UNCOPY_OUTPUT_VIEW;
    case UNCOPY_BASE_STORAGE:
        return UNCOPY_OUTPUT_VIEW;
    case UNCOPY_BASE_CONSTANT:
        return UNCOPY_OUTPUT_CONSTANT;
    default:
        return is_first_view ? UNCOPY_OUTPUT_FRESH : UNCOPY_OUTPUT_FRESH_VIEW;
    }
}

static uncopy_status_t add_outputs(lowering_t *lowering)
{
    plan_t *plan = lowering->plan;
    unit_t *unit = lowering->unit;
    plan->num_outputs = unit->num_outputs;
    plan->outputs = arena_allocate(&plan->arena, plan->num_outputs, sizeof(*plan->outputs));
    if (plan->outputs == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    for (size_t i = 0; i < unit->num_outputs; i++) {
        uint32_t number = 0;
        TRY(lower_add_operand(lowering, unit->outputs[i], &number));
        const plan_operand_t *operand = &plan->operands[number];
        const plan_base_t *base = &plan->bases[operand->base];
        uint32_t storage = unit->views[unit->outputs[i]].storage;
        bool is_first_view = unit->outputs[i] == unit->storages[storage].first_view;
        plan->outputs[i] = (uncopy_output_t){.kind = output_kind(plan, operand, is_first_view),
                                             .bound = {.id = number,
                                                       .base = operand->base,
                                                       .kind = base->kind,
                                                       .argument = base->argument,
                                                       .is_whole = operand->is_whole,
                                                       .offset_bytes = operand->offset_bytes,
                                                       .dtype = operand->dtype,
                                                       .rank = operand->rank,
                                                       .sizes = operand->sizes,
                                                       .strides = operand->strides}};
    }
    return UNCOPY_OK;
}

static uncopy_status_t copy_removed(lowering_t *lowering)
{
    plan_t *plan = lowering->plan;
    unit_t *unit = lowering->unit;
    plan->removed = arena_allocate(&plan->arena, unit->num_removed, sizeof(*plan->removed));
    if (plan->removed == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    for (size_t i = 0; i < unit->num_removed; i++) {
        TRY(copy_name(lowering, unit->removed[i], &plan->removed[i]));
    }
    plan->num_removed = unit->num_removed;
    return UNCOPY_OK;
}

static void count_instructions(plan_t *plan)
{
    uncopy_plan_counts_t *counts = &plan->counts;
    counts->instructions = (int64_t)plan->num_instructions;
    counts->removed = (int64_t)plan->num_removed;
    for (size_t i = 0; i < plan->num_instructions; i++) {
        const plan_instruction_t *at = &plan->instructions[i];
        counts->moves += at->move_kind == PLAN_MOVE_ASKED;
        counts->bytes_moved += at->move_kind == PLAN_MOVE_ASKED ? at->move_bytes : 0;
        counts->copies += at->move_kind == PLAN_MOVE_COPY;
        counts->bytes_copied += at->move_kind == PLAN_MOVE_COPY ? at->move_bytes : 0;
        counts->externs += at->kind == PLAN_HOST_CALL;
        counts->collectives += at->kind == PLAN_COLLECTIVE;
    }
    for (size_t b = 0; b < plan->num_bases; b++) {
        bool is_made =
            plan->bases[b].kind == UNCOPY_BASE_MADE || plan->bases[b].kind == UNCOPY_BASE_SCRATCH;
        counts->made_bytes += is_made ? plan->bases[b].size_bytes : 0;
    }
}

static uncopy_status_t prepare(lowering_t *lowering)
{
    unit_t *unit = lowering->unit;
    plan_t *plan = lowering->plan;
    lowering->storages =
        arena_allocate(&unit->arena, unit->num_storages, sizeof(*lowering->storages));
    lowering->is_overlapping = arena_allocate(&unit->arena, unit->num_ops, sizeof(bool));
    lowering->works = arena_allocate(&unit->arena, unit->num_ops, sizeof(*lowering->works));
    lowering->instruction_of = arena_allocate(&unit->arena, unit->num_ops, sizeof(uint32_t));
    plan->instructions = arena_allocate(&plan->arena, unit->num_order, sizeof(*plan->instructions));
    plan->addresses = arena_copy(&plan->arena, facts_addresses(unit->facts),
                                 unit->num_arguments * 2, sizeof(*plan->addresses));
    if (lowering->storages == NULL || lowering->is_overlapping == NULL || lowering->works == NULL ||
        lowering->instruction_of == NULL || plan->instructions == NULL || plan->addresses == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    plan->order = unit->options->order;
    plan->arena_base = UNCOPY_NONE;
    return copy_name(lowering, unit->program->name, &plan->name);
}

uncopy_status_t lower_run(unit_t *unit, plan_t *plan)
{
    lowering_t lowering = {.unit = unit, .plan = plan};
    TRY(prepare(&lowering));
    TRY(copy_arguments(&lowering));
    TRY(copy_groups(&lowering));
    TRY(lower_find_overlaps(&lowering));
    TRY(lower_bases(&lowering));
    for (size_t i = 0; i < unit->num_order; i++) {
        if (unit->ops[unit->order[i]].opcode != OPCODE_ORDER) {
            TRY(lower_op(&lowering, unit->order[i]));
        }
    }
    TRY(add_releases(&lowering));
    TRY(add_outputs(&lowering));
    TRY(copy_removed(&lowering));
    count_instructions(plan);
    return facts_finish(unit->facts, &plan->arena, &plan->facts);
}
