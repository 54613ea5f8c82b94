/* Walking a prepared program's loop, unit by unit. See tile.h for units, tile_code.h for modes. */
#include <string.h>

#include "cpu/tile_code.h"

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t count_parts(int64_t whole, int64_t part)
{
    return (whole + part - 1) / part;
}

/* Offsets of every entry at index `place` of the outer rank kept dims, the last fastest. */
static void locate_outer(const tile_kernel_t *code, int64_t place, int32_t rank, int64_t *offsets)
{
    memset(offsets, 0, code->num_entries * sizeof(*offsets));
    for (int32_t d = rank - 1; d >= 0; d--) {
        int64_t index = place % code->kept_sizes[d];
        place /= code->kept_sizes[d];
        for (size_t i = 0; i < code->num_entries; i++) {
            offsets[i] += index * code->entries[i].kept_strides[d];
        }
    }
}

/* ---- no dim is reduced ---- */

static void run_tiles(tile_machine_t *machine, int64_t first, int64_t end)
{
    const tile_kernel_t *code = machine->code;
    int32_t last = code->kept_rank - 1;
    int64_t rows = code->kept_sizes[last - 1], columns = code->kept_sizes[last];
    int64_t across = count_parts(columns, code->tile_columns);
    int64_t plane = across * count_parts(rows, code->tile_rows), outer = -1;
    for (int64_t unit = first; unit < end; unit++) {
        int64_t row = unit % plane / across * code->tile_rows;
        int64_t column = unit % across * code->tile_columns;
        if (unit / plane != outer) {
            outer = unit / plane;
            locate_outer(code, outer, last - 1, machine->row_offset);
        }
        machine->rows = smaller(code->tile_rows, rows - row);
        machine->columns = smaller(code->tile_columns, columns - column);
        machine->count = machine->rows * machine->columns;
        for (size_t i = 0; i < code->num_entries; i++) {
            const int64_t *strides = code->entries[i].kept_strides;
            machine->tile_offset[i] =
                machine->row_offset[i] + row * strides[last - 1] + column * strides[last];
        }
        tile_machine_move(machine);
        tile_machine_run(machine, &machine->variant->elements[0]);
    }
}

/* ---- rows and blocks of lanes ---- */

static void locate_tile(tile_machine_t *machine)
{
    const tile_kernel_t *code = machine->code;
    bool is_line = code->mode == TILE_MODE_ROWS && code->reduced_rank > 1;
    for (size_t i = 0; i < code->num_entries; i++) {
        int64_t place = machine->start, offset = machine->row_offset[i];
        for (int32_t d = code->reduced_rank - 1; d >= 0 && !is_line; d--) {
            offset += place % code->reduced_sizes[d] * code->entries[i].reduced_strides[d];
            place /= code->reduced_sizes[d];
        }
        machine->tile_offset[i] = offset;
    }
    tile_machine_move(machine);
}

/* Elements along the reduced dims that the next tile takes, from start. */
static int64_t next_steps(const tile_machine_t *machine, int64_t start, int64_t end)
{
    const tile_kernel_t *code = machine->code;
    int64_t steps = smaller(end - start, TILE_ELEMENTS - start % TILE_ELEMENTS);
    if (code->mode == TILE_MODE_ROWS) {
        return steps;
    }
    int64_t inner = code->reduced_sizes[code->reduced_rank - 1];
    return smaller(smaller(steps, code->tile_rows), inner - start % inner);
}

static void run_phase(tile_machine_t *machine, size_t phase, int64_t first, int64_t end)
{
    bool is_rows = machine->code->mode == TILE_MODE_ROWS;
    tile_reductions_open(machine, phase);
    for (int64_t start = first, steps = 0; start < end; start += steps) {
        steps = next_steps(machine, start, end);
        machine->start = start;
        machine->rows = is_rows ? 1 : steps;
        machine->columns = is_rows ? steps : machine->lanes;
        machine->count = machine->rows * machine->columns;
        locate_tile(machine);
        tile_machine_run(machine, &machine->variant->elements[phase]);
        if ((start + steps) % TILE_ELEMENTS == 0 || start + steps == end) {
            tile_reductions_end_tile(machine, phase);
        }
    }
}

/* Sets lanes and offsets of a row, or of a block of lanes. */
static void enter_row(tile_machine_t *machine, int64_t row)
{
    const tile_kernel_t *code = machine->code;
    machine->lanes = 1;
    if (code->mode == TILE_MODE_ROWS) {
        locate_outer(code, row, code->kept_rank, machine->row_offset);
        return;
    }
    int32_t last = code->kept_rank - 1;
    int64_t blocks = count_parts(code->kept_sizes[last], code->tile_columns);
    int64_t lane = row % blocks * code->tile_columns;
    machine->lanes = smaller(code->tile_columns, code->kept_sizes[last] - lane);
    locate_outer(code, row / blocks, last, machine->row_offset);
    for (size_t i = 0; i < code->num_entries; i++) {
        machine->row_offset[i] += lane * code->entries[i].kept_strides[last];
    }
}

