/* From a tile program to prepared code: levels and phases, what is kept between them, the two
 * variants, the code that checks indices. See tile_code.h for the words. */
#include <string.h>

#include "base/status.h"
#include "cpu/convert.h"
#include "cpu/tile_maker.h"

enum { KEPT_BYTES = 48 * 1024, LEAST_LANES = 16, ELEMENT_BYTES = 16 };

static bool is_write(const tile_instruction_t *at)
{
    return at->code == TILE_WRITE || at->code == TILE_ADD;
}

static bool names_operand(const tile_instruction_t *at)
{
    return is_write(at) || at->code == TILE_READ;
}

/* Calls visit for every value that an instruction uses, its operand's indices among them. */
#define FOR_EACH_SOURCE(program, at, source)                         \
    for (size_t each = 0; each < count_sources(program, at); each++) \
        for (tile_value_t source = nth_source(program, at, each), once = 0; once == 0; once = 1)

static size_t count_sources(const tile_program_t *program, const tile_instruction_t *at)
{
    size_t indices = names_operand(at) ? program->operands[at->operand].num_indices : 0;
    return at->num_sources + indices;
}

static tile_value_t nth_source(const tile_program_t *program, const tile_instruction_t *at,
                               size_t n)
{
    return n < at->num_sources ? at->sources[n]
                               : program->operands[at->operand].indices[n - at->num_sources];
}

/* ---- levels and phases ---- */

static void set_levels(const tile_kernel_t *code, maker_value_t *values)
{
    const tile_program_t *program = code->program;
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        const tile_instruction_t *at = &program->instructions[i];
        size_t level = 0;
        FOR_EACH_SOURCE(program, at, source)
        {
            level = values[source].level > level ? values[source].level : level;
        }
        values[i].level = at->code == TILE_REDUCE ? level + 1 : level;
    }
}

/* One phase more than the last that a reduction ends or an element's write needs. */
static size_t count_phases(const tile_kernel_t *code, const bool *is_needed,
                           const maker_value_t *values)
{
    const tile_program_t *program = code->program;
    size_t phases = 1;
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        const tile_instruction_t *at = &program->instructions[i];
        bool is_element_write = is_write(at) && !at->is_row;
        size_t needed = at->code == TILE_REDUCE ? values[i].level
                        : is_element_write      ? values[i].level + 1
                                                : 1;
        phases = is_needed[i] && needed > phases ? needed : phases;
    }
    return phases;
}

/* ---- values ---- */

static kind_t value_kind(const tile_instruction_t *at)
{
    bool is_half = at->dtype == UNCOPY_DTYPE_F16 || at->dtype == UNCOPY_DTYPE_BF16;
    return at->is_wide && is_half ? KIND_F32 : table_register_kind(at->dtype);
}

static bool entry_varies(const tile_kernel_t *code, const tile_entry_t *entry)
{
    if (code->mode != TILE_MODE_ROWS) {
        return entry->kept_strides[code->kept_rank - 1] != 0;
    }
    for (int32_t d = 0; d < code->reduced_rank; d++) {
        if (entry->reduced_strides[d] != 0) {
            return true;
        }
    }
    return false;
}

static void set_varies(const tile_kernel_t *code, maker_value_t *values)
{
    const tile_program_t *program = code->program;
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        const tile_instruction_t *at = &program->instructions[i];
        bool varies = false;
        FOR_EACH_SOURCE(program, at, source)
        {
            varies |= values[source].varies_in_row;
        }
        if (at->code == TILE_READ) {
            varies |= entry_varies(code, &code->entries[at->operand]);
        } else if (at->code == TILE_INDEX) {
            varies |= entry_varies(code, &code->entries[tile_entry_of_index(code, at->operand)]);
        }
        values[i].varies_in_row = varies;
    }
}

