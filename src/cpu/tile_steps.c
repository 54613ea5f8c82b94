/* From a tile program's instructions to steps over registers: one variant of prepared code.
 *
 * Requires     mode, tile and phases are chosen (tile_shape, tile_prepare)
 * Establishes  every place that a step reads was written by an earlier step of its phase or before,
 *              or is an operand in memory; stores come after all other steps of a tile
 *
 * A phase's element steps are emitted in the program's order for what the phase's reductions and
 * writes need; registers are given out and taken back along it. Row steps keep theirs.
 *
 * Cost: about instructions * phases steps and a search for a register each. */
#include "cpu/tile_maker.h"

#include <string.h>

#include "base/status.h"
#include "cpu/convert.h"

/* ---- places ---- */

static uint16_t add_place(maker_t *maker, tile_place_t place)
{
    tile_variant_t *variant = maker->variant;
    if (variant->num_places >= TILE_MAX_PLACES) {
        maker_fail(maker, status_fail(UNCOPY_ERROR_UNSUPPORTED,
                                      "a tile program needs more than %d places", TILE_MAX_PLACES));
        return 0;
    }
    tile_place_t *places = arena_grow(maker->arena, variant->places, variant->num_places,
                                      &variant->places_capacity, sizeof(*places));
    if (places == NULL) {
        maker_fail(maker, UNCOPY_ERROR_MEMORY);
        return 0;
    }
    variant->places = places;
    places[variant->num_places] = place;
    return (uint16_t)variant->num_places++;
}

static void note_place(maker_t *maker, uint16_t **list, size_t *count, size_t *capacity,
                       uint16_t place)
{
    uint16_t *room = arena_grow(maker->arena, *list, *count, capacity, sizeof(*room));
    if (room == NULL) {
        maker_fail(maker, UNCOPY_ERROR_MEMORY);
        return;
    }
    *list = room;
    room[(*count)++] = place;
}

uint16_t maker_take_room(maker_t *maker, size_t bytes)
{
    bytes = (bytes + TILE_ALIGNMENT - 1) / TILE_ALIGNMENT * TILE_ALIGNMENT;
    tile_place_t place = {.kind = PLACE_REGISTER, .offset = (uint32_t)maker->room_used};
    maker->room_used += bytes;
    return add_place(maker, place);
}

static uint16_t entry_place(maker_t *maker, uint16_t entry)
{
    if (maker->entry_places[entry] == NO_PLACE) {
        maker->entry_places[entry] =
            add_place(maker, (tile_place_t){.kind = PLACE_ENTRY, .entry = entry});
        tile_variant_t *variant = maker->variant;
        note_place(maker, &variant->entry_places, &variant->num_entry_places,
                   &variant->entry_capacity, maker->entry_places[entry]);
    }
    return maker->entry_places[entry];
}

static uint16_t constant_place(maker_t *maker, size_t offset)
{
    return add_place(maker, (tile_place_t){.kind = PLACE_CONSTANT, .offset = (uint32_t)offset});
}

static size_t tile_bytes(const maker_t *maker, kind_t kind)
{
    return (size_t)(maker->code->capacity * table_register_bytes(kind));
}

/* A register for a tile of kind; it is given back with free_register. */
static uint16_t take_register(maker_t *maker, kind_t kind)
{
    size_t bytes = tile_bytes(maker, kind);
    for (size_t i = 0; i < maker->num_registers; i++) {
        maker_register_t *at = &maker->registers[i];
        if (!at->is_used && at->bytes == bytes) {
            at->is_used = true;
            return at->place;
        }
    }
    uint16_t place = maker_take_room(maker, bytes);
    if (maker->num_registers < MAKER_MAX_REGISTERS) {
        maker->registers[maker->num_registers++] =
            (maker_register_t){.place = place, .bytes = bytes, .is_used = true};
    }
    return place;
}

static void free_register(maker_t *maker, uint16_t place)
{
    for (size_t i = 0; i < maker->num_registers; i++) {
        if (maker->registers[i].place == place) {
            maker->registers[i].is_used = false;
        }
    }
}

