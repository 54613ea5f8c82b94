/* The operation table as data: opcodes, rows, and the dtype rules of ops.def. Immutable. */
#ifndef BASE_OPS_H
#define BASE_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

typedef enum opcode {
#define OPERATION(name, text, class, reads, rule, flags, aten, attributes, formula) OPCODE_##name,
#include "base/ops.def"
#undef OPERATION
    OPCODE_COUNT
} opcode_t;

typedef enum op_class {
    OP_CLASS_POINTWISE,
    OP_CLASS_MOVE,
    OP_CLASS_MATMUL,
    OP_CLASS_COLLECTIVE,
    OP_CLASS_FENCE,
    OP_CLASS_ORDER,
    OP_CLASS_EXTERN,
} op_class_t;

typedef enum op_rule {
    OP_RULE_SAME,
    OP_RULE_NUMBER,
    OP_RULE_FLOAT,
    OP_RULE_BITS,
    OP_RULE_COMPARE,
    OP_RULE_SELECT,
    OP_RULE_MOVED,
    OP_RULE_CONVERT,
    OP_RULE_MATMUL,
    OP_RULE_NONE,
} op_rule_t;

enum {
    OP_FLAG_IN_PLACE = 1 << 0,
    OP_FLAG_OPMATH = 1 << 1,
    OP_FLAG_RAISES = 1 << 2,
    OP_FLAG_RANDOM = 1 << 3,
    OP_FLAG_LAYOUT = 1 << 4,
    OP_FLAG_KEPT = 1 << 5,
};

enum { OP_READS_VARIABLE = -1, OP_MAX_READS = 3, OP_MAX_ATTRIBUTES = 2 };

typedef struct op_row {
    const char *name;
    op_class_t class_;
    int num_reads; /* OP_READS_VARIABLE: any */
    op_rule_t rule;
    unsigned flags;
    const char *aten_names;
    const char *attributes;
    const char *formula;
} op_row_t;

/* opcode must be below OPCODE_COUNT. */
const op_row_t *op_row(opcode_t opcode);

/* Finds a row by its text name of length bytes. */
bool op_find(const char *name, size_t length, opcode_t *out_opcode);

/* Finds the row that serves an aten base name ("add", "mm"), without in-place underscore and
 * overload. */
bool op_find_aten(const char *name, size_t length, opcode_t *out_opcode);

/* Attribute number index of a row: its name (length in *out_length) and default. False past the
 * last. */
bool op_attribute(opcode_t opcode, size_t index, const char **out_name, size_t *out_length,
                  double *out_default);

/* Whether a row takes these dtypes: reads of the operands that are views (immediates left out), and
 * the result's. */
bool op_accepts(opcode_t opcode, const uncopy_dtype_t *reads, size_t num_reads,
                uncopy_dtype_t result);

#endif
