/* Conformance of the tile machine: random programs over every row, reduction and dtype, with
 * broadcast, permuted, padded and odd-addressed operands, special values and operands in place, on
 * every instruction set of this processor and in several cuts, against the scalar twin: every
 * byte. */
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "cpu/table.h"
#include "cpu/tile.h"
#include "tile_twin.h"

enum { MAX_SLOTS = 8, SLOT_BYTES = 1 << 20, NUM_PROGRAMS = 3000 };

static const char *const isas[] = {"portable", "avx2", "avx512"};

static uint64_t state = 88172645463325252u;

static uint64_t random_bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static int64_t random_below(int64_t limit)
{
    return (int64_t)((random_bits() >> 11) % (uint64_t)limit);
}

/* ---- a random program ---- */

static const uncopy_dtype_t dtypes[] = {
    UNCOPY_DTYPE_F32, UNCOPY_DTYPE_BF16, UNCOPY_DTYPE_F16,  UNCOPY_DTYPE_F64, UNCOPY_DTYPE_I64,
    UNCOPY_DTYPE_I32, UNCOPY_DTYPE_U8,   UNCOPY_DTYPE_BOOL, UNCOPY_DTYPE_I16, UNCOPY_DTYPE_F32,
};
enum { NUM_DTYPES = sizeof(dtypes) / sizeof(dtypes[0]) };

typedef struct drawn {
    int32_t rank;
    int64_t sizes[4];
    bool is_reduced[4];
    uint16_t num_slots;
    uncopy_dtype_t slot_dtypes[MAX_SLOTS];
    int64_t slot_offsets[MAX_SLOTS];
    int shared[MAX_SLOTS];  /* the slot whose memory it is */
    size_t room[MAX_SLOTS]; /* bytes that are filled and compared */
    int64_t slot_strides[MAX_SLOTS][SPAN_MAX_RANK];
    tile_value_t values[64];
    size_t num_values;
    tile_builder_t builder;
} drawn_t;

static void draw_sizes(drawn_t *drawn)
{
    static const int64_t choices[] = {1, 2, 3, 5, 8, 17, 33, 64, 100, 129, 513, 700};
    int64_t total = 1;
    drawn->rank = (int32_t)random_below(4) + 1;
    bool has_reduced = random_below(3) != 0;
    for (int32_t d = 0; d < drawn->rank; d++) {
        do {
            drawn->sizes[d] = choices[random_below(12)];
        } while (total * drawn->sizes[d] > 20000);
        total *= drawn->sizes[d];
        drawn->is_reduced[d] = has_reduced && random_below(2) == 0;
    }
    if (random_below(40) == 0) {
        drawn->sizes[random_below(drawn->rank)] = 0;
    }
}

/* Strides of a new slot: a permuted layout, perhaps padded; some dims broadcast where it is read.
 * Bytes that it spans. */