/* A register that holds a value over a whole row of several tiles. */
static uint16_t take_row_register(maker_t *maker, kind_t kind)
{
    size_t bytes = tile_bytes(maker, kind);
    size_t tiles = maker->tiles_kept;
    uint16_t place = maker_take_room(maker, bytes * tiles);
    if (tiles > 1 && maker->status == UNCOPY_OK) {
        tile_variant_t *variant = maker->variant;
        variant->places[place].advance = (uint32_t)bytes;
        note_place(maker, &variant->moving_places, &variant->num_moving_places,
                   &variant->moving_capacity, place);
    }
    return place;
}

/* Memory for one value of each lane. */
static uint16_t take_lanes(maker_t *maker)
{
    int64_t lanes = maker->code->mode == TILE_MODE_COLUMNS ? maker->code->tile_columns : 1;
    return maker_take_room(maker, (size_t)lanes * sizeof(number_t));
}

static uint16_t take_place(maker_t *maker, kind_t kind, bool is_row)
{
    return is_row ? take_lanes(maker) : take_register(maker, kind);
}

/* ---- steps ---- */

void maker_fail(maker_t *maker, uncopy_status_t status)
{
    if (maker->status == UNCOPY_OK) {
        maker->status = status;
    }
}

void maker_add_step(maker_t *maker, tile_steps_t *list, const tile_step_t *step)
{
    tile_step_t *steps =
        arena_grow(maker->arena, list->steps, list->count, &list->capacity, sizeof(*steps));
    if (steps == NULL) {
        maker_fail(maker, UNCOPY_ERROR_MEMORY);
        return;
    }
    list->steps = steps;
    steps[list->count++] = *step;
}

static uint8_t element_bytes(kind_t kind)
{
    return (uint8_t)table_register_bytes(kind);
}

static void add_take(maker_t *maker, tile_steps_t *list, uint16_t to, uint16_t from, kind_t kind,
                     uncopy_dtype_t dtype)
{
    load_t load = maker->code->table->loads[kind][dtype];
    if (load == NULL) {
        maker_fail(maker, status_fail(UNCOPY_ERROR_UNSUPPORTED, "no load of %s in a tile program",
                                      uncopy_dtype_name(dtype)));
        return;
    }
    maker_add_step(maker, list,
                   &(tile_step_t){.code = STEP_TAKE,
                                  .kind = (uint8_t)kind,
                                  .element_bytes = (uint8_t)uncopy_dtype_size(dtype),
                                  .to = to,
                                  .from = {from},
                                  .run.load = load});
}

static void add_give(maker_t *maker, tile_steps_t *list, uint16_t to, uint16_t from, kind_t kind,
                     uncopy_dtype_t dtype)
{
    store_t store = maker->code->table->stores[kind][dtype];
    if (store == NULL) {
        maker_fail(maker, status_fail(UNCOPY_ERROR_UNSUPPORTED, "no store of %s in a tile program",
                                      uncopy_dtype_name(dtype)));
        return;
    }
    maker_add_step(maker, list,
                   &(tile_step_t){.code = STEP_GIVE,
                                  .kind = (uint8_t)kind,
                                  .element_bytes = (uint8_t)uncopy_dtype_size(dtype),
                                  .to = to,
                                  .from = {from},
                                  .run.store = store});
}

/* ---- values as they are wanted ---- */

static const tile_instruction_t *instruction(const maker_t *maker, tile_value_t value)
{
    return &maker->code->program->instructions[value];
}

static bool is_constant(const maker_t *maker, tile_value_t value)
{
    return instruction(maker, value)->code == TILE_NUMBER;
}

static bool is_half(kind_t kind)
{
    return kind == KIND_BF16 || kind == KIND_F16;
}

