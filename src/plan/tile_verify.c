/* The invariants of tile.h, t1 to t6, on a program from anywhere. */
#include "base/status.h"
#include "plan/tile.h"

typedef struct checked {
    const tile_program_t *program;
    size_t at; /* the instruction looked at */
} checked_t;

static uncopy_status_t fail(const checked_t *checked, const char *rule, const char *words)
{
    return status_fail(UNCOPY_ERROR_PROGRAM, "tile program, instruction %zu: %s: %s", checked->at,
                       rule, words);
}

static bool makes_value(const tile_instruction_t *at)
{
    return at->code != TILE_WRITE && at->code != TILE_ADD;
}

static bool is_value(const checked_t *checked, tile_value_t value)
{
    return value < checked->at && makes_value(&checked->program->instructions[value]);
}

static size_t expected_sources(const tile_instruction_t *at)
{
    switch (at->code) {
    case TILE_READ:
    case TILE_NUMBER:
    case TILE_INDEX:
        return 0;
    case TILE_APPLY:
        return (size_t)op_row(at->opcode)->num_reads;
    case TILE_CONVERT:
    case TILE_REDUCE:
    case TILE_WRITE:
    case TILE_ADD:
        break;
    }
    return 1;
}

static uncopy_status_t check_operand(const checked_t *checked, const tile_instruction_t *at)
{
    const tile_program_t *program = checked->program;
    if (at->operand >= program->num_operands) {
        return fail(checked, "t2", "the operand does not exist");
    }
    const tile_operand_t *operand = &program->operands[at->operand];
    if (operand->slot >= program->num_slots || program->num_slots > TILE_MAX_SLOTS ||
        !dtype_is_valid(operand->dtype) || operand->num_indices > TILE_MAX_INDICES) {
        return fail(checked, "t2",
                    "the operand's slot, dtype or number of indices is out of range");
    }
    for (uint8_t i = 0; i < operand->num_indices; i++) {
        if (!is_value(checked, operand->indices[i])) {
            return fail(checked, "t1", "an index is no earlier value");
        }
        uncopy_dtype_t dtype = program->instructions[operand->indices[i]].dtype;
        if (dtype != UNCOPY_DTYPE_I64 && dtype != UNCOPY_DTYPE_I32) {
            return fail(checked, "t4", "an index is neither i64 nor i32");
        }
    }
    return UNCOPY_OK;
}

static uncopy_status_t check_row(const checked_t *checked, const tile_instruction_t *at)
{
    const tile_program_t *program = checked->program;
    bool has_reduced = false;
    for (int32_t d = 0; d < program->rank; d++) {
        has_reduced |= program->is_reduced[d];
    }
    if (at->code == TILE_REDUCE && (!has_reduced || !at->is_row)) {
        return fail(checked, "t3", "a reduction without reduced dims, or whose value is no row's");
    }
    if (at->code == TILE_APPLY || at->code == TILE_CONVERT) {
        bool is_row = has_reduced;
        for (uint16_t s = 0; s < at->num_sources; s++) {
            is_row &= program->instructions[at->sources[s]].is_row;
        }
        if (at->is_row && !is_row) {
            return fail(checked, "t3", "a row's value from an element's");
        }
    }
    return UNCOPY_OK;
}

static uncopy_status_t check_instruction(const checked_t *checked)
{
    const tile_instruction_t *at = &checked->program->instructions[checked->at];
    if ((unsigned)at->code > TILE_ADD || !dtype_is_valid(at->dtype) ||
        (at->code == TILE_APPLY && ((unsigned)at->opcode >= OPCODE_COUNT ||
                                    op_row(at->opcode)->class_ != OP_CLASS_POINTWISE))) {
        return fail(checked, "t1", "no such instruction");
    }
    if (at->num_sources != expected_sources(at)) {
        return fail(checked, "t1", "another number of sources than its code takes");
    }
    for (uint16_t s = 0; s < at->num_sources; s++) {
        if (!is_value(checked, at->sources[s])) {
            return fail(checked, "t1", "a source is no earlier value");
        }
    }
    if (at->code == TILE_INDEX && at->operand >= checked->program->rank) {
        return fail(checked, "t2", "no such dim");
    }
    if (at->code == TILE_READ || at->code == TILE_WRITE || at->code == TILE_ADD) {
        TRY(check_operand(checked, at));
    }
    return check_row(checked, at);
}

uncopy_status_t tile_verify(const tile_program_t *program)
{
    checked_t checked = {.program = program};
    if (program->rank < 0 || program->rank > SPAN_MAX_RANK ||
        program->num_instructions > TILE_MAX_CODES || program->num_operands > TILE_MAX_OPERANDS) {
        return fail(&checked, "t2", "more dims, instructions or operands than the limits");
    }
    for (int32_t d = 0; d < program->rank; d++) {
        if (program->sizes[d] < 0) {
            return fail(&checked, "t5", "a size below zero");
        }
    }
    for (; checked.at < program->num_instructions; checked.at++) {
        TRY(check_instruction(&checked));
    }
    return UNCOPY_OK;
}
