/* The program inside: storages, views, operations, in arrays that name each other by number.
 *
 * An ir_program_t owns one arena; everything reachable from it lives there until
 * ir_program_release. Confined to one thread while it grows, immutable afterwards. Public headers
 * give the meaning of each part (uncopy/program.h).
 *
 * Invariants
 *   p1 storage s's first view is views[storages[s].first_view], it starts at the storage's
 *      (argument's data) start
 *   p2 storages[0 .. num_arguments-1] are the arguments, in order
 *   p3 operands, groups, expressions named anywhere exist */
#ifndef IR_PROGRAM_H
#define IR_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/ops.h"
#include "span/span.h"
#include "uncopy/program.h"

_Static_assert(UNCOPY_MAX_RANK == SPAN_MAX_RANK, "a view's span has its rank");

typedef enum ir_storage_kind {
    IR_STORAGE_ARGUMENT,
    IR_STORAGE_CONSTANT,
    IR_STORAGE_SCRATCH,
    IR_STORAGE_FRESH,
} ir_storage_kind_t;

typedef struct ir_storage {
    ir_storage_kind_t kind;
    uint32_t first_view;
    const void *bytes; /* of a constant */
    size_t size_bytes; /* of a constant */
} ir_storage_t;

typedef struct ir_view {
    const char *name;
    uint32_t storage;
    uncopy_dtype_t dtype;
    int32_t rank;
    bool is_from_storage; /* offset counts from the start of the argument's storage object */
    uncopy_dim_t offset_bytes;
    uncopy_dim_t sizes[SPAN_MAX_RANK];
    uncopy_dim_t strides[SPAN_MAX_RANK]; /* elements */
} ir_view_t;

typedef struct ir_symbol {
    const char *name;
    uint32_t argument;
    uncopy_symbol_kind_t kind;
    int32_t dim;
    int64_t assumed; /* value for planning without a call; -1: none given */
} ir_symbol_t;

/* Expression number e is named by the dim -(e + 1). */
typedef struct ir_expression {
    bool is_symbol;
    uint32_t symbol;
    uncopy_expression_kind_t kind;
    uncopy_dim_t a, b;
} ir_expression_t;

typedef struct ir_group {
    const char *token;
    const char *name;
    int32_t size, rank;
} ir_group_t;

typedef struct ir_operation {
    opcode_t opcode;
    const uncopy_operand_t *reads;
    const uncopy_view_t *writes;
    const uncopy_view_t *returns;
    size_t num_reads, num_writes, num_returns;
    double attributes[OP_MAX_ATTRIBUTES]; /* in the order of the row, defaults filled in */
    uncopy_group_t group;
    const char *target;
    unsigned effects;
    int64_t host_id;
    const char *file;
    int line;
} ir_operation_t;

/* address(a) = address(b) + offset_bytes, both argument numbers. */
typedef struct ir_assumption {
    uint32_t a, b;
    int64_t offset_bytes;
} ir_assumption_t;

typedef struct ir_program {
    arena_t arena;
    const char *name;
    ir_storage_t *storages;
    ir_view_t *views;
    ir_operation_t *operations;
    ir_expression_t *expressions;
    ir_symbol_t *symbols;
    ir_group_t *groups;
    ir_assumption_t *assumptions;
    uncopy_view_t *outputs;
    uncopy_dim_t *numbers;
    size_t num_storages, num_views, num_operations, num_expressions, num_symbols, num_groups,
        num_assumptions, num_outputs, num_arguments, num_numbers;
    size_t storages_capacity, views_capacity, operations_capacity, expressions_capacity,
        symbols_capacity, groups_capacity, assumptions_capacity, outputs_capacity, numbers_capacity;
    uint32_t *name_table; /* open addressing: view number + 1 */
    size_t name_table_size;
} ir_program_t;

UNCOPY_MUST_CHECK uncopy_status_t ir_program_init(ir_program_t *program,
                                                  const uncopy_allocator_t *allocator,
                                                  const char *name);
void ir_program_release(ir_program_t *program);

/* The builder's calls; see uncopy/program.h for meaning and errors. */
UNCOPY_MUST_CHECK uncopy_status_t ir_add_argument(ir_program_t *program, const char *name,
                                                  const uncopy_layout_t *layout,
                                                  uncopy_view_t *out_view);
UNCOPY_MUST_CHECK uncopy_status_t ir_add_storage(ir_program_t *program, const char *name,
                                                 ir_storage_kind_t kind,
                                                 const uncopy_layout_t *layout,
                                                 uncopy_view_t *out_view);
UNCOPY_MUST_CHECK uncopy_status_t ir_add_constant(ir_program_t *program, const char *name,
                                                  const uncopy_layout_t *layout, const void *bytes,
                                                  size_t size_bytes, uncopy_view_t *out_view);
UNCOPY_MUST_CHECK uncopy_status_t ir_add_view(ir_program_t *program, const char *name,
                                              uncopy_view_t of, const uncopy_layout_t *layout,
                                              uncopy_dim_t offset_bytes, bool is_from_storage,
                                              uncopy_view_t *out_view);
UNCOPY_MUST_CHECK uncopy_status_t ir_add_symbol(ir_program_t *program, const char *name,
                                                uint32_t argument, uncopy_symbol_kind_t kind,
                                                int32_t dim, uncopy_dim_t *out_dim);
UNCOPY_MUST_CHECK uncopy_status_t ir_add_expression(ir_program_t *program,
                                                    uncopy_expression_kind_t kind, uncopy_dim_t a,
                                                    uncopy_dim_t b, uncopy_dim_t *out_dim);
UNCOPY_MUST_CHECK uncopy_status_t ir_add_group(ir_program_t *program, const char *token,
                                               const char *name, int32_t size, int32_t rank,
                                               uncopy_group_t *out_group);
UNCOPY_MUST_CHECK uncopy_status_t ir_add_operation(ir_program_t *program,
                                                   const uncopy_operation_t *operation);
UNCOPY_MUST_CHECK uncopy_status_t ir_add_output(ir_program_t *program, uncopy_view_t view);
UNCOPY_MUST_CHECK uncopy_status_t ir_add_number(ir_program_t *program, uncopy_dim_t dim,
                                                size_t *out_number);
UNCOPY_MUST_CHECK uncopy_status_t ir_assume(ir_program_t *program, uint32_t a, uint32_t b,
                                            int64_t offset_bytes);

/* The view of that name (length bytes), UNCOPY_NONE if there is none. */
uncopy_view_t ir_find_view(const ir_program_t *program, const char *name, size_t length);

/* Number of the argument whose storage view belongs to, UNCOPY_NONE for another storage. */
uint32_t ir_argument_of(const ir_program_t *program, uncopy_view_t view);

/* A view with its numbers: the span counts from the base's address (argument's data, argument's
 * storage where the view is from there, or the storage's start). */
typedef struct ir_extent {
    span_t span;
    int64_t element_strides[SPAN_MAX_RANK];
} ir_extent_t;

/* A program's sizes for one call, in an arena. */
typedef struct ir_values {
    ir_extent_t *extents; /* of each view */
    int64_t *numbers;     /* each of the program's numbers */
} ir_values_t;

/* symbol_values: one for each symbol. Errors: UNCOPY_ERROR_PROGRAM (a size or offset below zero,
 * overflow), naming the view. */
UNCOPY_MUST_CHECK uncopy_status_t ir_evaluate(const ir_program_t *program,
                                              const int64_t *symbol_values, arena_t *arena,
                                              ir_values_t *out_values);

#endif