static void set_only_stored(const tile_kernel_t *code, maker_value_t *values)
{
    const tile_program_t *program = code->program;
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        values[i].is_only_stored = true;
    }
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        const tile_instruction_t *at = &program->instructions[i];
        if (is_write(at)) {
            values[at->sources[0]].is_stored_as_read = true;
        }
        FOR_EACH_SOURCE(program, at, source)
        {
            bool is_store = at->code == TILE_WRITE && source == at->sources[0];
            values[source].is_only_stored &= is_store;
        }
    }
}

static void init_values(maker_t *maker)
{
    const tile_program_t *program = maker->code->program;
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        const tile_instruction_t *at = &program->instructions[i];
        maker->values[i] = (maker_value_t){.kind = value_kind(at),
                                           .is_row = at->is_row || at->code == TILE_NUMBER,
                                           .place = NO_PLACE,
                                           .full = NO_PLACE,
                                           .number = NO_PLACE,
                                           .direct_entry = NO_PLACE};
    }
    set_levels(maker->code, maker->values);
    set_varies(maker->code, maker->values);
    set_only_stored(maker->code, maker->values);
    for (size_t i = 0; i < TILE_MAX_ENTRIES; i++) {
        maker->entry_places[i] = NO_PLACE;
    }
}

/* ---- what a phase needs ---- */

/* Marks the elements' instructions that phase's reductions and writes need. Kept values made before
 * count as there. */
static void mark_phase(const maker_t *maker, size_t phase, bool *is_in_phase)
{
    const tile_program_t *program = maker->code->program;
    bool is_last = phase + 1 == maker->code->num_phases;
    memset(is_in_phase, 0, TILE_MAX_CODES * sizeof(*is_in_phase));
    for (size_t i = program->num_instructions; i-- > 0;) {
        const tile_instruction_t *at = &program->instructions[i];
        bool is_root = at->code == TILE_REDUCE ? maker->values[i].level == phase + 1
                                               : is_write(at) && !at->is_row && is_last;
        is_in_phase[i] |= is_root && maker->is_needed[i];
        if (!is_in_phase[i]) {
            continue;
        }
        FOR_EACH_SOURCE(program, at, source)
        {
            const maker_value_t *value = &maker->values[source];
            if (!value->is_row && !(value->is_kept && value->is_made)) {
                is_in_phase[source] = true;
            }
        }
    }
}

/* Marks as kept what a phase needs and an earlier one has made. first: the phase that makes it, or
 * more than any. */
static void mark_kept(maker_t *maker, size_t phase, size_t *first)
{
    const tile_program_t *program = maker->code->program;
    bool is_root[TILE_MAX_CODES], is_reached[TILE_MAX_CODES] = {false};
    mark_phase(maker, phase, is_root);
    for (size_t i = program->num_instructions; i-- > 0;) {
        const tile_instruction_t *at = &program->instructions[i];
        bool is_end = at->code == TILE_REDUCE || is_write(at);
        is_reached[i] |= is_end && is_root[i];
        if (!is_reached[i]) {
            continue;
        }
        first[i] = phase;
        FOR_EACH_SOURCE(program, at, source)
        {
            bool is_there = first[source] < phase && !maker_is_in_memory(maker, source);
            maker->values[source].is_kept |= is_there;
            is_reached[source] |= !is_there && !maker->values[source].is_row;
        }
    }
}

/* Values that more than one phase needs stay in registers where they fit the room; else they are
 * made again from the operands, which nothing has written yet: writes come last. */
static void choose_kept(maker_t *maker)
{
    const tile_kernel_t *code = maker->code;
    const tile_program_t *program = code->program;
    size_t first[TILE_MAX_CODES], bytes = 0;
    int64_t tiles = (code->num_reduced + TILE_ELEMENTS - 1) / TILE_ELEMENTS;
    bool is_one_tile = code->mode == TILE_MODE_COLUMNS && code->tile_rows >= code->num_reduced;
    if (code->num_phases == 1 || (code->mode == TILE_MODE_COLUMNS && !is_one_tile)) {
        return;
    }
    tiles = code->mode == TILE_MODE_COLUMNS || tiles < 1 ? 1 : tiles;
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        first[i] = SIZE_MAX;
    }
    for (size_t phase = 0; phase < code->num_phases; phase++) {
        mark_kept(maker, phase, first);
    }
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        int64_t size = table_register_bytes(maker->values[i].kind);
        maker->values[i].is_kept &= !maker->values[i].is_row;
        bytes += maker->values[i].is_kept ? (size_t)(code->capacity * tiles * size) : 0;
    }
    maker->tiles_kept = (size_t)tiles;
    for (uint16_t i = 0; bytes > KEPT_BYTES && i < program->num_instructions; i++) {
        maker->values[i].is_kept = false;
    }
}