static int64_t try_layout(drawn_t *drawn, uint16_t slot, bool is_read, bool is_row)
{
    int order[4] = {0, 1, 2, 3};
    int64_t stride = (int64_t)uncopy_dtype_size(drawn->slot_dtypes[slot]);
    bool is_permuted = random_below(3) == 0, is_padded = random_below(3) == 0;
    for (int i = drawn->rank - 1; is_permuted && i > 0; i--) {
        int j = (int)random_below(i + 1), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    stride *= random_below(8) == 0 ? 2 : 1;
    for (int i = drawn->rank - 1; i >= 0; i--) {
        int d = order[i];
        bool is_broadcast = (is_read && random_below(5) == 0) || (is_row && drawn->is_reduced[d]);
        drawn->slot_strides[slot][d] = is_broadcast ? 0 : stride;
        stride *= is_broadcast ? 1 : drawn->sizes[d] + (is_padded ? 3 : 0);
    }
    drawn->slot_offsets[slot] = random_below(64);
    drawn->shared[slot] = slot;
    drawn->room[slot] = (size_t)(stride < SLOT_BYTES - 128 ? stride : 0) + 128;
    return stride;
}

static void draw_layout(drawn_t *drawn, uint16_t slot, bool is_read, bool is_row)
{
    while (try_layout(drawn, slot, is_read, is_row) > SLOT_BYTES - 128) {
    }
}

static void draw_read(drawn_t *drawn)
{
    uint16_t slot = drawn->num_slots++;
    drawn->slot_dtypes[slot] = dtypes[random_below(NUM_DTYPES)];
    draw_layout(drawn, slot, true, false);
    drawn->values[drawn->num_values++] =
        tile_read(&drawn->builder, slot, drawn->slot_dtypes[slot], drawn->slot_strides[slot]);
}

static uncopy_dtype_t dtype_of(const drawn_t *drawn, tile_value_t value)
{
    return drawn->builder.instructions[value].dtype;
}

static tile_value_t draw_value(const drawn_t *drawn)
{
    return drawn->values[random_below((int64_t)drawn->num_values)];
}

static tile_value_t draw_number(drawn_t *drawn, opcode_t opcode, uncopy_dtype_t dtype, int read)
{
    static const double reals[] = {0, 1, -1, 0.3, 3, 1e30, -0.0, 2.5};
    kernel_immediate_t number = {.number = reals[random_below(8)]};
    if (dtype_kind(dtype) != DTYPE_KIND_FLOAT) {
        number = (kernel_immediate_t){
            .number = 0, .integer = random_below(300) - 100, .is_integer = true};
        number.number = (double)number.integer;
    }
    bool is_wide = read == 1 && (op_row(opcode)->flags & OP_FLAG_OPMATH) != 0;
    return tile_number(&drawn->builder, &number, dtype, is_wide);
}

/* One POINTWISE row; operands are converted to what the row takes. */
static void draw_apply(drawn_t *drawn)
{
    opcode_t opcode = OPCODE_EXTERN;
    tile_value_t sources[TILE_MAX_SOURCES], first = draw_value(drawn);
    uncopy_dtype_t dtype = dtype_of(drawn, first);
    double attributes[OP_MAX_ATTRIBUTES] = {1, 1};
    const op_row_t *row = NULL;
    bool is_fine = false;
    while (!is_fine) {
        opcode = (opcode_t)random_below(OPCODE_COUNT);
        row = op_row(opcode);
        uncopy_dtype_t reads[TILE_MAX_SOURCES] = {dtype, dtype, dtype};
        uncopy_dtype_t result = row->rule == OP_RULE_COMPARE ? UNCOPY_DTYPE_BOOL : dtype;
        reads[0] = row->rule == OP_RULE_SELECT ? UNCOPY_DTYPE_BOOL : dtype;
        is_fine = row->class_ == OP_CLASS_POINTWISE &&
                  op_accepts(opcode, reads, (size_t)row->num_reads, result);
    }
    for (int i = 0; i < row->num_reads; i++) {
        bool is_condition = row->rule == OP_RULE_SELECT && i == 0;
        bool is_number = !is_condition && i != (int)random_below(3) && random_below(4) == 0;
        sources[i] = tile_convert(&drawn->builder, i == 0 ? first : draw_value(drawn),
                                  is_condition ? UNCOPY_DTYPE_BOOL : dtype);
        if (is_number && row->num_reads > 1) {
            sources[i] = draw_number(drawn, opcode, dtype, i);
        }
    }
    const char *name = NULL;
    size_t length = 0;
    for (size_t i = 0; op_attribute(opcode, i, &name, &length, &attributes[i]); i++) {
        attributes[i] += (double)random_below(2);
    }
    uncopy_dtype_t result = row->rule == OP_RULE_COMPARE ? UNCOPY_DTYPE_BOOL : dtype;
    drawn->values[drawn->num_values++] =
        tile_apply(&drawn->builder, opcode, sources, (size_t)row->num_reads, attributes, result);
}

static bool has_reduced(const drawn_t *drawn)
{
    bool has = false;
    for (int32_t d = 0; d < drawn->rank; d++) {
        has |= drawn->is_reduced[d];
    }
    return has;
}

static void draw_reduce(drawn_t *drawn)
{
    tile_value_t value = draw_value(drawn);
    tile_reduction_t reduction = (tile_reduction_t)random_below(8);
    uncopy_dtype_t dtype = dtype_of(drawn, value);
    if (dtype == UNCOPY_DTYPE_BOOL && reduction >= TILE_AMAX && reduction <= TILE_ARGMIN) {
        reduction = TILE_ANY;
    }
    drawn->values[drawn->num_values++] = tile_reduce(&drawn->builder, reduction, value);
}

static void draw_step(drawn_t *drawn)
{
    int64_t kind = random_below(12);
    if (kind < 7) {
        draw_apply(drawn);
    } else if (kind < 9 && has_reduced(drawn)) {
        draw_reduce(drawn);
    } else if (kind < 10) {
        drawn->values[drawn->num_values++] =
            tile_convert(&drawn->builder, draw_value(drawn), dtypes[random_below(NUM_DTYPES)]);
    } else if (kind == 10) {
        drawn->values[drawn->num_values++] =
            tile_index(&drawn->builder, (int32_t)random_below(drawn->rank));
    } else if (drawn->num_slots < 4) {
        draw_read(drawn);
    }
}

/* A result of its own, or in place of a slot that is read without broadcast. */
static void draw_write(drawn_t *drawn, tile_value_t value)
{
    uint16_t slot = drawn->num_slots++;
    uncopy_dtype_t dtype = dtype_of(drawn, value);
    bool is_row = drawn->builder.instructions[value].is_row;
    drawn->slot_dtypes[slot] = dtype;
    draw_layout(drawn, slot, false, is_row);
    for (uint16_t other = 0; other < slot && random_below(2) == 0; other++) {
        bool is_free = drawn->shared[other] == other && drawn->slot_dtypes[other] == dtype;
        for (uint16_t s = 0; s < slot; s++) {
            is_free &= s == other || drawn->shared[s] != other;
        }
        for (int32_t d = 0; d < drawn->rank; d++) {
            bool is_zero = drawn->slot_strides[other][d] == 0;
            is_free &= is_zero == (is_row && drawn->is_reduced[d]);
        }
        if (is_free) {
            memcpy(drawn->slot_strides[slot], drawn->slot_strides[other],
                   sizeof(drawn->slot_strides[slot]));
            drawn->slot_offsets[slot] = drawn->slot_offsets[other];
            drawn->shared[slot] = other;
            drawn->room[slot] = drawn->room[other];
            break;
        }
    }
    tile_write(&drawn->builder, slot, dtype, drawn->slot_strides[slot], value);
}

static const tile_program_t *draw_program(drawn_t *drawn, arena_t *arena)
{
    const tile_program_t *program = NULL;
    memset(drawn, 0, sizeof(*drawn));
    draw_sizes(drawn);
    tile_begin(&drawn->builder, arena, drawn->rank, drawn->sizes, drawn->is_reduced,
               random_below(4) == 0);
    draw_read(drawn);
    for (int64_t i = random_below(8) + 1; i > 0; i--) {
        draw_step(drawn);
        if (drawn->builder.status != UNCOPY_OK) {
            return NULL;
        }
    }
    draw_write(drawn, drawn->values[drawn->num_values - 1]);
    if (random_below(3) == 0) {
        draw_write(drawn, draw_value(drawn));
    }
    return tile_finish(&drawn->builder, &program) == UNCOPY_OK ? program : NULL;
}

/* ---- memory ---- */

static char before[MAX_SLOTS][SLOT_BYTES], wanted[MAX_SLOTS][SLOT_BYTES],
    found[MAX_SLOTS][SLOT_BYTES];

static uint64_t random_element(uncopy_dtype_t dtype)
{
    static const double specials[] = {0.0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 1e-40, 3e38, 0.5};
    uint64_t bits = random_bits(), raw = random_bits();
    double wide = bits % 16 == 0 ? specials[(bits >> 8) % 10]
                                 : ldexp((double)(int64_t)raw, -62 + (int)(bits >> 16) % 4);
    float narrow = (float)wide;
    uint32_t word = 0;
    switch (dtype) {
    case UNCOPY_DTYPE_BOOL:
        return raw & 1;
    case UNCOPY_DTYPE_F64:
        memcpy(&raw, &wide, sizeof(wide));
        return raw;
    case UNCOPY_DTYPE_F32:
        memcpy(&word, &narrow, sizeof(word));
        return word;
    case UNCOPY_DTYPE_BF16:
        memcpy(&word, &narrow, sizeof(word));
        return word >> 16;
    default:
        return bits % 4 == 0 ? raw : raw & 0x3f3f;
    }
}

static void fill_slot(const drawn_t *drawn, uint16_t slot)
{
    size_t bytes = uncopy_dtype_size(drawn->slot_dtypes[slot]);
    for (size_t at = (size_t)drawn->slot_offsets[slot]; at + bytes <= drawn->room[slot];
         at += bytes) {
        uint64_t element = random_element(drawn->slot_dtypes[slot]);
        memcpy(before[slot] + at, &element, bytes);
    }
}

static void set_data(const drawn_t *drawn, char memory[MAX_SLOTS][SLOT_BYTES], char **data)
{
    for (uint16_t s = 0; s < drawn->num_slots; s++) {
        memcpy(memory[s], before[s], drawn->room[s]);
        data[s] = memory[drawn->shared[s]] + drawn->slot_offsets[s];
    }
}

static bool is_nan(const char *at, uncopy_dtype_t dtype)
{
    double wide = 0;
    number_t number = {.i64 = 0};
    if (dtype_kind(dtype) != DTYPE_KIND_FLOAT) {
        return false;
    }
    table_portable.loads[KIND_F64][dtype](&number, 1, at, 0, 1);
    wide = number.f64;
    return wide != wide;
}

/* Equal in every byte, but for what a NaN holds beside being one. */
static bool is_equal_slot(const drawn_t *drawn, uint16_t slot)
{
    uncopy_dtype_t dtype = drawn->slot_dtypes[slot];
    size_t bytes = uncopy_dtype_size(dtype), first = (size_t)drawn->slot_offsets[slot];
    if (memcmp(wanted[slot], found[slot], drawn->room[slot]) == 0) {
        return true;
    }
    for (size_t at = first; at + bytes <= drawn->room[slot]; at += bytes) {
        if (memcmp(wanted[slot] + at, found[slot] + at, bytes) != 0 &&
            !(is_nan(wanted[slot] + at, dtype) && is_nan(found[slot] + at, dtype))) {
            printf("    slot %u, element %zu\n", slot, (at - first) / bytes);
            return false;
        }
    }
    return true;
}

/* ---- comparing ---- */

/* Units in some ranges, the last first. */
static void run_in_parts(const tile_runner_t *runner, char *const *data, int64_t num_parts)
{
    char *workspace = malloc(runner->workspace_bytes + 1);
    for (int64_t part = num_parts - 1; part >= 0; part--) {
        runner->run(runner->kernel, data, workspace, runner->num_units * part / num_parts,
                    runner->num_units * (part + 1) / num_parts);
    }
    if (runner->workspace_bytes > 0) {
        runner->join(runner->kernel, data, workspace);
    }
    free(workspace);
}

static void print_program(const tile_program_t *program)
{
    text_t text;
    char *words = NULL;
    text_init(&text, &memory_system_allocator);
    tile_print(program, 4, &text);
    if (text_take(&text, &words) == UNCOPY_OK) {
        printf("%s", words);
        text_free(&memory_system_allocator, words);
    }
}

#if defined(__x86_64__)
__attribute__((target("fma"))) static float negated_product_plus(float a, float b, float c)
{
    return _mm_cvtss_f32(_mm_fnmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
}
#endif

/* False under Valgrind 3.19, which gives x - 1 * x by VFNMADD the sign of a negative zero. */
static bool can_check(const char *isa)
{
#if defined(__x86_64__)
    static bool is_told;
    volatile float x = 3;
    if (strcmp(isa, "portable") != 0 && signbit(negated_product_plus(1, x, x)) != 0) {
        if (!is_told) {
            printf("skipped, zeros of VFNMADD have the wrong sign here: the table %s\n", isa);
            is_told = true;
        }
        return false;
    }
#endif
    return true;
}

static bool check_program(const drawn_t *drawn, const tile_program_t *program, arena_t *arena)
{
    char *data[MAX_SLOTS];
    bool is_right = true;
    for (uint16_t s = 0; s < drawn->num_slots; s++) {
        fill_slot(drawn, s);
    }
    set_data(drawn, wanted, data);
    tile_twin_run(program, data);
    for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]) && is_right; i++) {
        tile_runner_t runner;
        if (!table_force(isas[i]) || !can_check(isas[i])) {
            continue;
        }
        uncopy_status_t status = tile_prepare(program, arena, &runner);
        if (status == UNCOPY_ERROR_UNSUPPORTED) {
            return true; /* too many registers */
        }
        for (int64_t parts = 1; parts <= 3 && is_right; parts += 2) {
            set_data(drawn, found, data);
            run_in_parts(&runner, data, parts);
            for (uint16_t s = 0; s < drawn->num_slots; s++) {
                is_right &= CHECK(is_equal_slot(drawn, s));
            }
        }
        if (!is_right) {
            printf("    on %s, by %s:\n", isas[i], tile_method_name(runner.kernel));
            print_program(program);
        }
    }
    return is_right;
}

