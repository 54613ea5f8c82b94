/* Building tile programs. See tile.h. */
#include "plan/tile.h"

#include <string.h>

#include "base/status.h"

static bool has_failed(const tile_builder_t *builder)
{
    return builder->status != UNCOPY_OK;
}

static void fail(tile_builder_t *builder, uncopy_status_t status)
{
    if (!has_failed(builder)) {
        builder->status = status;
    }
}

static uncopy_status_t push_instruction(tile_builder_t *builder, const tile_instruction_t *value)
{
    if (builder->num_instructions >= TILE_MAX_CODES) {
        return status_fail(UNCOPY_ERROR_UNSUPPORTED, "a tile program has more than %d instructions",
                           TILE_MAX_CODES);
    }
    ARENA_PUSH(builder->arena, builder->instructions, builder->num_instructions,
               builder->instructions_capacity, *value);
    return UNCOPY_OK;
}

static tile_value_t add(tile_builder_t *builder, const tile_instruction_t *value)
{
    if (has_failed(builder)) {
        return TILE_NO_VALUE;
    }
    fail(builder, push_instruction(builder, value));
    return has_failed(builder) ? TILE_NO_VALUE : (tile_value_t)(builder->num_instructions - 1);
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

void tile_begin(tile_builder_t *builder, arena_t *arena, int32_t rank, const int64_t *sizes,
                const bool *is_reduced, bool is_fused_precision)
{
    *builder = (tile_builder_t){.arena = arena, .is_fused_precision = is_fused_precision};
    builder->program.rank = rank;
    for (int32_t d = 0; d < rank; d++) {
        builder->program.sizes[d] = sizes[d];
        builder->program.is_reduced[d] = is_reduced != NULL && is_reduced[d];
    }
}

/* ---- operands ---- */

static bool is_same_operand(const tile_operand_t *a, const tile_operand_t *b)
{
    return a->slot == b->slot && a->dtype == b->dtype && a->num_indices == 0 &&
           b->num_indices == 0 && memcmp(a->strides, b->strides, sizeof(a->strides)) == 0;
}

static uncopy_status_t push_operand(tile_builder_t *builder, const tile_operand_t *operand)
{
    if (builder->num_operands >= TILE_MAX_OPERANDS || operand->slot >= TILE_MAX_SLOTS) {
        return status_fail(UNCOPY_ERROR_UNSUPPORTED,
                           "a tile program has more than %d operands or %d slots",
                           TILE_MAX_OPERANDS, TILE_MAX_SLOTS);
    }
    ARENA_PUSH(builder->arena, builder->operands, builder->num_operands, builder->operands_capacity,
               *operand);
    if (operand->slot >= builder->num_slots) {
        builder->num_slots = (uint16_t)(operand->slot + 1);
    }
    return UNCOPY_OK;
}

/* Strides of dims of size 1 say nothing; they become 0. */
static tile_operand_t normal_operand(const tile_builder_t *builder, const tile_operand_t *operand)
{
    tile_operand_t normal = *operand;
    for (int32_t d = 0; d < SPAN_MAX_RANK; d++) {
        if (d >= builder->program.rank || builder->program.sizes[d] == 1) {
            normal.strides[d] = 0;
        }
    }
    return normal;
}

/* Whether nothing about the operand differs along the reduced dims. */
static bool is_row_operand(const tile_builder_t *builder, const tile_operand_t *operand)
{
    for (int32_t d = 0; d < builder->program.rank; d++) {
        if (builder->program.is_reduced[d] && operand->strides[d] != 0) {
            return false;
        }
    }
    for (uint8_t i = 0; i < operand->num_indices; i++) {
        if (!builder->instructions[operand->indices[i]].is_row) {
            return false;
        }
    }
    return has_reduced(&builder->program);
}

tile_value_t tile_read_at(tile_builder_t *builder, const tile_operand_t *operand)
{
    if (has_failed(builder)) {
        return TILE_NO_VALUE;
    }
    tile_operand_t normal = normal_operand(builder, operand);
    for (size_t i = 0; i < builder->num_instructions; i++) {
        const tile_instruction_t *at = &builder->instructions[i];
        if (at->code == TILE_READ && is_same_operand(&builder->operands[at->operand], &normal)) {
            return (tile_value_t)i;
        }
    }
    fail(builder, push_operand(builder, &normal));
    if (has_failed(builder)) {
        return TILE_NO_VALUE;
    }
    builder->program.may_raise |= normal.num_indices > 0;
    return add(builder, &(tile_instruction_t){.code = TILE_READ,
                                              .dtype = normal.dtype,
                                              .operand = (uint16_t)(builder->num_operands - 1),
                                              .is_row = is_row_operand(builder, &normal)});
}

static tile_operand_t plain_operand(const tile_builder_t *builder, uint16_t slot,
                                    uncopy_dtype_t dtype, const int64_t *strides)
{
    tile_operand_t operand = {.slot = slot, .dtype = dtype};
    memcpy(operand.strides, strides, (size_t)builder->program.rank * sizeof(strides[0]));
    return operand;
}

tile_value_t tile_read(tile_builder_t *builder, uint16_t slot, uncopy_dtype_t dtype,
                       const int64_t *strides)
{
    tile_operand_t operand = plain_operand(builder, slot, dtype, strides);
    return tile_read_at(builder, &operand);
}

void tile_write_at(tile_builder_t *builder, const tile_operand_t *operand, tile_value_t value,
                   bool is_added)
{
    tile_value_t source = tile_convert(builder, value, operand->dtype);
    if (has_failed(builder)) {
        return;
    }
    tile_operand_t normal = normal_operand(builder, operand);
    fail(builder, push_operand(builder, &normal));
    builder->program.may_raise |= normal.num_indices > 0;
    (void)add(builder, &(tile_instruction_t){.code = is_added ? TILE_ADD : TILE_WRITE,
                                             .dtype = normal.dtype,
                                             .operand = (uint16_t)(builder->num_operands - 1),
                                             .is_row = is_row_operand(builder, &normal) &&
                                                       builder->instructions[source].is_row,
                                             .num_sources = 1,
                                             .sources = {source}});
}

void tile_write(tile_builder_t *builder, uint16_t slot, uncopy_dtype_t dtype,
                const int64_t *strides, tile_value_t value)
{
    tile_operand_t operand = plain_operand(builder, slot, dtype, strides);
    tile_write_at(builder, &operand, value, false);
}

/* ---- values ---- */

tile_value_t tile_number(tile_builder_t *builder, const kernel_immediate_t *number,
                         uncopy_dtype_t dtype, bool is_wide)
{
    return add(builder, &(tile_instruction_t){.code = TILE_NUMBER,
                                              .dtype = dtype,
                                              .is_wide = is_wide,
                                              .is_row = has_reduced(&builder->program),
                                              .number = *number});
}

tile_value_t tile_index(tile_builder_t *builder, int32_t dim)
{
    return add(builder, &(tile_instruction_t){.code = TILE_INDEX,
                                              .dtype = UNCOPY_DTYPE_I64,
                                              .operand = (uint16_t)dim,
                                              .is_row = has_reduced(&builder->program) &&
                                                        !builder->program.is_reduced[dim]});
}

static bool is_half(uncopy_dtype_t dtype)
{
    return dtype == UNCOPY_DTYPE_F16 || dtype == UNCOPY_DTYPE_BF16;
}

/* The row's dtype rule, over the sources that are no numbers. */
static bool rule_accepts(const tile_builder_t *builder, opcode_t opcode,
                         const tile_value_t *sources, size_t num_sources, uncopy_dtype_t dtype)
{
    uncopy_dtype_t dtypes[TILE_MAX_SOURCES];
    size_t count = 0;
    for (size_t i = 0; i < num_sources; i++) {
        const tile_instruction_t *source = &builder->instructions[sources[i]];
        if (source->code != TILE_NUMBER) {
            dtypes[count++] = source->dtype;
        }
    }
    dtype_kind_t kind = dtype_kind(dtype);
    return kind != DTYPE_KIND_COMPLEX && kind != DTYPE_KIND_OPAQUE &&
           op_accepts(opcode, dtypes, count, dtype);
}

tile_value_t tile_apply(tile_builder_t *builder, opcode_t opcode, const tile_value_t *sources,
                        size_t num_sources, const double *attributes, uncopy_dtype_t dtype)
{
    if (has_failed(builder)) {
        return TILE_NO_VALUE;
    }
    const op_row_t *row = op_row(opcode);
    if (row->class_ != OP_CLASS_POINTWISE || row->num_reads != (int)num_sources ||
        !rule_accepts(builder, opcode, sources, num_sources, dtype)) {
        fail(builder, status_fail(UNCOPY_ERROR_UNSUPPORTED, "no tile form of %s into %s", row->name,
                                  uncopy_dtype_name(dtype)));
        return TILE_NO_VALUE;
    }
    tile_instruction_t value = {.code = TILE_APPLY,
                                .dtype = dtype,
                                .opcode = opcode,
                                .is_row = has_reduced(&builder->program),
                                .is_wide = builder->is_fused_precision && is_half(dtype),
                                .num_sources = (uint16_t)num_sources};
    for (size_t i = 0; i < num_sources; i++) {
        value.sources[i] = sources[i];
        value.is_row &= builder->instructions[sources[i]].is_row;
    }
    for (size_t i = 0; i < OP_MAX_ATTRIBUTES; i++) {
        value.attributes[i] = attributes != NULL ? attributes[i] : 0;
    }
    return add(builder, &value);
}

tile_value_t tile_convert(tile_builder_t *builder, tile_value_t value, uncopy_dtype_t dtype)
{
    if (has_failed(builder) || builder->instructions[value].dtype == dtype) {
        return value;
    }
    const tile_instruction_t *source = &builder->instructions[value];
    uncopy_dtype_t dtypes[1] = {source->dtype};
    if (!op_accepts(OPCODE_CONVERT, dtypes, 1, dtype)) {
        fail(builder, status_fail(UNCOPY_ERROR_UNSUPPORTED, "no tile form of a conversion to %s",
                                  uncopy_dtype_name(dtype)));
        return TILE_NO_VALUE;
    }
    return add(builder, &(tile_instruction_t){.code = TILE_CONVERT,
                                              .dtype = dtype,
                                              .is_row = source->is_row,
                                              .num_sources = 1,
                                              .sources = {value}});
}

/* ---- reductions ---- */

static uncopy_dtype_t reduced_in(tile_reduction_t reduction, uncopy_dtype_t dtype)
{
    bool is_float = dtype_kind(dtype) == DTYPE_KIND_FLOAT;
    switch (reduction) {
    case TILE_SUM:
    case TILE_PROD:
        return is_half(dtype) ? UNCOPY_DTYPE_F32 : is_float ? dtype : UNCOPY_DTYPE_I64;
    case TILE_ANY:
    case TILE_ALL:
        return UNCOPY_DTYPE_BOOL;
    default:
        return is_half(dtype) ? UNCOPY_DTYPE_F32 : dtype;
    }
}

static uncopy_dtype_t reduced_to(tile_reduction_t reduction, uncopy_dtype_t dtype)
{
    switch (reduction) {
    case TILE_SUM:
    case TILE_PROD:
        return dtype_kind(dtype) == DTYPE_KIND_FLOAT ? dtype : UNCOPY_DTYPE_I64;
    case TILE_ARGMAX:
    case TILE_ARGMIN:
        return UNCOPY_DTYPE_I64;
    case TILE_ANY:
    case TILE_ALL:
        return UNCOPY_DTYPE_BOOL;
    default:
        return dtype;
    }
}

static bool may_reduce(const tile_builder_t *builder, uncopy_dtype_t dtype)
{
    dtype_kind_t kind = dtype_kind(dtype);
    return has_reduced(&builder->program) && kind != DTYPE_KIND_COMPLEX &&
           kind != DTYPE_KIND_OPAQUE && dtype != UNCOPY_DTYPE_U64;
}

tile_value_t tile_reduce(tile_builder_t *builder, tile_reduction_t reduction, tile_value_t value)
{
    if (has_failed(builder)) {
        return TILE_NO_VALUE;
    }
    uncopy_dtype_t dtype = builder->instructions[value].dtype;
    if (!may_reduce(builder, dtype)) {
        fail(builder, status_fail(UNCOPY_ERROR_UNSUPPORTED, "no tile form of a reduction of %s",
                                  uncopy_dtype_name(dtype)));
        return TILE_NO_VALUE;
    }
    tile_value_t source = tile_convert(builder, value, reduced_in(reduction, dtype));
    bool is_arg = reduction == TILE_ARGMAX || reduction == TILE_ARGMIN;
    uncopy_dtype_t made = is_arg ? UNCOPY_DTYPE_I64 : reduced_in(reduction, dtype);
    tile_value_t result = add(builder, &(tile_instruction_t){.code = TILE_REDUCE,
                                                             .dtype = made,
                                                             .is_row = true,
                                                             .reduction = reduction,
                                                             .num_sources = 1,
                                                             .sources = {source}});
    return tile_convert(builder, result, reduced_to(reduction, dtype));
}

bool tile_is_row(const tile_builder_t *builder, tile_value_t value)
{
    return value < builder->num_instructions && builder->instructions[value].is_row;
}

/* ---- finishing ---- */

/* Marks what a write needs, last to first. */
static void mark_needed(const tile_builder_t *builder, bool *is_needed)
{
    for (size_t i = builder->num_instructions; i-- > 0;) {
        const tile_instruction_t *at = &builder->instructions[i];
        bool is_write = at->code == TILE_WRITE || at->code == TILE_ADD;
        is_needed[i] |= is_write;
        if (!is_needed[i]) {
            continue;
        }
        for (uint16_t s = 0; s < at->num_sources; s++) {
            is_needed[at->sources[s]] = true;
        }
        if (is_write || at->code == TILE_READ) {
            const tile_operand_t *operand = &builder->operands[at->operand];
            for (uint8_t s = 0; s < operand->num_indices; s++) {
                is_needed[operand->indices[s]] = true;
            }
        }
    }
}

static bool is_element(const tile_instruction_t *at)
{
    return at->code != TILE_NUMBER && at->code != TILE_WRITE && at->code != TILE_ADD && !at->is_row;
}

/* Greatest number of element values that are made and still needed, over all points. */
static size_t count_live(const tile_builder_t *builder)
{
    size_t last[TILE_MAX_CODES] = {0}, live = 0, most = 0;
    for (size_t i = 0; i < builder->num_instructions; i++) {
        const tile_instruction_t *at = &builder->instructions[i];
        for (uint16_t s = 0; s < at->num_sources; s++) {
            last[at->sources[s]] = i;
        }
        if (at->code == TILE_READ || at->code == TILE_WRITE || at->code == TILE_ADD) {
            const tile_operand_t *operand = &builder->operands[at->operand];
            for (uint8_t s = 0; s < operand->num_indices; s++) {
                last[operand->indices[s]] = i;
            }
        }
    }
    for (size_t i = 0; i < builder->num_instructions; i++) {
        live += is_element(&builder->instructions[i]) && last[i] > i ? 1 : 0;
        most = live > most ? live : most;
        for (size_t j = 0; j < i; j++) {
            live -= is_element(&builder->instructions[j]) && last[j] == i ? 1 : 0;
        }
    }
    return most;
}

size_t tile_num_live(const tile_builder_t *builder)
{
    return has_failed(builder) ? 0 : count_live(builder);
}

/* Leaves out what is not needed and renumbers. Operands stay where they are. */
static void drop_unneeded(tile_builder_t *builder)
{
    bool is_needed[TILE_MAX_CODES] = {false};
    tile_value_t number[TILE_MAX_CODES];
    size_t kept = 0;
    mark_needed(builder, is_needed);
    for (size_t i = 0; i < builder->num_instructions; i++) {
        if (!is_needed[i]) {
            continue;
        }
        tile_instruction_t at = builder->instructions[i];
        for (uint16_t s = 0; s < at.num_sources; s++) {
            at.sources[s] = number[at.sources[s]];
        }
        if (at.code == TILE_READ || at.code == TILE_WRITE || at.code == TILE_ADD) {
            tile_operand_t *operand = &builder->operands[at.operand];
            for (uint8_t s = 0; s < operand->num_indices; s++) {
                operand->indices[s] = number[operand->indices[s]];
            }
        }
        number[i] = (tile_value_t)kept;
        builder->instructions[kept++] = at;
    }
    builder->num_instructions = kept;
}

uncopy_status_t tile_finish(tile_builder_t *builder, const tile_program_t **out_program)
{
    TRY(builder->status);
    drop_unneeded(builder);
    if (count_live(builder) > TILE_MAX_LIVE) {
        return status_fail(UNCOPY_ERROR_UNSUPPORTED,
                           "a tile program needs more than %d values at one point", TILE_MAX_LIVE);
    }
    tile_program_t *program = arena_copy(builder->arena, &builder->program, 1, sizeof(*program));
    if (program == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    program->num_slots = builder->num_slots;
    program->num_operands = (uint16_t)builder->num_operands;
    program->num_instructions = (uint16_t)builder->num_instructions;
    program->operands = builder->operands;
    program->instructions = builder->instructions;
    TRY(tile_verify(program));
    *out_program = program;
    return UNCOPY_OK;
}