/* ---- numbers ---- */

static uncopy_status_t make_constants(tile_kernel_t *code, arena_t *arena)
{
    const tile_program_t *program = code->program;
    char *room = arena_allocate(arena, (size_t)program->num_instructions + 1, 2 * ELEMENT_BYTES);
    if (room == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    code->constants = room;
    for (uint16_t i = 0; i < program->num_instructions; i++, room += 2 * ELEMENT_BYTES) {
        const tile_instruction_t *at = &program->instructions[i];
        if (at->code != TILE_NUMBER) {
            continue;
        }
        kind_t kind = table_kind(at->dtype), held = value_kind(at);
        number_t number = convert_number(&at->number, at->dtype, kind, at->is_wide);
        memcpy(room + ELEMENT_BYTES, &number, sizeof(number));
        code->table->stores[kind][table_register_dtype(held)](room, 0, &number, 1);
    }
    return UNCOPY_OK;
}

static void place_numbers(maker_t *maker)
{
    const tile_program_t *program = maker->code->program;
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        if (program->instructions[i].code == TILE_NUMBER) {
            size_t offset = (size_t)i * 2 * ELEMENT_BYTES;
            maker_place_number(maker, i, offset, offset + ELEMENT_BYTES);
        }
    }
}

/* ---- reductions ---- */

static void add_reductions(maker_t *maker)
{
    const tile_program_t *program = maker->code->program;
    tile_variant_t *variant = maker->variant;
    uint32_t partial = 0;
    int64_t lanes = maker->code->mode == TILE_MODE_COLUMNS ? maker->code->tile_columns : 1;
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        const tile_instruction_t *at = &program->instructions[i];
        if (at->code != TILE_REDUCE || !maker->is_needed[i]) {
            continue;
        }
        if (variant->num_reductions == TILE_MAX_REDUCTIONS) {
            maker_fail(maker, status_fail(UNCOPY_ERROR_UNSUPPORTED,
                                          "a tile program has more than %d reductions",
                                          TILE_MAX_REDUCTIONS));
            return;
        }
        kind_t source = maker->values[at->sources[0]].kind;
        tile_reduction_code_t reduction = {.reduction = at->reduction,
                                           .fold = tile_fold(at->reduction),
                                           .kind = tile_fold_kind(source),
                                           .phase = (uint16_t)(maker->values[i].level - 1),
                                           .partial = partial};
        reduction.to = maker_take_room(maker, (size_t)lanes * sizeof(number_t));
        reduction.offset = (uint32_t)maker->room_used;
        maker->room_used += tile_reduction_bytes(maker->code, &reduction);
        partial += (uint32_t)tile_partial_bytes(maker->code);
        maker->values[i].reduction = variant->num_reductions;
        variant->reductions[variant->num_reductions++] = reduction;
    }
    variant->partial_bytes = partial;
}

/* ---- emission ---- */

static void emit_row_level(maker_t *maker, size_t phase)
{
    const tile_program_t *program = maker->code->program;
    bool is_last = phase == maker->code->num_phases;
    maker->phase = phase;
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        const tile_instruction_t *at = &program->instructions[i];
        if (at->is_row && maker->is_needed[i] && !is_write(at) && maker->values[i].level == phase) {
            maker_emit(maker, &maker->variant->rows[phase], i);
        }
    }
    for (uint16_t i = 0; is_last && i < program->num_instructions; i++) {
        if (program->instructions[i].is_row && maker->is_needed[i] &&
            is_write(&program->instructions[i])) {
            maker_emit_write(maker, &maker->variant->rows[phase], i);
        }
    }
}

