#include "base/ops.h"

#include <stdlib.h>
#include <string.h>

enum { VARIABLE = OP_READS_VARIABLE };

/* Short flag names, so that a row of ops.def reads as a sentence. */
enum {
    IN_PLACE = OP_FLAG_IN_PLACE,
    OPMATH = OP_FLAG_OPMATH,
    RAISES = OP_FLAG_RAISES,
    RANDOM = OP_FLAG_RANDOM,
    LAYOUT = OP_FLAG_LAYOUT,
    KEPT = OP_FLAG_KEPT,
};

static const op_row_t rows[OPCODE_COUNT] = {
#define OPERATION(name, text, class, reads, rule, flags, aten, attributes, formula) \
    [OPCODE_##                                                                      \
        name] = {text, OP_CLASS_##class, reads, OP_RULE_##rule, flags, aten, attributes, formula},
#include "base/ops.def"
#undef OPERATION
};

const op_row_t *op_row(opcode_t opcode)
{
    return &rows[opcode];
}

bool op_find(const char *name, size_t length, opcode_t *out_opcode)
{
    for (int i = 0; i < OPCODE_COUNT; i++) {
        if (strlen(rows[i].name) == length && memcmp(rows[i].name, name, length) == 0) {
            *out_opcode = (opcode_t)i;
            return true;
        }
    }
    return false;
}

static bool list_has_word(const char *list, const char *word, size_t length)
{
    for (const char *at = list; *at != '\0';) {
        size_t span = strcspn(at, " ");
        if (span == length && memcmp(at, word, length) == 0) {
            return true;
        }
        at += span;
        at += strspn(at, " ");
    }
    return false;
}

bool op_find_aten(const char *name, size_t length, opcode_t *out_opcode)
{
    for (int i = 0; i < OPCODE_COUNT; i++) {
        if (list_has_word(rows[i].aten_names, name, length)) {
            *out_opcode = (opcode_t)i;
            return true;
        }
    }
    return false;
}

bool op_attribute(opcode_t opcode, size_t index, const char **out_name, size_t *out_length,
                  double *out_default)
{
    const char *at = rows[opcode].attributes;
    for (size_t i = 0; i < index && *at != '\0'; i++) {
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    size_t length = strcspn(at, "=");
    if (at[length] != '=') {
        return false;
    }
    *out_name = at;
    *out_length = length;
    *out_default = strtod(at + length + 1, NULL);
    return true;
}

static bool kind_fits(op_rule_t rule, dtype_kind_t kind)
{
    switch (rule) {
    case OP_RULE_SAME:
        return kind != DTYPE_KIND_OPAQUE && kind != DTYPE_KIND_COMPLEX;
    case OP_RULE_NUMBER:
        return kind == DTYPE_KIND_UNSIGNED || kind == DTYPE_KIND_SIGNED || kind == DTYPE_KIND_FLOAT;
    case OP_RULE_FLOAT:
    case OP_RULE_MATMUL:
        return kind == DTYPE_KIND_FLOAT;
    case OP_RULE_BITS:
        return kind == DTYPE_KIND_BOOL || kind == DTYPE_KIND_UNSIGNED || kind == DTYPE_KIND_SIGNED;
    case OP_RULE_COMPARE:
    case OP_RULE_SELECT:
    case OP_RULE_CONVERT:
        return kind != DTYPE_KIND_COMPLEX && kind != DTYPE_KIND_OPAQUE;
    case OP_RULE_MOVED:
    case OP_RULE_NONE:
        return true;
    }
    return false;
}

static bool all_alike(const uncopy_dtype_t *reads, size_t from, size_t num_reads,
                      uncopy_dtype_t dtype)
{
    for (size_t i = from; i < num_reads; i++) {
        if (reads[i] != dtype) {
            return false;
        }
    }
    return true;
}

bool op_accepts(opcode_t opcode, const uncopy_dtype_t *reads, size_t num_reads,
                uncopy_dtype_t result)
{
    op_rule_t rule = rows[opcode].rule;
    switch (rule) {
    case OP_RULE_NONE:
        return true;
    case OP_RULE_CONVERT:
        return num_reads == 1 && kind_fits(rule, dtype_kind(reads[0])) &&
               kind_fits(rule, dtype_kind(result));
    case OP_RULE_COMPARE:
        return num_reads > 0 && result == UNCOPY_DTYPE_BOOL &&
               kind_fits(rule, dtype_kind(reads[0])) && all_alike(reads, 1, num_reads, reads[0]);
    case OP_RULE_SELECT:
        return num_reads > 0 && reads[0] == UNCOPY_DTYPE_BOOL &&
               kind_fits(rule, dtype_kind(result)) && all_alike(reads, 1, num_reads, result);
    default:
        return kind_fits(rule, dtype_kind(result)) && all_alike(reads, 0, num_reads, result);
    }
}