/* A row's value, or a number, as a tile's register. */
static uint16_t full_place(maker_t *maker, tile_value_t value)
{
    maker_value_t *at = &maker->values[value];
    if (at->full != NO_PLACE) {
        return at->full;
    }
    at->full = maker_take_room(maker, tile_bytes(maker, at->kind));
    tile_step_t step = {.code = STEP_FILL,
                        .kind = (uint8_t)at->kind,
                        .element_bytes = element_bytes(at->kind),
                        .to = at->full,
                        .from = {at->place}};
    if (is_constant(maker, value)) {
        maker_add_step(maker, &maker->variant->setup, &step);
        return at->full;
    }
    step.code = maker->code->mode == TILE_MODE_COLUMNS ? STEP_REPEAT : STEP_FILL;
    maker_add_step(maker, &maker->variant->rows[maker->phase], &step);
    return at->full;
}

/* A number, or the single element of a row's value, in the compute type; NO_PLACE where a row has
 * more than one element. */
static uint16_t number_place(maker_t *maker, tile_value_t value)
{
    maker_value_t *at = &maker->values[value];
    if (!at->is_row || (maker->code->mode == TILE_MODE_COLUMNS && !is_constant(maker, value))) {
        return NO_PLACE;
    }
    if (at->number == NO_PLACE) {
        at->number = at->place;
        if (is_half(at->kind)) {
            at->number = take_lanes(maker);
            add_take(maker, &maker->variant->rows[maker->phase], at->number, at->place, KIND_F32,
                     table_register_dtype(at->kind));
        }
    }
    return at->number;
}

/* Where a source lies as a vector, for a step of a row or of an element. */
static uint16_t vector_place(maker_t *maker, tile_value_t value, bool is_row)
{
    maker_value_t *at = &maker->values[value];
    if (!at->is_row) {
        return at->place;
    }
    bool has_one_step = maker->code->mode == TILE_MODE_COLUMNS && maker->code->tile_rows == 1;
    if (!is_constant(maker, value) && (is_row || has_one_step)) {
        return at->place;
    }
    return full_place(maker, value);
}

/* The source as a vector of kind: only f16 and bf16 change. */
static uint16_t vector_of_kind(maker_t *maker, tile_steps_t *list, tile_value_t value, kind_t kind,
                               bool is_row, uint16_t *temporary)
{
    kind_t own = maker->values[value].kind;
    uint16_t place = vector_place(maker, value, is_row);
    *temporary = NO_PLACE;
    if (own == kind) {
        return place;
    }
    uint16_t wide = take_place(maker, kind, is_row);
    *temporary = is_row ? NO_PLACE : wide;
    add_take(maker, list, wide, place, kind, table_register_dtype(own));
    return wide;
}

/* ---- apply ---- */

/* The dtype that an APPLY computes on. */
static uncopy_dtype_t operand_dtype(const maker_t *maker, const tile_instruction_t *at)
{
    op_rule_t rule = op_row(at->opcode)->rule;
    if (rule != OP_RULE_COMPARE) {
        return at->dtype;
    }
    for (uint16_t s = 0; s < at->num_sources; s++) {
        if (!is_constant(maker, at->sources[s])) {
            return instruction(maker, at->sources[s])->dtype;
        }
    }
    return instruction(maker, at->sources[0])->dtype;
}

/* f16 and bf16 are computed as they are, unless some value is held wider. */
static kind_t apply_kind(const maker_t *maker, const tile_instruction_t *at, uncopy_dtype_t dtype)
{
    kind_t kind = table_register_kind(dtype);
    bool is_select = op_row(at->opcode)->rule == OP_RULE_SELECT;
    if (!is_half(kind)) {
        return kind;
    }
    bool is_wide = at->is_wide;
    for (uint16_t s = is_select ? 1 : 0; s < at->num_sources; s++) {
        const tile_instruction_t *source = instruction(maker, at->sources[s]);
        bool is_taken_as_number = source->code == TILE_NUMBER && at->num_sources == 2;
        is_wide |= !is_taken_as_number && maker->values[at->sources[s]].kind == KIND_F32;
    }
    return is_wide ? KIND_F32 : kind;
}

