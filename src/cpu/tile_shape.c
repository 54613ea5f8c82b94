/* How a tile program's loop is walked: dims without effect dropped, neighbours merged, mode, tile
 * and units chosen. None of it changes a bit: elements may be taken in any order, and reductions
 * count along the reduced dims in the program's order, which is never changed. */
#include <string.h>

#include "base/status.h"
#include "cpu/tile_code.h"

enum {
    BLOCK_COLUMNS = 32, /* of a tile where an operand lies along the other dim */
    FEW_REDUCED = 32,   /* so short rows are walked as columns */
    FEW_LANES = 16,
    SPLIT_UNITS = 16, /* rows are split where there are fewer units */
};

static int64_t magnitude(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t count_parts(int64_t whole, int64_t part)
{
    return (whole + part - 1) / part;
}

static bool names_operand(const tile_instruction_t *at)
{
    return at->code == TILE_READ || at->code == TILE_WRITE || at->code == TILE_ADD;
}

/* ---- entries ---- */

static void add_entry(tile_kernel_t *code, const tile_operand_t *operand, const int64_t *strides,
                      bool is_index)
{
    const tile_program_t *program = code->program;
    tile_entry_t *entry = &code->entries[code->num_entries++];
    *entry = (tile_entry_t){.operand = operand, .is_index = is_index, .dtype = UNCOPY_DTYPE_I64};
    if (operand != NULL) {
        entry->slot = operand->slot;
        entry->dtype = operand->dtype;
    }
    int32_t kept = 0, reduced = 0;
    for (int32_t d = 0; d < program->rank; d++) {
        if (program->sizes[d] == 1) {
            continue;
        }
        if (program->is_reduced[d]) {
            entry->reduced_strides[reduced++] = strides[d];
        } else {
            entry->kept_strides[kept++] = strides[d];
        }
    }
}

static bool has_index(const tile_program_t *program, const bool *is_needed, int32_t dim)
{
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        const tile_instruction_t *at = &program->instructions[i];
        if (is_needed[i] && at->code == TILE_INDEX && at->operand == dim) {
            return true;
        }
    }
    return false;
}

/* Entries of all operands in their order, then of the loop indices that are used. */
static void add_entries(tile_kernel_t *code, const bool *is_needed)
{
    const tile_program_t *program = code->program;
    for (uint16_t i = 0; i < program->num_operands; i++) {
        add_entry(code, &program->operands[i], program->operands[i].strides, false);
    }
    for (int32_t d = 0; d < program->rank; d++) {
        if (has_index(program, is_needed, d)) {
            int64_t strides[SPAN_MAX_RANK] = {0};
            strides[d] = 1;
            add_entry(code, NULL, strides, true);
            code->entries[code->num_entries - 1].slot = (uint16_t)d;
        }
    }
}

uint16_t tile_entry_of_operand(const tile_kernel_t *code, uint16_t operand)
{
    (void)code;
    return operand;
}

uint16_t tile_entry_of_index(const tile_kernel_t *code, int32_t dim)
{
    for (size_t i = code->program->num_operands; i < code->num_entries; i++) {
        if (code->entries[i].slot == dim) {
            return (uint16_t)i;
        }
    }
    return 0;
}

/* Operands that no needed instruction names do not count in any choice. */
static void clear_unneeded(tile_kernel_t *code, const bool *is_needed)
{
    bool is_used[TILE_MAX_OPERANDS] = {false};
    for (uint16_t i = 0; i < code->program->num_instructions; i++) {
        const tile_instruction_t *at = &code->program->instructions[i];
        if (is_needed[i] && names_operand(at)) {
            is_used[at->operand] = true;
        }
    }
    for (uint16_t i = 0; i < code->program->num_operands; i++) {
        if (!is_used[i]) {
            memset(code->entries[i].kept_strides, 0, sizeof(code->entries[i].kept_strides));
            memset(code->entries[i].reduced_strides, 0, sizeof(code->entries[i].reduced_strides));
        }
    }
}

