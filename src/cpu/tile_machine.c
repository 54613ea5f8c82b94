/* The machine that runs prepared steps on one tile. See tile_code.h.
 *
 * Cost: 3 to 4 ns a step beside its inner loop. */
#include <string.h>

#include "cpu/tile_code.h"

static int64_t magnitude(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- places ---- */

void tile_machine_init(tile_machine_t *machine, const tile_kernel_t *code,
                       const tile_variant_t *variant, char *const *data, char *room)
{
    machine->code = code;
    machine->variant = variant;
    machine->room = room;
    machine->has_failed = false;
    for (size_t i = 0; i < code->num_entries; i++) {
        machine->data[i] = code->entries[i].is_index ? NULL : data[code->entries[i].slot];
    }
    for (size_t i = 0; i < variant->num_places; i++) {
        const tile_place_t *place = &variant->places[i];
        machine->at[i] = place->kind == PLACE_REGISTER ? room + place->offset : NULL;
        if (place->kind == PLACE_CONSTANT) {
            machine->at[i] = (char *)(uintptr_t)(code->constants + place->offset);
        }
    }
}

void tile_machine_move(tile_machine_t *machine)
{
    const tile_variant_t *variant = machine->variant;
    for (size_t i = 0; i < variant->num_entry_places; i++) {
        uint16_t place = variant->entry_places[i], entry = variant->places[place].entry;
        machine->at[place] = machine->data[entry] + machine->tile_offset[entry];
    }
    for (size_t i = 0; i < variant->num_moving_places; i++) {
        const tile_place_t *place = &variant->places[variant->moving_places[i]];
        machine->at[variant->moving_places[i]] =
            machine->room + place->offset + machine->start / TILE_ELEMENTS * place->advance;
    }
}

/* ---- elements of an entry ---- */

/* Strides along a tile's columns and rows. */
static int64_t column_stride(const tile_machine_t *machine, const tile_entry_t *entry)
{
    const tile_kernel_t *code = machine->code;
    if (code->mode == TILE_MODE_ROWS) {
        return machine->is_row_step ? 0 : entry->reduced_strides[code->reduced_rank - 1];
    }
    return entry->kept_strides[code->kept_rank - 1];
}

static int64_t row_stride(const tile_machine_t *machine, const tile_entry_t *entry)
{
    const tile_kernel_t *code = machine->code;
    switch (code->mode) {
    case TILE_MODE_TILES:
        return entry->kept_strides[code->kept_rank - 2];
    case TILE_MODE_COLUMNS:
        return entry->reduced_strides[code->reduced_rank - 1];
    case TILE_MODE_ROWS:
        break;
    }
    return 0;
}

/* A run of a tile's elements at one stride. */
typedef struct piece {
    int64_t first, count; /* elements of the tile */
    int64_t offset, stride;
} piece_t;

/* Whether a tile's elements follow several reduced dims. */
static bool is_line(const tile_machine_t *machine)
{
    return machine->code->mode == TILE_MODE_ROWS && machine->code->reduced_rank > 1 &&
           !machine->is_row_step;
}

static void locate_line(const tile_machine_t *machine, const tile_entry_t *entry,
                        int64_t row_offset, piece_t *piece)
{
    const tile_kernel_t *code = machine->code;
    int32_t last = code->reduced_rank - 1;
    int64_t place = machine->start + piece->first;
    int64_t inner = place % code->reduced_sizes[last];
    piece->stride = entry->reduced_strides[last];
    piece->count = smaller(code->reduced_sizes[last] - inner, machine->count - piece->first);
    piece->offset = row_offset;
    for (int32_t d = last; d >= 0; d--) {
        piece->offset += place % code->reduced_sizes[d] * entry->reduced_strides[d];
        place /= code->reduced_sizes[d];
    }
}

/* Steps through an entry's pieces; piece starts zeroed. False after the last. */
static bool next_piece(const tile_machine_t *machine, uint16_t number, piece_t *piece)
{
    const tile_entry_t *entry = &machine->code->entries[number];
    piece->first += piece->count;
    if (piece->first >= machine->count) {
        return false;
    }
    if (is_line(machine)) {
        locate_line(machine, entry, machine->offset[number], piece);
        return true;
    }
    piece->count = machine->columns;
    piece->stride = column_stride(machine, entry);
    piece->offset =
        machine->offset[number] + piece->first / machine->columns * row_stride(machine, entry);
    return true;
}

/* ---- loads and stores ---- */

/* Whether a tile's rows are farther from one another than its columns are. */
static bool is_transposed(const tile_machine_t *machine, const tile_entry_t *entry)
{
    int64_t row = magnitude(row_stride(machine, entry));
    return machine->rows > 1 && !is_line(machine) && row != 0 &&
           row < magnitude(column_stride(machine, entry));
}

static bool is_one_piece(const tile_machine_t *machine, const tile_entry_t *entry)
{
    return !is_line(machine) &&
           (machine->rows == 1 ||
            row_stride(machine, entry) == machine->columns * column_stride(machine, entry));
}

static void load(const tile_machine_t *machine, const tile_step_t *step)
{
    const tile_entry_t *entry = &machine->code->entries[step->entry];
    const char *from = machine->data[step->entry];
    char *to = machine->at[step->to];
    int64_t stride = column_stride(machine, entry);
    if (is_one_piece(machine, entry)) {
        step->run.load(to, 1, from + machine->offset[step->entry], stride, machine->count);
        return;
    }
    if (is_transposed(machine, entry)) {
        for (int64_t c = 0; c < machine->columns; c++) {
            step->run.load(to + c * step->element_bytes, machine->columns,
                           from + machine->offset[step->entry] + c * stride,
                           row_stride(machine, entry), machine->rows);
        }
        return;
    }
    piece_t piece = {0};
    while (next_piece(machine, step->entry, &piece)) {
        step->run.load(to + piece.first * step->element_bytes, 1, from + piece.offset, piece.stride,
                       piece.count);
    }
}

static void store(const tile_machine_t *machine, const tile_step_t *step)
{
    const char *from = machine->at[step->from[0]];
    char *to = machine->data[step->entry];
    const tile_entry_t *entry = &machine->code->entries[step->entry];
    if (is_one_piece(machine, entry)) {
        step->run.store(to + machine->offset[step->entry], column_stride(machine, entry), from,
                        machine->count);
        return;
    }
    piece_t piece = {0};
    while (next_piece(machine, step->entry, &piece)) {
        step->run.store(to + piece.offset, piece.stride, from + piece.first * step->element_bytes,
                        piece.count);
    }
}

static void make_index(const tile_machine_t *machine, const tile_step_t *step)
{
    int64_t *to = (int64_t *)(void *)machine->at[step->to];
    piece_t piece = {0};
    while (next_piece(machine, step->entry, &piece)) {
        for (int64_t i = 0; i < piece.count; i++) {
            to[piece.first + i] = piece.offset + i * piece.stride;
        }
    }
}

/* ---- places that indices pick ---- */

static int64_t read_index(const tile_machine_t *machine, const tile_step_t *step, uint8_t index,
                          int64_t element)
{
    const char *at = machine->at[step->indices[index]];
    if (step->index_is_i32[index]) {
        int32_t narrow = 0;
        memcpy(&narrow, at + element * (int64_t)sizeof(narrow), sizeof(narrow));
        return narrow;
    }
    int64_t wide = 0;
    memcpy(&wide, at + element * (int64_t)sizeof(wide), sizeof(wide));
    return wide;
}

/* Bytes that the indices add for one element of the tile. */
static int64_t picked_offset(const tile_machine_t *machine, const tile_step_t *step,
                             int64_t element)
{
    const tile_operand_t *operand = machine->code->entries[step->entry].operand;
    int64_t offset = 0;
    for (uint8_t i = 0; i < operand->num_indices; i++) {
        int64_t value = read_index(machine, step, i, element);
        offset += (value < 0 ? value + operand->index_sizes[i] : value) * operand->index_strides[i];
    }
    return offset;
}

static void gather(const tile_machine_t *machine, const tile_step_t *step)
{
    piece_t piece = {0};
    while (next_piece(machine, step->entry, &piece)) {
        const char *from = machine->data[step->entry] + piece.offset;
        char *to = machine->at[step->to] + piece.first * step->element_bytes;
        if (step->is_same_in_row) {
            step->run.load(to, 1, from + picked_offset(machine, step, piece.first), piece.stride,
                           piece.count);
            continue;
        }
        for (int64_t i = 0; i < piece.count; i++) {
            step->run.load(to + i * step->element_bytes, 1,
                           from + i * piece.stride + picked_offset(machine, step, piece.first + i),
                           0, 1);
        }
    }
}

static void add_number(kind_t kind, number_t *total, const char *from)
{
    number_t number = {.i64 = 0};
    memcpy(&number, from, (size_t)table_register_bytes(kind));
    switch (kind) {
    case KIND_F32:
        total->f32 += number.f32;
        return;
    case KIND_F64:
        total->f64 += number.f64;
        return;
    case KIND_I32:
        total->i32 = (int32_t)((uint32_t)total->i32 + (uint32_t)number.i32);
        return;
    case KIND_BOOL:
        total->boolean |= number.boolean;
        return;
    default:
        total->u64 += number.u64;
    }
}

static void scatter(const tile_machine_t *machine, const tile_step_t *step)
{
    piece_t piece = {0};
    while (next_piece(machine, step->entry, &piece)) {
        for (int64_t i = 0; i < piece.count; i++) {
            char *to = machine->data[step->entry] + piece.offset + i * piece.stride +
                       picked_offset(machine, step, piece.first + i);
            const char *from = machine->at[step->from[0]] + (piece.first + i) * step->element_bytes;
            number_t total = {.i64 = 0};
            if (step->is_added) {
                step->load_back(&total, 1, to, 0, 1);
                add_number((kind_t)step->kind, &total, from);
                from = (const char *)&total;
            }
            step->run.store(to, 0, from, 1);
        }
    }
}

static void check(tile_machine_t *machine, const tile_step_t *step)
{
    const tile_operand_t *operand = machine->code->entries[step->entry].operand;
    for (int64_t element = 0; element < machine->count; element++) {
        for (uint8_t i = 0; i < operand->num_indices; i++) {
            int64_t value = read_index(machine, step, i, element), size = operand->index_sizes[i];
            int64_t least = operand->allows_negative ? -size : 0;
            if (!machine->has_failed && (value < least || value >= size)) {
                machine->has_failed = true;
                *machine->failure = (tile_failure_t){
                    .operand = step->entry, .index = i, .value = value, .size = size};
            }
        }
    }
}

/* ---- registers ---- */

static void fill(char *to, const char *from, size_t element_bytes, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        memcpy(to + (size_t)i * element_bytes, from, element_bytes);
    }
}