static void random_programs_give_the_twins_bytes(void)
{
    static drawn_t drawn;
    int num_checked = 0;
    for (int i = 0; i < NUM_PROGRAMS && check_failures < 5; i++) {
        arena_t arena;
        arena_init(&arena, &memory_system_allocator);
        const tile_program_t *program = draw_program(&drawn, &arena);
        if (program != NULL) {
            (void)check_program(&drawn, program, &arena);
            num_checked++;
        }
        arena_release(&arena);
    }
    CHECK(num_checked > NUM_PROGRAMS / 2);
}

/* A row of more tiles than one unit takes, along rows and along lanes. */
static void long_rows_are_cut_where_their_tree_has_nodes(void)
{
    static drawn_t drawn;
    static const int64_t sizes[][2] = {{1, 131072 - 7}, {3, 66001}, {2, 100000}};
    for (int i = 0; i < 6; i++) {
        arena_t arena;
        const tile_program_t *program = NULL;
        memset(&drawn, 0, sizeof(drawn));
        arena_init(&arena, &memory_system_allocator);
        drawn.rank = 2;
        memcpy(drawn.sizes, sizes[i / 2], sizeof(sizes[0]));
        drawn.is_reduced[1] = true;
        drawn.num_slots = 4;
        tile_begin(&drawn.builder, &arena, 2, drawn.sizes, drawn.is_reduced, false);
        bool is_along = i % 2 == 0;
        int64_t strides[2] = {is_along ? sizes[i / 2][1] * 4 : 4,
                              is_along ? 4 : sizes[i / 2][0] * 4};
        tile_value_t value = tile_read(&drawn.builder, 0, UNCOPY_DTYPE_F32, strides);
        const tile_reduction_t reductions[] = {TILE_SUM, TILE_ARGMIN, TILE_AMAX};
        const int64_t to[2] = {8, 0};
        drawn.slot_dtypes[0] = UNCOPY_DTYPE_F32;
        drawn.room[0] = SLOT_BYTES;
        for (uint16_t r = 0; r < 3; r++) {
            drawn.slot_dtypes[r + 1] = r == 1 ? UNCOPY_DTYPE_I64 : UNCOPY_DTYPE_F32;
            drawn.shared[r + 1] = r + 1;
            drawn.room[r + 1] = 128;
            tile_write(&drawn.builder, (uint16_t)(r + 1), drawn.slot_dtypes[r + 1], to,
                       tile_reduce(&drawn.builder, reductions[r], value));
        }
        if (CHECK(tile_finish(&drawn.builder, &program) == UNCOPY_OK)) {
            tile_runner_t runner;
            CHECK(tile_prepare(program, &arena, &runner) == UNCOPY_OK);
            CHECK(runner.num_units > 2 && runner.workspace_bytes > 0);
            CHECK(check_program(&drawn, program, &arena));
        }
        arena_release(&arena);
    }
}