static void set_last_uses(maker_t *maker, const bool *is_in_phase)
{
    const tile_program_t *program = maker->code->program;
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        if (!is_in_phase[i]) {
            continue;
        }
        const tile_instruction_t *at = &program->instructions[i];
        /* stores come after everything else, and indices are read by them */
        tile_value_t use = is_write(at) || names_operand(at) ? TILE_NO_VALUE : i;
        FOR_EACH_SOURCE(program, at, source)
        {
            maker->values[source].last_use = use;
        }
    }
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        const tile_instruction_t *at = &program->instructions[i];
        if (!is_in_phase[i] || !names_operand(at)) {
            continue;
        }
        FOR_EACH_SOURCE(program, at, source)
        {
            maker->values[source].last_use = TILE_NO_VALUE;
        }
    }
}

/* In the safe variant only the last value made may go straight to memory: no read comes after. */
static void choose_direct(maker_t *maker, const bool *is_in_phase)
{
    const tile_program_t *program = maker->code->program;
    tile_value_t last = 0;
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        if (is_in_phase[i] && !is_write(&program->instructions[i])) {
            last = i;
        }
    }
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        const tile_instruction_t *at = &program->instructions[i];
        if (!is_in_phase[i] || !is_write(at) || !maker_is_direct_write(maker, i)) {
            continue;
        }
        tile_value_t source = at->sources[0];
        bool is_made_here = is_in_phase[source];
        if (is_made_here && (maker->is_direct || source == last)) {
            maker->values[source].direct_entry = at->operand;
        }
    }
}

static void emit_elements(maker_t *maker, size_t phase)
{
    const tile_program_t *program = maker->code->program;
    tile_steps_t *list = &maker->variant->elements[phase];
    bool is_in_phase[TILE_MAX_CODES];
    mark_phase(maker, phase, is_in_phase);
    set_last_uses(maker, is_in_phase);
    if (phase + 1 == maker->code->num_phases) {
        choose_direct(maker, is_in_phase);
    }
    for (size_t i = 0; i < maker->num_registers; i++) {
        maker->registers[i].is_used = false;
    }
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        if (is_in_phase[i] && !is_write(&program->instructions[i])) {
            maker_emit(maker, list, i);
            maker->values[i].is_made = true;
        }
    }
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        if (is_in_phase[i] && is_write(&program->instructions[i])) {
            maker_emit_write(maker, list, i);
        }
    }
}