static row_form_t choose_form(maker_t *maker, const tile_instruction_t *at, uint16_t *number)
{
    *number = NO_PLACE;
    if (at->num_sources != 2) {
        return ROW_VECTORS;
    }
    bool is_first =
        maker->values[at->sources[0]].is_row && (is_constant(maker, at->sources[0]) || !at->is_row);
    bool is_second =
        maker->values[at->sources[1]].is_row && (is_constant(maker, at->sources[1]) || !at->is_row);
    if (is_second) {
        *number = number_place(maker, at->sources[1]);
        if (*number != NO_PLACE) {
            return ROW_VECTOR_NUMBER;
        }
    }
    if (is_first) {
        *number = number_place(maker, at->sources[0]);
        if (*number != NO_PLACE) {
            return ROW_NUMBER_VECTOR;
        }
    }
    return ROW_VECTORS;
}

static void set_scalars(const tile_instruction_t *at, uncopy_dtype_t dtype, tile_step_t *step)
{
    kind_t kind = table_kind(dtype);
    bool is_rounded = at->opcode == OPCODE_ADD || at->opcode == OPCODE_SUB;
    for (size_t i = 0; i < OP_MAX_ATTRIBUTES; i++) {
        const kernel_immediate_t number = {.number = at->attributes[i]};
        step->scalars[i] = convert_number(&number, dtype, kind, !is_rounded);
    }
}

/* Integers narrower than their register wrap, unless they are only stored. */
static bool needs_wrap(const maker_t *maker, const tile_instruction_t *at, tile_value_t value)
{
    kind_t kind = table_register_kind(at->dtype);
    if (table_register_dtype(kind) == at->dtype || op_row(at->opcode)->rule == OP_RULE_SELECT) {
        return false;
    }
    return !maker->values[value].is_only_stored;
}

static void add_wrap(maker_t *maker, tile_steps_t *list, uint16_t place, kind_t kind,
                     uncopy_dtype_t dtype, bool is_row)
{
    /* the narrow elements lie in a register of at least their size */
    uint16_t narrow = take_place(maker, kind, is_row);
    add_give(maker, list, narrow, place, kind, dtype);
    add_take(maker, list, place, narrow, kind, dtype);
    if (!is_row) {
        free_register(maker, narrow);
    }
}

static void free_sources(maker_t *maker, tile_value_t value)
{
    const tile_instruction_t *at = instruction(maker, value);
    for (uint16_t s = 0; s < at->num_sources && !at->is_row; s++) {
        maker_value_t *source = &maker->values[at->sources[s]];
        if (!source->is_row && !source->is_kept && source->last_use == value) {
            free_register(maker, source->place);
        }
    }
}

/* Where a value is to be made: its operand's own memory, a register of its row, a register. */
static uint16_t result_place(maker_t *maker, tile_value_t value, bool is_row)
{
    maker_value_t *at = &maker->values[value];
    if (at->direct_entry != NO_PLACE) {
        return entry_place(maker, at->direct_entry);
    }
    return at->is_kept ? take_row_register(maker, at->kind) : take_place(maker, at->kind, is_row);
}