/* ---- indices ---- */

enum { ROWS = 7, WIDTH = 70, PICKED = 5 };

/* A table of ROWS by WIDTH, read or written at PICKED rows: dims PICKED by WIDTH. */
static const tile_program_t *picking_program(arena_t *arena, bool is_written, bool is_added,
                                             bool allows_negative)
{
    const tile_program_t *program = NULL;
    const int64_t sizes[2] = {PICKED, WIDTH}, index_strides[2] = {8, 0},
                  strides[2] = {WIDTH * 4, 4};
    tile_builder_t builder;
    tile_begin(&builder, arena, 2, sizes, NULL, false);
    tile_operand_t table = {.slot = 0,
                            .dtype = UNCOPY_DTYPE_F32,
                            .strides = {0, 4},
                            .num_indices = 1,
                            .allows_negative = allows_negative,
                            .index_strides = {WIDTH * 4},
                            .index_sizes = {ROWS}};
    table.indices[0] = tile_read(&builder, 1, UNCOPY_DTYPE_I64, index_strides);
    if (is_written) {
        tile_write_at(&builder, &table, tile_read(&builder, 2, UNCOPY_DTYPE_F32, strides),
                      is_added);
    } else {
        tile_write(&builder, 2, UNCOPY_DTYPE_F32, strides, tile_read_at(&builder, &table));
    }
    CHECK(tile_finish(&builder, &program) == UNCOPY_OK);
    return program;
}