/* ---- dims ---- */

static void take_sizes(tile_kernel_t *code)
{
    const tile_program_t *program = code->program;
    code->num_reduced = 1;
    for (int32_t d = 0; d < program->rank; d++) {
        code->is_empty |= program->sizes[d] == 0 && !program->is_reduced[d];
        code->num_reduced *= program->is_reduced[d] ? program->sizes[d] : 1;
        if (program->sizes[d] == 1) {
            continue;
        }
        if (program->is_reduced[d]) {
            code->reduced_sizes[code->reduced_rank++] = program->sizes[d];
        } else {
            /* an empty loop is shaped as one of one element, and not run */
            code->kept_sizes[code->kept_rank++] = program->sizes[d] > 0 ? program->sizes[d] : 1;
        }
    }
}

static void swap_kept(tile_kernel_t *code, int32_t a, int32_t b)
{
    int64_t size = code->kept_sizes[a];
    code->kept_sizes[a] = code->kept_sizes[b];
    code->kept_sizes[b] = size;
    for (size_t i = 0; i < code->num_entries; i++) {
        int64_t *strides = code->entries[i].kept_strides, stride = strides[a];
        strides[a] = strides[b];
        strides[b] = stride;
    }
}

static int64_t *entry_strides(tile_entry_t *entry, bool is_reduced)
{
    return is_reduced ? entry->reduced_strides : entry->kept_strides;
}

/* Merges neighbours that every entry walks as one. */
static void merge_dims(tile_kernel_t *code, bool is_reduced)
{
    int64_t *sizes = is_reduced ? code->reduced_sizes : code->kept_sizes;
    int32_t *rank = is_reduced ? &code->reduced_rank : &code->kept_rank, kept = 0;
    for (int32_t d = 1; d < *rank; d++) {
        bool merges = true;
        for (size_t i = 0; i < code->num_entries; i++) {
            const int64_t *strides = entry_strides(&code->entries[i], is_reduced);
            merges &= strides[kept] == strides[d] * sizes[d];
        }
        kept += merges ? 0 : 1;
        sizes[kept] = merges ? sizes[kept] * sizes[d] : sizes[d];
        for (size_t i = 0; i < code->num_entries; i++) {
            int64_t *strides = entry_strides(&code->entries[i], is_reduced);
            strides[kept] = strides[d];
        }
    }
    *rank = *rank > 0 ? kept + 1 : 0;
}

/* The operand whose layout leads: the first written, else the first read. */
static const tile_entry_t *lead_entry(const tile_kernel_t *code, const bool *is_needed)
{
    const tile_entry_t *lead = NULL;
    for (uint16_t i = 0; i < code->program->num_instructions; i++) {
        const tile_instruction_t *at = &code->program->instructions[i];
        if (!is_needed[i] || !names_operand(at)) {
            continue;
        }
        const tile_entry_t *entry = &code->entries[at->operand];
        if (at->code == TILE_WRITE) {
            return entry;
        }
        lead = lead == NULL ? entry : lead;
    }
    return lead;
}

/* Stable insertion sort, the lead's largest stride outermost. */
static void order_dims(tile_kernel_t *code, const tile_entry_t *lead)
{
    for (int32_t d = 1; d < code->kept_rank; d++) {
        for (int32_t e = d; e > 0; e--) {
            if (magnitude(lead->kept_strides[e - 1]) >= magnitude(lead->kept_strides[e])) {
                break;
            }
            swap_kept(code, e - 1, e);
        }
    }
}

/* Moves the dim along which some operand lies closest together next to the innermost, where that is
 * not the innermost itself. True where there is one. */