static uncopy_status_t make_variant(tile_kernel_t *code, arena_t *arena, const bool *is_needed,
                                    bool is_direct, tile_variant_t *variant)
{
    *variant = (tile_variant_t){0};
    maker_t *maker = arena_allocate(arena, 1, sizeof(*maker));
    if (maker == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    *maker = (maker_t){.code = code,
                       .arena = arena,
                       .variant = variant,
                       .is_direct = is_direct,
                       .is_needed = is_needed,
                       .tiles_kept = 1};
    init_values(maker);
    choose_kept(maker);
    place_numbers(maker);
    add_reductions(maker);
    for (size_t phase = 0; phase < code->num_phases; phase++) {
        emit_row_level(maker, phase);
        emit_elements(maker, phase);
    }
    emit_row_level(maker, code->num_phases);
    variant->room_bytes = maker->room_used;
    if (maker->status == UNCOPY_OK && maker->room_used > TILE_ROOM_BYTES) {
        return status_fail(UNCOPY_ERROR_UNSUPPORTED,
                           "a tile program needs %zu bytes of registers, more than %d",
                           maker->room_used, TILE_ROOM_BYTES);
    }
    return maker->status;
}

/* ---- checks of indices ---- */

/* Marks the instructions that compute indices, and the reads and writes that use them. */
static void mark_indices(const tile_program_t *program, bool *is_needed)
{
    for (size_t i = program->num_instructions; i-- > 0;) {
        const tile_instruction_t *at = &program->instructions[i];
        if (names_operand(at)) {
            const tile_operand_t *operand = &program->operands[at->operand];
            for (uint8_t s = 0; s < operand->num_indices; s++) {
                is_needed[operand->indices[s]] = true;
            }
        }
        if (is_needed[i]) {
            FOR_EACH_SOURCE(program, at, source)
            {
                is_needed[source] = true;
            }
        }
    }
}

/* A program of the same instructions whose dims that no index depends on have size 1, and in which
 * no dim is reduced. */
static tile_program_t *checked_program(const tile_program_t *program, const bool *is_needed,
                                       arena_t *arena)
{
    tile_program_t *checked = arena_copy(arena, program, 1, sizeof(*program));
    tile_instruction_t *instructions =
        arena_copy(arena, program->instructions, program->num_instructions, sizeof(*instructions));
    if (checked == NULL || instructions == NULL) {
        return NULL;
    }
    checked->instructions = instructions;
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        instructions[i].is_row = false;
    }
    for (int32_t d = 0; d < program->rank; d++) {
        bool varies = false;
        for (uint16_t i = 0; i < program->num_instructions; i++) {
            const tile_instruction_t *at = &program->instructions[i];
            varies |= is_needed[i] && at->code == TILE_READ &&
                      program->operands[at->operand].strides[d] != 0;
            varies |= is_needed[i] && at->code == TILE_INDEX && at->operand == d;
        }
        checked->is_reduced[d] = false;
        checked->sizes[d] = varies || program->sizes[d] == 0 ? program->sizes[d] : 1;
    }
    return checked;
}

static void emit_checks(maker_t *maker)
{
    const tile_program_t *program = maker->code->program;
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        const tile_instruction_t *at = &program->instructions[i];
        if (!names_operand(at) || program->operands[at->operand].num_indices == 0) {
            continue;
        }
        const tile_operand_t *operand = &program->operands[at->operand];
        tile_step_t step = {.code = STEP_CHECK, .entry = at->operand};
        for (uint8_t s = 0; s < operand->num_indices; s++) {
            step.indices[s] = maker_vector(maker, operand->indices[s]);
            step.index_is_i32[s] = maker->values[operand->indices[s]].kind == KIND_I32;
        }
        maker_add_step(maker, &maker->variant->elements[0], &step);
    }
}

static uncopy_status_t make_check(const tile_program_t *program, arena_t *arena,
                                  const tile_kernel_t **out_check)
{
    bool is_needed[TILE_MAX_CODES] = {false};
    mark_indices(program, is_needed);
    tile_program_t *checked = checked_program(program, is_needed, arena);
    tile_kernel_t *code = arena_allocate(arena, 1, sizeof(*code));
    maker_t *maker = arena_allocate(arena, 1, sizeof(*maker));
    if (checked == NULL || code == NULL || maker == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        if (is_needed[i] && program->instructions[i].code == TILE_REDUCE) {
            return status_fail(UNCOPY_ERROR_UNSUPPORTED, "an index comes from a reduction");
        }
        if (is_needed[i] && program->instructions[i].code == TILE_READ &&
            program->operands[program->instructions[i].operand].num_indices > 0) {
            return status_fail(UNCOPY_ERROR_UNSUPPORTED, "an index is picked by an index");
        }
    }
    *code = (tile_kernel_t){.program = checked, .table = table_get(), .num_phases = 1};
    tile_shape(code, is_needed, TILE_MAX_LANES);
    TRY(make_constants(code, arena));
    *maker = (maker_t){.code = code,
                       .arena = arena,
                       .variant = &code->safe,
                       .is_needed = is_needed,
                       .tiles_kept = 1};
    init_values(maker);
    place_numbers(maker);
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        maker->values[i].last_use = TILE_NO_VALUE;
        if (is_needed[i]) {
            maker_emit(maker, &maker->variant->elements[0], i);
        }
    }
    emit_checks(maker);
    *out_check = code;
    return maker->status;
}