static bool run_picking(float *table, const int64_t *indices, float *values, bool is_written,
                        bool is_added, bool allows_negative, tile_failure_t *failure)
{
    arena_t arena;
    tile_runner_t runner;
    arena_init(&arena, &memory_system_allocator);
    const tile_program_t *program = picking_program(&arena, is_written, is_added, allows_negative);
    char *data[3] = {(char *)table, (char *)(uintptr_t)indices, (char *)values};
    bool is_fine = CHECK(tile_prepare(program, &arena, &runner) == UNCOPY_OK) &&
                   runner.check(runner.kernel, data, failure);
    if (is_fine) {
        run_in_parts(&runner, data, 1);
    }
    arena_release(&arena);
    return is_fine;
}

static void indices_pick_rows(void)
{
    static float table[ROWS][WIDTH], values[PICKED][WIDTH];
    const int64_t indices[PICKED] = {6, 0, -7, 3, -1};
    tile_failure_t failure;
    int num_wrong = 0;
    for (int i = 0; i < ROWS * WIDTH; i++) {
        (&table[0][0])[i] = (float)i;
    }
    CHECK(run_picking(&table[0][0], indices, &values[0][0], false, false, true, &failure));
    for (int i = 0; i < PICKED * WIDTH; i++) {
        int64_t row = (indices[i / WIDTH] + ROWS) % ROWS;
        num_wrong += (&values[0][0])[i] != table[row][i % WIDTH];
    }
    CHECK_EQUAL_I64(num_wrong, 0);
}

