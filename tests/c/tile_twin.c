#include "tile_twin.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/convert.h"

enum { MAX_ROW = 1 << 17 };

/* A value as it lies in a register of its kind: one element, or one for each reduced index. */
typedef struct value {
    kind_t kind;
    number_t *elements;
} value_t;

typedef struct twin {
    const tile_program_t *program;
    char *const *data;
    value_t values[TILE_MAX_CODES];
    int64_t kept[SPAN_MAX_RANK]; /* index; of reduced dims 0 */
    int64_t num_reduced;
} twin_t;

static bool is_half(uncopy_dtype_t dtype)
{
    return dtype == UNCOPY_DTYPE_F16 || dtype == UNCOPY_DTYPE_BF16;
}

/* The index of all dims at reduced place `place`. */
static void full_index(const twin_t *twin, int64_t place, int64_t *index)
{
    memcpy(index, twin->kept, sizeof(twin->kept));
    for (int32_t d = twin->program->rank - 1; d >= 0; d--) {
        if (twin->program->is_reduced[d] && twin->program->sizes[d] > 0) {
            index[d] = place % twin->program->sizes[d];
            place /= twin->program->sizes[d];
        }
    }
}

static int64_t as_index(const twin_t *twin, tile_value_t value, int64_t place)
{
    const value_t *at = &twin->values[value];
    const number_t *number = &at->elements[twin->program->instructions[value].is_row ? 0 : place];
    return at->kind == KIND_I32 ? number->i32 : number->i64;
}

static char *address(const twin_t *twin, const tile_operand_t *operand, int64_t place)
{
    int64_t index[SPAN_MAX_RANK], offset = 0;
    full_index(twin, place, index);
    for (int32_t d = 0; d < twin->program->rank; d++) {
        offset += index[d] * operand->strides[d];
    }
    for (uint8_t i = 0; i < operand->num_indices; i++) {
        int64_t at = as_index(twin, operand->indices[i], place);
        offset += (at < 0 ? at + operand->index_sizes[i] : at) * operand->index_strides[i];
    }
    return twin->data[operand->slot] + offset;
}

static number_t element_of(const twin_t *twin, tile_value_t value, int64_t place)
{
    return twin->values[value].elements[twin->program->instructions[value].is_row ? 0 : place];
}

/* A register's element in another kind, by way of memory of dtype. */
static number_t as_kind(number_t number, kind_t from, kind_t to)
{
    number_t result = {.i64 = 0};
    if (from == to) {
        return number;
    }
    load_t load = table_portable.loads[to][table_register_dtype(from)];
    load(&result, 1, (const char *)&number, 0, 1);
    return result;
}

static uncopy_dtype_t applied_dtype(const twin_t *twin, const tile_instruction_t *at)
{
    if (op_row(at->opcode)->rule != OP_RULE_COMPARE) {
        return at->dtype;
    }
    for (uint16_t s = 0; s < at->num_sources; s++) {
        const tile_instruction_t *source = &twin->program->instructions[at->sources[s]];
        if (source->code != TILE_NUMBER) {
            return source->dtype;
        }
    }
    return UNCOPY_DTYPE_F32;
}

/* Rounds (wraps) a number of the compute type to dtype, and to the register kind. */
static number_t rounded(number_t number, kind_t compute, uncopy_dtype_t dtype, kind_t held)
{
    char element[16];
    number_t result = {.i64 = 0};
    table_portable.stores[compute][dtype](element, 0, &number, 1);
    table_portable.loads[held][dtype](&result, 1, element, 0, 1);
    return result;
}

static number_t apply(const twin_t *twin, const tile_instruction_t *at, kind_t held, int64_t place)
{
    uncopy_dtype_t dtype = applied_dtype(twin, at);
    op_rule_t rule = op_row(at->opcode)->rule;
    kind_t compute = table_kind(dtype);
    /* a selection moves the bits of halves */
    bool moves = rule == OP_RULE_SELECT && is_half(at->dtype) && !at->is_wide;
    number_t reads[3] = {{.i64 = 0}, {.i64 = 0}, {.i64 = 0}}, result = {.i64 = 0}, scalars[2];
    const void *pointers[3] = {&reads[0], &reads[1], &reads[2]};
    for (uint16_t s = 0; s < at->num_sources; s++) {
        kind_t from = twin->values[at->sources[s]].kind;
        bool is_condition = rule == OP_RULE_SELECT && s == 0;
        moves &= is_condition || from == held;
        reads[s] = element_of(twin, at->sources[s], place);
    }
    kind_t kind = moves ? held : compute;
    for (uint16_t s = 0; s < at->num_sources; s++) {
        bool is_condition = rule == OP_RULE_SELECT && s == 0;
        reads[s] =
            as_kind(reads[s], twin->values[at->sources[s]].kind, is_condition ? KIND_BOOL : kind);
    }
    for (size_t i = 0; i < 2; i++) {
        const kernel_immediate_t number = {.number = at->attributes[i]};
        bool is_rounded = at->opcode == OPCODE_ADD || at->opcode == OPCODE_SUB;
        scalars[i] = convert_number(&number, dtype, compute, !is_rounded);
    }
    table_portable.rows[ROW_VECTORS][kind][at->opcode](&result, pointers, scalars, 1);
    if (rule == OP_RULE_COMPARE || kind == held) {
        bool is_narrow = table_register_dtype(held) != at->dtype && held == kind && !at->is_wide;
        return is_narrow && rule != OP_RULE_COMPARE ? rounded(result, kind, at->dtype, held)
                                                    : result;
    }
    return rounded(result, kind, at->dtype, held);
}