static void emit_apply(maker_t *maker, tile_steps_t *list, tile_value_t value)
{
    const tile_instruction_t *at = instruction(maker, value);
    maker_value_t *made = &maker->values[value];
    uncopy_dtype_t dtype = operand_dtype(maker, at);
    kind_t kind = apply_kind(maker, at, dtype);
    bool is_select = op_row(at->opcode)->rule == OP_RULE_SELECT;
    bool is_test = op_row(at->opcode)->rule == OP_RULE_COMPARE;
    tile_step_t step = {.code = STEP_ROW, .kind = (uint8_t)kind};
    uint16_t number = NO_PLACE, temporaries[TILE_MAX_SOURCES];
    row_form_t form = choose_form(maker, at, &number);
    step.run.row = maker->code->table->rows[form][kind][at->opcode];
    if (step.run.row == NULL) {
        maker_fail(maker, status_fail(UNCOPY_ERROR_UNSUPPORTED, "no inner loop for %s of %s",
                                      op_row(at->opcode)->name, uncopy_dtype_name(dtype)));
        return;
    }
    for (uint16_t s = 0; s < at->num_sources; s++) {
        bool is_number = number != NO_PLACE && s == (form == ROW_VECTOR_NUMBER ? 1 : 0);
        temporaries[s] = NO_PLACE;
        step.from[s] = is_number ? number
                                 : vector_of_kind(maker, list, at->sources[s],
                                                  is_select && s == 0 ? KIND_BOOL : kind,
                                                  at->is_row, &temporaries[s]);
    }
    for (uint16_t s = at->num_sources; s < TILE_MAX_SOURCES; s++) {
        step.from[s] = step.from[0];
    }
    set_scalars(at, dtype, &step);
    for (uint16_t s = 0; s < at->num_sources; s++) {
        free_register(maker, temporaries[s]);
    }
    free_sources(maker, value);
    kind_t result = is_test ? KIND_BOOL : kind;
    if (result == made->kind) {
        made->place = step.to = result_place(maker, value, at->is_row);
        maker_add_step(maker, list, &step);
    } else {
        step.to = take_place(maker, result, at->is_row);
        maker_add_step(maker, list, &step);
        if (!at->is_row) {
            free_register(maker, step.to);
        }
        made->place = result_place(maker, value, at->is_row);
        add_give(maker, list, made->place, step.to, result, table_register_dtype(made->kind));
    }
    if (needs_wrap(maker, at, value)) {
        add_wrap(maker, list, made->place, made->kind, at->dtype, at->is_row);
    }
}

/* ---- convert ---- */

/* By way of f32 where f16 or bf16 take part. *place and *kind go in as the source's. */
static void widen_half(maker_t *maker, tile_steps_t *list, uint16_t *place, kind_t *kind,
                       bool is_row)
{
    if (is_half(*kind)) {
        uint16_t wide = take_place(maker, KIND_F32, is_row);
        add_take(maker, list, wide, *place, KIND_F32, table_register_dtype(*kind));
        *place = wide;
        *kind = KIND_F32;
    }
}

static void emit_convert(maker_t *maker, tile_steps_t *list, tile_value_t value)
{
    const tile_instruction_t *at = instruction(maker, value);
    maker_value_t *made = &maker->values[value];
    bool is_row = at->is_row;
    kind_t kind = maker->values[at->sources[0]].kind, to = made->kind;
    uint16_t first = vector_place(maker, at->sources[0], is_row), place = first;
    uncopy_dtype_t register_dtype = table_register_dtype(to);
    if (is_half(to) && kind != KIND_F32) {
        if (!is_half(kind)) {
            uint16_t wide = take_place(maker, KIND_F32, is_row);
            add_take(maker, list, wide, place, KIND_F32, table_register_dtype(kind));
            place = wide;
            kind = KIND_F32;
        }
        widen_half(maker, list, &place, &kind, is_row);
    }
    bool is_real = to == KIND_F32 || to == KIND_F64;
    if (!is_real && !is_half(to)) {
        widen_half(maker, list, &place, &kind, is_row);
    }
    bool is_narrow = register_dtype != at->dtype;
    if (!is_row && place != first) {
        free_register(maker, place);
    }
    free_sources(maker, value);
    uint16_t result = result_place(maker, value, is_row);
    made->place = result;
    if (is_real && kind == to) {
        add_take(maker, list, result, place, to, register_dtype); /* a copy: it was wide */
    } else if (is_real || kind == KIND_BOOL) {
        add_take(maker, list, result, place, to, table_register_dtype(kind));
    } else if (is_narrow) {
        uint16_t narrow = take_place(maker, to, is_row);
        add_give(maker, list, narrow, place, kind, at->dtype);
        add_take(maker, list, result, narrow, to, at->dtype);
        if (!is_row) {
            free_register(maker, narrow);
        }
    } else {
        add_give(maker, list, result, place, kind, register_dtype);
    }
}

/* ---- memory ---- */