static bool place_transposed(tile_kernel_t *code)
{
    int32_t last = code->kept_rank - 1;
    for (size_t i = 0; i < code->program->num_operands; i++) {
        const int64_t *strides = code->entries[i].kept_strides;
        int32_t best = last;
        for (int32_t d = 0; d < last; d++) {
            if (strides[d] != 0 && strides[best] != 0 &&
                magnitude(strides[d]) < magnitude(strides[best])) {
                best = d;
            }
        }
        if (best < last) {
            swap_kept(code, best, last - 1);
            return true;
        }
    }
    return false;
}

/* Scattered writes happen in the loop's order, in one unit. */
static bool is_ordered(const tile_kernel_t *code)
{
    for (uint16_t i = 0; i < code->program->num_instructions; i++) {
        const tile_instruction_t *at = &code->program->instructions[i];
        bool is_write = at->code == TILE_WRITE || at->code == TILE_ADD;
        if (is_write &&
            (at->code == TILE_ADD || code->program->operands[at->operand].num_indices > 0)) {
            return true;
        }
    }
    return false;
}

static int64_t kept_product(const tile_kernel_t *code, int32_t rank)
{
    int64_t product = 1;
    for (int32_t d = 0; d < rank; d++) {
        product *= code->kept_sizes[d];
    }
    return product;
}

/* At least `rank` dims, so that the inner ones always exist. */
static void pad_kept(tile_kernel_t *code, int32_t rank)
{
    int32_t missing = rank - code->kept_rank;
    for (; missing > 0; missing--) {
        for (int32_t d = code->kept_rank; d > 0; d--) {
            swap_kept(code, d, d - 1);
        }
        code->kept_sizes[0] = 1;
        code->kept_rank++;
        for (size_t i = 0; i < code->num_entries; i++) {
            code->entries[i].kept_strides[0] = 0;
        }
    }
}

/* ---- modes ---- */

static void shape_tiles(tile_kernel_t *code, const bool *is_needed, bool is_serial)
{
    const tile_entry_t *lead = lead_entry(code, is_needed);
    bool is_transposed = false;
    code->mode = TILE_MODE_TILES;
    if (!is_serial && lead != NULL) {
        order_dims(code, lead);
    }
    merge_dims(code, false);
    if (!is_serial) {
        is_transposed = place_transposed(code);
    }
    pad_kept(code, 2);
    int64_t rows = code->kept_sizes[code->kept_rank - 2];
    int64_t columns = code->kept_sizes[code->kept_rank - 1];
    code->tile_columns = smaller(columns, is_transposed ? BLOCK_COLUMNS : TILE_ELEMENTS);
    code->tile_rows = smaller(TILE_ELEMENTS / code->tile_columns, rows);
    code->capacity = code->tile_rows * code->tile_columns;
    code->num_units = kept_product(code, code->kept_rank - 2) * count_parts(rows, code->tile_rows) *
                      count_parts(columns, code->tile_columns);
}

/* How many bytes a tile's operands move that lie contiguous along the dim. */
static int64_t contiguous_bytes(const tile_kernel_t *code, bool is_reduced, int32_t dim)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < code->program->num_operands; i++) {
        const tile_entry_t *entry = &code->entries[i];
        int64_t size = (int64_t)uncopy_dtype_size(entry->dtype);
        bool is_element = false;
        for (int32_t d = 0; d < code->reduced_rank; d++) {
            is_element |= entry->reduced_strides[d] != 0;
        }
        int64_t stride = is_reduced ? entry->reduced_strides[dim] : entry->kept_strides[dim];
        bytes += is_element && magnitude(stride) == size ? size : 0;
    }
    return bytes;
}

/* The kept dim whose indices become lanes; below 0 for walking rows. */
static int32_t choose_lanes(const tile_kernel_t *code)
{
    int32_t best = -1;
    int64_t most = 0, along = contiguous_bytes(code, true, code->reduced_rank - 1);
    for (int32_t d = 0; d < code->kept_rank; d++) {
        int64_t bytes = contiguous_bytes(code, false, d);
        if (bytes > most) {
            best = d;
            most = bytes;
        }
    }
    if (most > along && code->kept_sizes[best] > 1) {
        return best;
    }
    int32_t last = code->kept_rank - 1;
    bool is_short = code->num_reduced <= FEW_REDUCED && last >= 0 &&
                    code->kept_sizes[last] >= FEW_LANES && code->reduced_rank == 1;
    return is_short ? last : -1;
}