/* ---- the whole ---- */

static int64_t step_ps(const tile_step_t *step)
{
    return step->code == STEP_ROW ? 150 : 100;
}

/* Per element and step, and a few nanoseconds a step of each tile. */
static int64_t estimate_cost(const tile_kernel_t *code)
{
    double elements = (double)code->num_reduced, picoseconds = 0, steps = 0;
    for (int32_t d = 0; d < code->kept_rank; d++) {
        elements *= (double)code->kept_sizes[d];
    }
    for (size_t phase = 0; phase < code->num_phases; phase++) {
        const tile_steps_t *list = &code->safe.elements[phase];
        for (size_t i = 0; i < list->count; i++) {
            picoseconds += (double)step_ps(&list->steps[i]) * elements;
        }
        steps += (double)list->count + (double)code->safe.rows[phase].count;
    }
    double tiles = elements / (double)(code->capacity > 0 ? code->capacity : 1) + 1;
    picoseconds += steps * tiles * 4000;
    double nanoseconds = 20 + picoseconds / 1000;
    return nanoseconds < 1e18 ? (int64_t)nanoseconds : INT64_C(1000000000000000000);
}

/* Whether the two variants differ. */
static bool differs(const tile_kernel_t *code)
{
    size_t last = code->num_phases - 1;
    return code->direct.elements[last].count != code->safe.elements[last].count;
}

static uncopy_status_t make_variants(tile_kernel_t *code, arena_t *arena, const bool *is_needed,
                                     int64_t most_lanes)
{
    maker_value_t *values = arena_allocate(arena, TILE_MAX_CODES, sizeof(*values));
    if (values == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    set_levels(code, values);
    code->num_phases = count_phases(code, is_needed, values);
    if (code->num_phases > TILE_MAX_PHASES) {
        return status_fail(UNCOPY_ERROR_UNSUPPORTED, "a tile program has more than %d phases",
                           TILE_MAX_PHASES);
    }
    tile_shape(code, is_needed, most_lanes);
    TRY(make_constants(code, arena));
    TRY(make_variant(code, arena, is_needed, false, &code->safe));
    TRY(make_variant(code, arena, is_needed, true, &code->direct));
    code->has_direct = differs(code);
    return UNCOPY_OK;
}

uncopy_status_t tile_prepare(const tile_program_t *program, arena_t *arena,
                             tile_runner_t *out_runner)
{
    bool is_needed[TILE_MAX_CODES];
    memset(is_needed, 1, sizeof(is_needed));
    tile_kernel_t *code = arena_allocate(arena, 1, sizeof(*code));
    if (code == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    uncopy_status_t status = UNCOPY_ERROR_UNSUPPORTED;
    for (int64_t lanes = TILE_MAX_LANES; status == UNCOPY_ERROR_UNSUPPORTED && lanes >= LEAST_LANES;
         lanes /= 2) {
        *code = (tile_kernel_t){.program = program, .table = table_get()};
        status = make_variants(code, arena, is_needed, lanes);
        if (code->mode != TILE_MODE_COLUMNS) {
            break;
        }
    }
    TRY(status);
    if (program->may_raise) {
        TRY(make_check(program, arena, &code->check));
    }
    code->cost_ns = estimate_cost(code);
    *out_runner = (tile_runner_t){.kernel = code,
                                  .num_units = code->num_units,
                                  .workspace_bytes = tile_workspace_bytes(code),
                                  .cost_ns = code->cost_ns,
                                  .check = tile_check,
                                  .run = tile_run,
                                  .join = tile_join};
    return UNCOPY_OK;
}

const char *tile_method_name(const tile_kernel_t *code)
{
    static const char *const names[] = {
        [TILE_MODE_TILES] = "tiles", [TILE_MODE_ROWS] = "rows", [TILE_MODE_COLUMNS] = "columns"};
    return names[code->mode];
}
