/* Tile programs as text: a head, then one line an instruction. */
#include "plan/tile.h"

static const char *const reduction_names[] = {
    [TILE_SUM] = "sum",       [TILE_PROD] = "prod",     [TILE_AMAX] = "amax", [TILE_AMIN] = "amin",
    [TILE_ARGMAX] = "argmax", [TILE_ARGMIN] = "argmin", [TILE_ANY] = "any",   [TILE_ALL] = "all",
};

static void print_head(const tile_program_t *program, int indent, text_t *text)
{
    text_append(text, "%*stile ", indent, "");
    for (int32_t d = 0; d < program->rank; d++) {
        const char *form = program->is_reduced[d] ? "%s[%lld]" : "%s%lld";
        text_append(text, form, d == 0 ? "" : " x ", (long long)program->sizes[d]);
    }
    text_append(text, program->rank == 0 ? "one element\n" : "\n");
}

static void print_strides(const tile_program_t *program, const tile_operand_t *operand,
                          text_t *text)
{
    text_append(text, "(");
    for (int32_t d = 0; d < program->rank; d++) {
        text_append(text, d == 0 ? "%lld" : ",%lld", (long long)operand->strides[d]);
    }
    text_append(text, ")");
    for (uint8_t i = 0; i < operand->num_indices; i++) {
        text_append(text, " + %%%u * %lld below %lld", (unsigned)operand->indices[i],
                    (long long)operand->index_strides[i], (long long)operand->index_sizes[i]);
    }
}

static void print_sources(const tile_instruction_t *at, text_t *text)
{
    for (uint16_t s = 0; s < at->num_sources; s++) {
        text_append(text, "%s%%%u", s == 0 ? " " : ", ", (unsigned)at->sources[s]);
    }
}

static void print_attributes(const tile_instruction_t *at, text_t *text)
{
    const char *name = NULL;
    size_t length = 0;
    double default_value = 0;
    for (size_t i = 0; op_attribute(at->opcode, i, &name, &length, &default_value); i++) {
        if (at->attributes[i] != default_value) {
            text_append(text, " %.*s=%.17g", (int)length, name, at->attributes[i]);
        }
    }
}

static void print_place(const tile_program_t *program, const tile_instruction_t *at, text_t *text)
{
    const tile_operand_t *operand = &program->operands[at->operand];
    text_append(text, " slot %u ", (unsigned)operand->slot);
    print_strides(program, operand, text);
}

static void print_code(const tile_program_t *program, const tile_instruction_t *at, text_t *text)
{
    switch (at->code) {
    case TILE_READ:
        text_append(text, "read");
        print_place(program, at, text);
        return;
    case TILE_NUMBER:
        if (at->number.is_integer) {
            text_append(text, "number %lld", (long long)at->number.integer);
        } else {
            text_append(text, "number %.17g", at->number.number);
        }
        return;
    case TILE_INDEX:
        text_append(text, "index of dim %u", (unsigned)at->operand);
        return;
    case TILE_APPLY:
        text_append(text, "%s", op_row(at->opcode)->name);
        print_sources(at, text);
        print_attributes(at, text);
        return;
    case TILE_CONVERT:
        text_append(text, "convert");
        print_sources(at, text);
        return;
    case TILE_REDUCE:
        text_append(text, "reduce %s", reduction_names[at->reduction]);
        print_sources(at, text);
        return;
    case TILE_WRITE:
    case TILE_ADD:
        text_append(text, at->code == TILE_WRITE ? "write" : "add to");
        print_place(program, at, text);
        print_sources(at, text);
        return;
    }
}

void tile_print(const tile_program_t *program, int indent, text_t *text)
{
    print_head(program, indent, text);
    for (uint16_t i = 0; i < program->num_instructions; i++) {
        const tile_instruction_t *at = &program->instructions[i];
        bool is_write = at->code == TILE_WRITE || at->code == TILE_ADD;
        if (is_write) {
            text_append(text, "%*s  %-11s ", indent, "", uncopy_dtype_name(at->dtype));
        } else {
            text_append(text, "%*s  %%%-3u %-5s%c ", indent, "", (unsigned)i,
                        uncopy_dtype_name(at->dtype), at->is_wide ? '+' : ' ');
        }
        print_code(program, at, text);
        text_append(text, at->is_row ? "   a row\n" : "\n");
    }
}