static void shape_columns(tile_kernel_t *code, int32_t lanes_dim, int64_t most_lanes)
{
    code->mode = TILE_MODE_COLUMNS;
    for (int32_t d = lanes_dim; d + 1 < code->kept_rank; d++) {
        swap_kept(code, d, d + 1);
    }
    int64_t lanes = code->kept_sizes[code->kept_rank - 1];
    code->tile_columns = smaller(lanes, most_lanes);
    code->tile_rows = 1;
    if (code->num_reduced <= FEW_REDUCED && code->reduced_rank == 1) {
        int64_t reduced = code->num_reduced > 0 ? code->num_reduced : 1;
        code->tile_columns = smaller(code->tile_columns, TILE_ELEMENTS / reduced);
        code->tile_rows = reduced;
    } else {
        code->tile_rows = smaller(TILE_ELEMENTS / code->tile_columns,
                                  code->reduced_sizes[code->reduced_rank - 1]);
        code->tile_rows = code->tile_rows < 1 ? 1 : code->tile_rows;
    }
    code->capacity = code->tile_rows * code->tile_columns;
    code->num_units =
        kept_product(code, code->kept_rank - 1) * count_parts(lanes, code->tile_columns);
}

static void shape_rows(tile_kernel_t *code)
{
    code->mode = TILE_MODE_ROWS;
    code->tile_rows = 1;
    code->tile_columns = smaller(TILE_ELEMENTS, code->num_reduced > 0 ? code->num_reduced : 1);
    code->capacity = code->tile_columns;
    code->num_units = kept_product(code, code->kept_rank);
}

static void count_levels(tile_kernel_t *code)
{
    int64_t tiles = count_parts(code->num_reduced, TILE_ELEMENTS);
    for (code->num_levels = 1; tiles >> code->num_levels > 0; code->num_levels++) {
    }
}

static void shape_reduced(tile_kernel_t *code, bool is_serial, int64_t most_lanes)
{
    merge_dims(code, true);
    if (code->reduced_rank == 0) {
        code->reduced_rank = 1;
        code->reduced_sizes[0] = 1;
    }
    merge_dims(code, false);
    int32_t lanes = is_serial ? -1 : choose_lanes(code);
    if (lanes >= 0) {
        shape_columns(code, lanes, most_lanes);
    } else {
        shape_rows(code);
    }
    count_levels(code);
    bool is_split = code->num_phases == 1 && !is_serial && code->num_units < SPLIT_UNITS &&
                    code->num_reduced > 2 * TILE_SPLIT_TILES * TILE_ELEMENTS;
    if (is_split) {
        code->num_splits = count_parts(code->num_reduced, TILE_SPLIT_TILES * TILE_ELEMENTS);
        code->num_units *= code->num_splits;
    }
}

static bool has_reduced(const tile_program_t *program)
{
    for (int32_t d = 0; d < program->rank; d++) {
        if (program->is_reduced[d]) {
            return true;
        }
    }
    return false;
}

void tile_shape(tile_kernel_t *code, const bool *is_needed, int64_t most_lanes)
{
    bool is_serial = is_ordered(code);
    code->num_splits = 1;
    take_sizes(code);
    add_entries(code, is_needed);
    clear_unneeded(code, is_needed);
    if (has_reduced(code->program)) {
        shape_reduced(code, is_serial, most_lanes);
    } else {
        shape_tiles(code, is_needed, is_serial);
    }
    code->num_tiles = code->num_units;
    if (code->is_empty) {
        code->num_units = code->num_tiles = 0;
    } else if (is_serial) {
        code->num_units = 1;
    }
}