static number_t convert(const twin_t *twin, const tile_instruction_t *at, kind_t held,
                        int64_t place)
{
    kind_t from = twin->values[at->sources[0]].kind;
    number_t number = element_of(twin, at->sources[0], place);
    kind_t compute = table_kind(at->dtype);
    bool is_real = compute == KIND_F32 || compute == KIND_F64;
    if (from == KIND_BF16 || from == KIND_F16) {
        number = as_kind(number, from, is_real ? compute : KIND_F32);
        from = is_real ? compute : KIND_F32;
    }
    if (is_real || from == KIND_BOOL) {
        number = as_kind(number, from, compute);
        from = compute;
    }
    return rounded(number, from, at->dtype, held);
}

/* ---- reductions, by their definition ---- */

static bool is_better(number_t a, number_t b, kind_t kind, bool is_least)
{
    switch (kind) {
    case KIND_F32:
        return (is_least ? b.f32 < a.f32 : b.f32 > a.f32) || (b.f32 != b.f32 && a.f32 == a.f32);
    case KIND_F64:
        return (is_least ? b.f64 < a.f64 : b.f64 > a.f64) || (b.f64 != b.f64 && a.f64 == a.f64);
    case KIND_I32:
        return is_least ? b.i32 < a.i32 : b.i32 > a.i32;
    default:
        return is_least ? b.i64 < a.i64 : b.i64 > a.i64;
    }
}

static number_t joined(number_t a, number_t b, kind_t kind, tile_reduction_t reduction)
{
    number_t result = a;
    switch (reduction) {
    case TILE_SUM:
        result.u64 = kind == KIND_I32 ? 0 : a.u64 + b.u64;
        result.f32 = kind == KIND_F32 ? a.f32 + b.f32 : result.f32;
        result.f64 = kind == KIND_F64 ? a.f64 + b.f64 : result.f64;
        return result;
    case TILE_PROD:
        result.u64 = a.u64 * b.u64;
        result.f32 = kind == KIND_F32 ? a.f32 * b.f32 : result.f32;
        result.f64 = kind == KIND_F64 ? a.f64 * b.f64 : result.f64;
        return result;
    default: {
        opcode_t opcode =
            reduction == TILE_AMAX || reduction == TILE_ANY ? OPCODE_MAXIMUM : OPCODE_MINIMUM;
        const void *reads[3] = {&a, &b, &b};
        number_t scalars[2] = {{.i64 = 0}, {.i64 = 0}};
        table_portable.rows[ROW_VECTORS][kind][opcode](&result, reads, scalars, 1);
        return result;
    }
    }
}

static number_t neutral(kind_t kind, tile_reduction_t reduction)
{
    number_t number = {.i64 = 0};
    bool is_least = reduction == TILE_AMIN;
    fold_t fold = reduction == TILE_SUM    ? FOLD_SUM
                  : reduction == TILE_PROD ? FOLD_PROD
                  : is_least               ? FOLD_MIN
                                           : FOLD_MAX;
    if (reduction == TILE_ANY || reduction == TILE_ALL) {
        number.i32 = reduction == TILE_ALL;
        return number;
    }
    table_portable.folds[fold][kind](&number, &number, 0);
    return number;
}

/* Elements [first, first + count) as the tree of whole tiles joins them. */
static number_t reduced_tile(const number_t *elements, int64_t count, kind_t kind,
                             tile_reduction_t reduction)
{
    number_t sums[16];
    for (int i = 0; i < 16; i++) {
        sums[i] = neutral(kind, reduction);
    }
    for (int64_t i = 0; i < count; i++) {
        sums[i % 16] = joined(sums[i % 16], elements[i], kind, reduction);
    }
    for (int apart = 8; apart > 0; apart /= 2) {
        for (int i = 0; i < apart; i++) {
            sums[i] = joined(sums[i], sums[i + apart], kind, reduction);
        }
    }
    return sums[0];
}