/* Whether a tile of the entry lies in memory just as a register of kind would. */
static bool lies_as_register(const tile_kernel_t *code, const tile_entry_t *entry, kind_t kind)
{
    int64_t bytes = table_register_bytes(kind);
    bool is_plain = !entry->is_index && entry->operand->num_indices == 0 &&
                    entry->dtype == table_register_dtype(kind) && kind != KIND_BOOL;
    if (!is_plain) {
        return false;
    }
    if (code->mode == TILE_MODE_ROWS) {
        return code->reduced_rank == 1 && entry->reduced_strides[0] == bytes;
    }
    bool is_tiles = code->mode == TILE_MODE_TILES;
    int32_t last = code->kept_rank - 1;
    int64_t row =
        is_tiles ? entry->kept_strides[last - 1] : entry->reduced_strides[code->reduced_rank - 1];
    bool is_whole = code->tile_columns == code->kept_sizes[last];
    return (entry->kept_strides[last] == bytes || code->kept_sizes[last] == 1) &&
           (code->tile_rows == 1 || (is_whole && row == code->tile_columns * bytes));
}

static void set_indices(maker_t *maker, const tile_operand_t *operand, bool is_row,
                        tile_step_t *step)
{
    step->is_same_in_row = true;
    for (uint8_t i = 0; i < operand->num_indices; i++) {
        maker_value_t *index = &maker->values[operand->indices[i]];
        step->indices[i] = vector_place(maker, operand->indices[i], is_row);
        step->index_is_i32[i] = index->kind == KIND_I32;
        step->is_same_in_row &= !index->varies_in_row;
    }
}

static void emit_read(maker_t *maker, tile_steps_t *list, tile_value_t value)
{
    const tile_instruction_t *at = instruction(maker, value);
    maker_value_t *made = &maker->values[value];
    const tile_entry_t *entry = &maker->code->entries[at->operand];
    if (!made->is_kept && maker_is_in_memory(maker, value)) {
        made->place = entry_place(maker, at->operand);
        return;
    }
    tile_step_t step = {.code = entry->operand->num_indices > 0 ? STEP_GATHER : STEP_LOAD,
                        .kind = (uint8_t)made->kind,
                        .element_bytes = element_bytes(made->kind),
                        .entry = at->operand};
    step.run.load = maker->code->table->loads[made->kind][entry->dtype];
    set_indices(maker, entry->operand, at->is_row, &step);
    made->place = step.to = result_place(maker, value, at->is_row);
    maker_add_step(maker, list, &step);
}

static void emit_index(maker_t *maker, tile_steps_t *list, tile_value_t value)
{
    const tile_instruction_t *at = instruction(maker, value);
    maker_value_t *made = &maker->values[value];
    made->place = result_place(maker, value, at->is_row);
    maker_add_step(maker, list,
                   &(tile_step_t){.code = STEP_INDEX,
                                  .kind = (uint8_t)made->kind,
                                  .element_bytes = element_bytes(made->kind),
                                  .to = made->place,
                                  .entry = tile_entry_of_index(maker->code, at->operand)});
}

void maker_emit_write(maker_t *maker, tile_steps_t *list, tile_value_t value)
{
    const tile_instruction_t *at = instruction(maker, value);
    const tile_entry_t *entry = &maker->code->entries[at->operand];
    maker_value_t *source = &maker->values[at->sources[0]];
    if (source->direct_entry == at->operand) {
        return;
    }
    bool is_scattered = entry->operand->num_indices > 0 || at->code == TILE_ADD;
    kind_t kind = at->code == TILE_ADD ? table_kind(entry->dtype) : source->kind;
    uint16_t temporary = NO_PLACE;
    tile_step_t step = {.code = is_scattered ? STEP_SCATTER : STEP_STORE,
                        .kind = (uint8_t)kind,
                        .element_bytes = element_bytes(kind),
                        .is_added = at->code == TILE_ADD,
                        .entry = at->operand};
    step.from[0] = vector_of_kind(maker, list, at->sources[0], kind, at->is_row, &temporary);
    step.run.store = maker->code->table->stores[kind][entry->dtype];
    step.load_back = maker->code->table->loads[kind][entry->dtype];
    set_indices(maker, entry->operand, at->is_row, &step);
    if (step.run.store == NULL) {
        maker_fail(maker, status_fail(UNCOPY_ERROR_UNSUPPORTED, "no store of %s in a tile program",
                                      uncopy_dtype_name(entry->dtype)));
        return;
    }
    maker_add_step(maker, list, &step);
    free_register(maker, temporary);
}