static void run_whole_row(tile_machine_t *machine, int64_t row)
{
    const tile_kernel_t *code = machine->code;
    enter_row(machine, row);
    for (size_t phase = 0; phase < code->num_phases; phase++) {
        tile_machine_run_row(machine, &machine->variant->rows[phase]);
        run_phase(machine, phase, 0, code->num_reduced);
        tile_reductions_close(machine, phase);
    }
    tile_machine_run_row(machine, &machine->variant->rows[code->num_phases]);
}

static void run_part(tile_machine_t *machine, int64_t unit, char *workspace)
{
    const tile_kernel_t *code = machine->code;
    const int64_t part = TILE_SPLIT_TILES * TILE_ELEMENTS;
    int64_t first = unit % code->num_splits * part;
    enter_row(machine, unit / code->num_splits);
    tile_machine_run_row(machine, &machine->variant->rows[0]);
    run_phase(machine, 0, first, smaller(first + part, code->num_reduced));
    tile_reductions_save(machine, workspace + (size_t)unit * machine->variant->partial_bytes);
}

static void run_rows(tile_machine_t *machine, char *workspace, int64_t first, int64_t end)
{
    for (int64_t unit = first; unit < end; unit++) {
        if (machine->code->num_splits > 1) {
            run_part(machine, unit, workspace);
        } else {
            run_whole_row(machine, unit);
        }
    }
}

/* ---- entries ---- */

/* Whether what is written starts at no address that something else is read or written at: then
 * nothing is in place. */
static bool is_apart(const tile_kernel_t *code, char *const *data)
{
    const tile_program_t *program = code->program;
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        const tile_instruction_t *at = &program->instructions[i];
        if (at->code != TILE_WRITE && at->code != TILE_ADD) {
            continue;
        }
        for (uint16_t o = 0; o < program->num_operands; o++) {
            if (o != at->operand &&
                data[program->operands[o].slot] == data[program->operands[at->operand].slot]) {
                return false;
            }
        }
    }
    return true;
}

static const tile_variant_t *choose_variant(const tile_kernel_t *code, char *const *data)
{
    return code->has_direct && is_apart(code, data) ? &code->direct : &code->safe;
}

size_t tile_workspace_bytes(const tile_kernel_t *code)
{
    return code->num_splits > 1 ? (size_t)code->num_units * code->safe.partial_bytes : 0;
}

static void run_range(const tile_kernel_t *code, const tile_variant_t *variant, char *const *data,
                      void *workspace, int64_t first, int64_t end)
{
    _Alignas(TILE_ALIGNMENT) char room[TILE_ROOM_BYTES];
    tile_machine_t machine;
    tile_machine_init(&machine, code, variant, data, room);
    machine.lanes = 1;
    tile_machine_run_row(&machine, &variant->setup);
    if (code->mode == TILE_MODE_TILES) {
        run_tiles(&machine, first, end);
    } else {
        run_rows(&machine, workspace, first, end);
    }
}

void tile_run(const tile_kernel_t *code, char *const *data, void *workspace, int64_t first,
              int64_t end)
{
    if (first >= end) {
        return;
    }
    bool is_serial = code->num_units != code->num_tiles;
    run_range(code, choose_variant(code, data), data, workspace, is_serial ? 0 : first,
              is_serial ? code->num_tiles : end);
}

void tile_join(const tile_kernel_t *code, char *const *data, void *workspace)
{
    _Alignas(TILE_ALIGNMENT) char room[TILE_ROOM_BYTES];
    tile_machine_t machine;
    if (code->num_splits <= 1) {
        return;
    }
    const tile_variant_t *variant = &code->safe;
    tile_machine_init(&machine, code, variant, data, room);
    machine.lanes = 1;
    tile_machine_run_row(&machine, &variant->setup);
    for (int64_t row = 0; row < code->num_units / code->num_splits; row++) {
        enter_row(&machine, row);
        tile_machine_run_row(&machine, &variant->rows[0]);
        tile_reductions_join(&machine,
                             (const char *)workspace +
                                 (size_t)(row * code->num_splits) * variant->partial_bytes,
                             code->num_splits);
        tile_machine_run_row(&machine, &variant->rows[code->num_phases]);
    }
}

bool tile_check(const tile_kernel_t *code, char *const *data, tile_failure_t *out_failure)
{
    _Alignas(TILE_ALIGNMENT) char room[TILE_ROOM_BYTES];
    tile_machine_t machine;
    if (code->check == NULL || code->is_empty) {
        return true;
    }
    tile_machine_init(&machine, code->check, &code->check->safe, data, room);
    machine.lanes = 1;
    machine.failure = out_failure;
    tile_machine_run_row(&machine, &code->check->safe.setup);
    run_tiles(&machine, 0, code->check->num_tiles);
    return !machine.has_failed;
}
