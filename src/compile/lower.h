/* What the two halves of lowering share: lower.c makes instructions, bases.c gives storages their
 * memory. */
#ifndef COMPILE_LOWER_H
#define COMPILE_LOWER_H

#include "compile/unit.h"

typedef struct lower_storage {
    uint32_t base;        /* UNCOPY_NONE: nothing touches it */
    int64_t offset_bytes; /* in the arena */
} lower_storage_t;

typedef struct lowering {
    unit_t *unit;
    plan_t *plan;
    lower_storage_t *storages;
    bool *is_overlapping;     /* by operation: see lower_find_overlaps */
    uint32_t *works;          /* by operation: number of a collective's work */
    uint32_t *instruction_of; /* by position; of positions that made none, the last before */
    size_t operands_capacity, copies_capacity, bases_capacity;
} lowering_t;

/* Chooses the base of every storage, places scratch in the arena, fills the plan's bases. */
UNCOPY_MUST_CHECK uncopy_status_t lower_bases(lowering_t *lowering);

/* Number of the base that a view counts from. */
uint32_t lower_base(const lowering_t *lowering, const unit_view_t *view);

/* Finds the operations whose own operands overlap. Errors: UNCOPY_ERROR_UNSUPPORTED where nobody
 * can run one. */
UNCOPY_MUST_CHECK uncopy_status_t lower_find_overlaps(lowering_t *lowering);

/* Makes the kernel call of an instruction whose operands are added. */
UNCOPY_MUST_CHECK uncopy_status_t lower_kernel_call(lowering_t *lowering, const unit_op_t *op,
                                                    plan_instruction_t *instruction);

/* Adds the operand of a view. */
UNCOPY_MUST_CHECK uncopy_status_t lower_add_operand(lowering_t *lowering, uint32_t view,
                                                    uint32_t *out_operand);

/* Whether op is a host call that makes storage itself. */
bool lower_makes_storage(const lowering_t *lowering, const unit_op_t *op, uint32_t storage);

#endif