/* ---- reductions ---- */

static void emit_accumulate(maker_t *maker, tile_steps_t *list, tile_value_t value)
{
    const tile_instruction_t *at = instruction(maker, value);
    size_t number = maker->values[value].reduction;
    tile_reduction_code_t *reduction = &maker->variant->reductions[number];
    uint16_t temporary = NO_PLACE;
    tile_step_t step = {.code = STEP_ACCUMULATE,
                        .kind = (uint8_t)reduction->kind,
                        .element_bytes = element_bytes(reduction->kind),
                        .reduction = (uint16_t)number};
    step.from[0] = vector_of_kind(maker, list, at->sources[0], reduction->kind, false, &temporary);
    maker_add_step(maker, list, &step);
    free_register(maker, temporary);
    free_sources(maker, value);
}

/* The reduction's result as a value: bools were counted in i32. */
static void emit_reduced(maker_t *maker, tile_steps_t *list, tile_value_t value)
{
    maker_value_t *made = &maker->values[value];
    const tile_reduction_code_t *reduction = &maker->variant->reductions[made->reduction];
    made->place = reduction->to;
    if (made->kind == KIND_BOOL) {
        made->place = take_lanes(maker);
        add_give(maker, list, made->place, reduction->to, reduction->kind, UNCOPY_DTYPE_BOOL);
    }
}

/* ---- one instruction ---- */

void maker_emit(maker_t *maker, tile_steps_t *list, tile_value_t value)
{
    switch (instruction(maker, value)->code) {
    case TILE_READ:
        emit_read(maker, list, value);
        return;
    case TILE_INDEX:
        emit_index(maker, list, value);
        return;
    case TILE_APPLY:
        emit_apply(maker, list, value);
        return;
    case TILE_CONVERT:
        emit_convert(maker, list, value);
        return;
    case TILE_REDUCE:
        if (list == &maker->variant->rows[maker->phase]) {
            emit_reduced(maker, list, value);
        } else {
            emit_accumulate(maker, list, value);
        }
        return;
    case TILE_WRITE:
    case TILE_ADD:
        maker_emit_write(maker, list, value);
        return;
    case TILE_NUMBER:
        return; /* a constant from the start */
    }
}

void maker_place_number(maker_t *maker, tile_value_t value, size_t element_offset,
                        size_t number_offset)
{
    maker->values[value].place = constant_place(maker, element_offset);
    maker->values[value].number = constant_place(maker, number_offset);
}

uint16_t maker_vector(maker_t *maker, tile_value_t value)
{
    return vector_place(maker, value, false);
}

bool maker_is_direct_write(const maker_t *maker, tile_value_t write)
{
    const tile_instruction_t *at = instruction(maker, write);
    const tile_instruction_t *source = instruction(maker, at->sources[0]);
    const maker_value_t *value = &maker->values[at->sources[0]];
    return at->code == TILE_WRITE && !at->is_row && !source->is_row && !value->is_kept &&
           value->direct_entry == NO_PLACE &&
           (source->code == TILE_APPLY || source->code == TILE_CONVERT) &&
           lies_as_register(maker->code, &maker->code->entries[at->operand], value->kind);
}

bool maker_is_in_memory(const maker_t *maker, tile_value_t value)
{
    const tile_instruction_t *at = instruction(maker, value);
    bool is_overtaken = maker->values[value].is_stored_as_read && !maker->is_direct;
    return at->code == TILE_READ && !at->is_row && !is_overtaken &&
           lies_as_register(maker->code, &maker->code->entries[at->operand],
                            maker->values[value].kind);
}