static void run_row(const tile_machine_t *machine, const tile_step_t *step)
{
    const void *reads[TILE_MAX_SOURCES] = {machine->at[step->from[0]], machine->at[step->from[1]],
                                           machine->at[step->from[2]]};
    step->run.row(machine->at[step->to], reads, step->scalars, machine->count);
}

static void run_step(tile_machine_t *machine, const tile_step_t *step)
{
    const tile_kernel_t *code = machine->code;
    switch ((tile_step_code_t)step->code) {
    case STEP_LOAD:
        load(machine, step);
        return;
    case STEP_STORE:
        store(machine, step);
        return;
    case STEP_ROW:
        run_row(machine, step);
        return;
    case STEP_TAKE:
        step->run.load(machine->at[step->to], 1, machine->at[step->from[0]], step->element_bytes,
                       machine->count);
        return;
    case STEP_GIVE:
        step->run.store(machine->at[step->to], step->element_bytes, machine->at[step->from[0]],
                        machine->count);
        return;
    case STEP_FILL:
        fill(machine->at[step->to], machine->at[step->from[0]], step->element_bytes,
             code->capacity);
        return;
    case STEP_REPEAT:
        fill(machine->at[step->to], machine->at[step->from[0]],
             (size_t)step->element_bytes * (size_t)machine->lanes, code->tile_rows);
        return;
    case STEP_INDEX:
        make_index(machine, step);
        return;
    case STEP_GATHER:
        gather(machine, step);
        return;
    case STEP_SCATTER:
        scatter(machine, step);
        return;
    case STEP_ACCUMULATE:
        tile_accumulate(machine, step);
        return;
    case STEP_CHECK:
        check(machine, step);
        return;
    }
}

void tile_machine_run(tile_machine_t *machine, const tile_steps_t *steps)
{
    machine->offset = machine->tile_offset;
    machine->is_row_step = false;
    for (size_t i = 0; i < steps->count; i++) {
        run_step(machine, &steps->steps[i]);
    }
}

void tile_machine_run_row(tile_machine_t *machine, const tile_steps_t *steps)
{
    machine->offset = machine->row_offset;
    machine->is_row_step = true;
    machine->rows = 1;
    machine->columns = machine->count = machine->lanes;
    for (size_t i = 0; i < steps->count; i++) {
        run_step(machine, &steps->steps[i]);
    }
}