/* The last write to a row stands, and added values all count, in the loop's order. */
static void indices_place_rows(void)
{
    static float table[ROWS][WIDTH], values[PICKED][WIDTH];
    const int64_t indices[PICKED] = {2, 5, 2, 5, 2};
    tile_failure_t failure;
    for (int i = 0; i < PICKED * WIDTH; i++) {
        (&values[0][0])[i] = (float)(1 << (i / WIDTH));
    }
    CHECK(run_picking(&table[0][0], indices, &values[0][0], true, false, false, &failure));
    CHECK(table[2][WIDTH - 1] == 16 && table[5][0] == 8 && table[0][3] == 0);
    CHECK(run_picking(&table[0][0], indices, &values[0][0], true, true, false, &failure));
    CHECK(table[2][7] == 16 + 1 + 4 + 16 && table[5][WIDTH - 1] == 8 + 2 + 8 && table[6][0] == 0);
}

static void an_index_out_of_range_is_told_and_nothing_is_written(void)
{
    static float table[ROWS][WIDTH], values[PICKED][WIDTH];
    const int64_t high[PICKED] = {0, 1, 2, ROWS, -9}, low[PICKED] = {0, 1, -1, 2, 3};
    tile_failure_t failure = {0};
    values[0][0] = 1;
    CHECK(!run_picking(&table[0][0], high, &values[0][0], true, false, true, &failure));
    CHECK(failure.value == ROWS && failure.size == ROWS && table[0][0] == 0);
    CHECK(!run_picking(&table[0][0], low, &values[0][0], true, false, false, &failure));
    CHECK(failure.value == -1 && table[0][0] == 0);
    CHECK(run_picking(&table[0][0], low, &values[0][0], true, false, true, &failure));
}

/* ---- building ---- */

static void a_program_prints_as_it_is(void)
{
    arena_t arena;
    tile_builder_t builder;
    const tile_program_t *program = NULL;
    const int64_t sizes[2] = {8, 1024}, strides[2] = {2048, 2}, row[2] = {4, 0};
    const bool is_reduced[2] = {false, true};
    arena_init(&arena, &memory_system_allocator);
    tile_begin(&builder, &arena, 2, sizes, is_reduced, false);
    tile_value_t x = tile_convert(&builder, tile_read(&builder, 1, UNCOPY_DTYPE_BF16, strides),
                                  UNCOPY_DTYPE_F32);
    tile_value_t most = tile_reduce(&builder, TILE_AMAX, x);
    (void)tile_index(&builder, 1); /* not needed: dropped */
    const tile_value_t reads[2] = {x, most};
    const double alpha[OP_MAX_ATTRIBUTES] = {2, 0};
    tile_value_t apart = tile_apply(&builder, OPCODE_SUB, reads, 2, alpha, UNCOPY_DTYPE_F32);
    tile_write(&builder, 0, UNCOPY_DTYPE_BF16, strides, apart);
    tile_write(&builder, 2, UNCOPY_DTYPE_F32, row, most);
    CHECK(tile_finish(&builder, &program) == UNCOPY_OK);
    text_t text;
    char *words = NULL;
    text_init(&text, &memory_system_allocator);
    tile_print(program, 0, &text);
    CHECK(text_take(&text, &words) == UNCOPY_OK);
    CHECK_EQUAL_TEXT(words, "tile 8 x [1024]\n"
                            "  %0   bf16   read slot 1 (2048,2)\n"
                            "  %1   f32    convert %0\n"
                            "  %2   f32    reduce amax %1   a row\n"
                            "  %3   f32    sub %1, %2 alpha=2\n"
                            "  %4   bf16   convert %3\n"
                            "  bf16        write slot 0 (2048,2) %4\n"
                            "  f32         write slot 2 (4,0) %2   a row\n");
    text_free(&memory_system_allocator, words);
    arena_release(&arena);
}