/* The largest power of two of tiles below the whole joins the rest. */
static number_t reduced_tree(const number_t *elements, int64_t count, kind_t kind,
                             tile_reduction_t reduction)
{
    if (count <= TILE_ELEMENTS) {
        return reduced_tile(elements, count, kind, reduction);
    }
    int64_t left = TILE_ELEMENTS;
    while (left * 2 < count) {
        left *= 2;
    }
    return joined(reduced_tree(elements, left, kind, reduction),
                  reduced_tree(elements + left, count - left, kind, reduction), kind, reduction);
}

static number_t reduce(const twin_t *twin, const tile_instruction_t *at)
{
    static number_t elements[MAX_ROW];
    kind_t from = twin->values[at->sources[0]].kind;
    kind_t kind = from == KIND_BOOL                       ? KIND_I32
                  : from == KIND_BF16 || from == KIND_F16 ? KIND_F32
                                                          : from;
    number_t best = {.i64 = 0};
    for (int64_t i = 0; i < twin->num_reduced; i++) {
        elements[i] = as_kind(element_of(twin, at->sources[0], i), from, kind);
    }
    if (at->reduction == TILE_ARGMAX || at->reduction == TILE_ARGMIN) {
        for (int64_t i = 1; i < twin->num_reduced; i++) {
            best.i64 =
                is_better(elements[best.i64], elements[i], kind, at->reduction == TILE_ARGMIN)
                    ? i
                    : best.i64;
        }
        return best;
    }
    if (twin->num_reduced == 0) {
        best = neutral(kind, at->reduction);
    } else {
        best = reduced_tree(elements, twin->num_reduced, kind, at->reduction);
    }
    return at->dtype == UNCOPY_DTYPE_BOOL ? (number_t){.boolean = best.i32 != 0} : best;
}

/* ---- the loop ---- */

static number_t make(const twin_t *twin, const tile_instruction_t *at, kind_t held, int64_t place)
{
    number_t number = {.i64 = 0};
    int64_t index[SPAN_MAX_RANK];
    switch (at->code) {
    case TILE_READ: {
        const tile_operand_t *operand = &twin->program->operands[at->operand];
        table_portable.loads[held][operand->dtype](&number, 1, address(twin, operand, place), 0, 1);
        return number;
    }
    case TILE_NUMBER:
        number = convert_number(&at->number, at->dtype, table_kind(at->dtype), at->is_wide);
        /* a number that is wide enters the formula as it is */
        if (held == KIND_BF16 || held == KIND_F16) {
            return rounded(number, KIND_F32, at->dtype, held);
        }
        return number;
    case TILE_INDEX:
        full_index(twin, place, index);
        number.i64 = index[at->operand];
        return number;
    case TILE_APPLY:
        return apply(twin, at, held, place);
    case TILE_CONVERT:
        return convert(twin, at, held, place);
    case TILE_REDUCE:
        return reduce(twin, at);
    default:
        return number;
    }
}

static void write(const twin_t *twin, const tile_instruction_t *at)
{
    const tile_operand_t *operand = &twin->program->operands[at->operand];
    kind_t kind = twin->values[at->sources[0]].kind;
    for (int64_t i = 0; i < (at->is_row ? 1 : twin->num_reduced); i++) {
        number_t number = element_of(twin, at->sources[0], i);
        table_portable.stores[kind][operand->dtype](address(twin, operand, i), 0, &number, 1);
    }
}

static void run_row(twin_t *twin)
{
    const tile_program_t *program = twin->program;
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        const tile_instruction_t *at = &program->instructions[i];
        for (int64_t place = 0; place < (at->is_row ? 1 : twin->num_reduced); place++) {
            twin->values[i].elements[place] = make(twin, at, twin->values[i].kind, place);
        }
    }
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        if (program->instructions[i].code == TILE_WRITE) {
            write(twin, &program->instructions[i]);
        }
    }
}

static bool next_row(twin_t *twin)
{
    for (int32_t d = twin->program->rank - 1; d >= 0; d--) {
        if (twin->program->is_reduced[d]) {
            continue;
        }
        if (++twin->kept[d] < twin->program->sizes[d]) {
            return true;
        }
        twin->kept[d] = 0;
    }
    return false;
}

void tile_twin_run(const tile_program_t *program, char *const *data)
{
    twin_t twin = {.program = program, .data = data, .num_reduced = 1};
    bool is_empty = false;
    for (int32_t d = 0; d < program->rank; d++) {
        twin.num_reduced *= program->is_reduced[d] ? program->sizes[d] : 1;
        is_empty |= !program->is_reduced[d] && program->sizes[d] == 0;
    }
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        const tile_instruction_t *at = &program->instructions[i];
        bool is_wide = at->is_wide && is_half(at->dtype);
        twin.values[i].kind = is_wide ? KIND_F32 : table_register_kind(at->dtype);
        twin.values[i].elements = calloc((size_t)twin.num_reduced + 1, sizeof(number_t));
    }
    while (!is_empty) {
        run_row(&twin);
        is_empty = !next_row(&twin);
    }
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        free(twin.values[i].elements);
    }
}