/* What a builder or a loader may hand over is refused where it breaks an invariant. */
static void broken_programs_do_not_verify(void)
{
    arena_t arena;
    arena_init(&arena, &memory_system_allocator);
    const tile_program_t *whole = picking_program(&arena, false, false, true);
    for (int i = 0; i < 7; i++) {
        tile_program_t broken = *whole;
        tile_instruction_t instructions[8];
        tile_operand_t operands[8];
        memcpy(instructions, whole->instructions,
               whole->num_instructions * sizeof(instructions[0]));
        memcpy(operands, whole->operands, whole->num_operands * sizeof(operands[0]));
        broken.instructions = instructions;
        broken.operands = operands;
        tile_instruction_t *last = &instructions[whole->num_instructions - 1];
        CHECK(tile_verify(&broken) == UNCOPY_OK);
        last->sources[0] = i == 0 ? 5 : last->sources[0];
        last->operand = i == 1 ? 9 : last->operand;
        operands[0].slot = i == 2 ? 40 : operands[0].slot;
        instructions[0].dtype = i == 3 ? UNCOPY_DTYPE_F32 : instructions[0].dtype;
        broken.sizes[0] = i == 4 ? -1 : broken.sizes[0];
        last->code = i == 5 ? TILE_REDUCE : last->code;
        last->num_sources = i == 6 ? 2 : last->num_sources;
        CHECK(tile_verify(&broken) == UNCOPY_ERROR_PROGRAM);
    }
    arena_release(&arena);
}

static void what_has_no_tile_form_is_refused(void)
{
    arena_t arena;
    tile_builder_t builder;
    const tile_program_t *program = NULL;
    const int64_t sizes[1] = {4}, strides[1] = {8};
    arena_init(&arena, &memory_system_allocator);
    tile_begin(&builder, &arena, 1, sizes, NULL, false);
    tile_value_t value = tile_read(&builder, 0, UNCOPY_DTYPE_C64, strides);
    (void)tile_apply(&builder, OPCODE_NEG, &value, 1, NULL, UNCOPY_DTYPE_C64);
    CHECK(tile_finish(&builder, &program) == UNCOPY_ERROR_UNSUPPORTED);
    tile_begin(&builder, &arena, 1, sizes, NULL, false);
    value = tile_read(&builder, 0, UNCOPY_DTYPE_F32, strides);
    (void)tile_reduce(&builder, TILE_SUM, value);
    CHECK(tile_finish(&builder, &program) == UNCOPY_ERROR_UNSUPPORTED);
    tile_begin(&builder, &arena, 1, sizes, NULL, false);
    value = tile_read(&builder, 0, UNCOPY_DTYPE_F32, strides);
    for (int i = 0; i < TILE_MAX_CODES; i++) {
        value = tile_apply(&builder, OPCODE_NEG, &value, 1, NULL, UNCOPY_DTYPE_F32);
    }
    CHECK(tile_finish(&builder, &program) == UNCOPY_ERROR_UNSUPPORTED);
    arena_release(&arena);
}

int main(void)
{
    indices_pick_rows();
    indices_place_rows();
    an_index_out_of_range_is_told_and_nothing_is_written();
    a_program_prints_as_it_is();
    broken_programs_do_not_verify();
    what_has_no_tile_form_is_refused();
    long_rows_are_cut_where_their_tree_has_nodes();
    random_programs_give_the_twins_bytes();
    return check_finish("cpu_tile");
}
