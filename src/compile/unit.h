/* A compilation at work: the program with its numbers for one call, in a form that passes may
 * change.
 *
 * One arena holds it all and dies with it; the plan is made in an arena of its own. Confined to one
 * thread.
 *
 * Positions: ops[order[i]] is the operation that runs i-th among those not removed; op.position ==
 * i. Moving an operation renumbers. Removed operations stay in ops with is_removed set and are not
 * in order.
 *
 * Invariants
 *   u1 every view's storage exists; views of one storage compare by their spans, arguments by facts
 *   u2 touches of a storage list, by position, the operations that read or write its bytes by their
 *      own views: every live one and no removed one
 *   u3 a fence's partner is its collective and the other way round, each has one (v14, v15); the
 *      fence comes later */
#ifndef COMPILE_UNIT_H
#define COMPILE_UNIT_H

#include "base/memory.h"
#include "ir/program.h"
#include "plan/plan.h"
#include "plan/target.h"
#include "span/facts.h"

typedef struct unit_view {
    uint32_t storage;
    bool is_from_storage;
    uncopy_dtype_t dtype;
    span_t span; /* from the base's address */
    const char *name;
} unit_view_t;

typedef struct unit_operand {
    uint32_t view; /* UNCOPY_NONE: the number */
    uncopy_operand_t number;
} unit_operand_t;

/* Why a copy stayed; codes in reasons.def. */
typedef struct unit_reason {
    int code; /* reason_t; 0 for none */
    const char *words;
} unit_reason_t;

typedef struct unit_op {
    opcode_t opcode;
    bool is_removed;
    uint32_t position;
    unit_operand_t *reads;
    uint32_t *writes;
    uint32_t *returns;
    bool *return_is_alias; /* the result is a view of bytes that were there before */
    size_t num_reads, num_writes, num_returns;
    double attributes[OP_MAX_ATTRIBUTES];
    uint32_t group;
    unsigned effects; /* UNCOPY_EFFECT_..., those of native rows filled in from the table */
    uint32_t partner; /* u3; UNCOPY_NONE for none */
    const char *target;
    int64_t host_id;
    const char *file;
    int line;
    unit_reason_t reason;
} unit_op_t;

typedef struct unit_storage {
    ir_storage_kind_t kind;
    uint32_t first_view;
    uint32_t maker;  /* the operation that returns it, UNCOPY_NONE for none */
    bool is_exposed; /* an operation of unknown effects may touch its bytes without naming them */
    bool is_output;
    int64_t size_bytes;
    uint32_t *touches; /* operation numbers by position */
    size_t num_touches;
    const void *bytes;
} unit_storage_t;

typedef struct unit {
    arena_t arena;
    const ir_program_t *program;
    const target_t *target;
    const uncopy_options_t *options;
    facts_builder_t *facts;
    size_t num_arguments;
    unit_view_t *views;
    size_t num_views, views_capacity;
    unit_op_t *ops;
    size_t num_ops;
    uint32_t *order;
    size_t num_order;
    unit_storage_t *storages;
    size_t num_storages;
    uint32_t *outputs; /* views */
    size_t num_outputs;
    uint32_t *unknown; /* live operations of unknown effects, by position */
    size_t num_unknown;
    uint32_t *collectives; /* live collectives, by position */
    size_t num_collectives;
    const char **removed;
    size_t num_removed, removed_capacity;
} unit_t;

/* Builds the unit of a verified program. addresses: data of each argument, then storage of each. */
UNCOPY_MUST_CHECK uncopy_status_t unit_init(unit_t *unit, const uncopy_allocator_t *allocator,
                                            const ir_program_t *program, const ir_extent_t *extents,
                                            const target_t *target, const uncopy_options_t *options,
                                            const int64_t *addresses);
void unit_release(unit_t *unit);

/* Rebuilds positions, touches and unknown after operations were removed or moved. */
UNCOPY_MUST_CHECK uncopy_status_t unit_index(unit_t *unit);

/* Adds a view; *out_view is its number. */
UNCOPY_MUST_CHECK uncopy_status_t unit_add_view(unit_t *unit, const unit_view_t *view,
                                                uint32_t *out_view);

/* Number of the facts' base that a view of an argument counts from. */
uint32_t unit_base(const unit_t *unit, const unit_view_t *view);

/* Whether op copies bytes onto themselves. */
bool unit_is_copy_to_itself(const unit_t *unit, const unit_op_t *op);

/* Formats into the unit's arena; NULL on no memory. */
const char *unit_words(unit_t *unit, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "add (opp.py:36)". */
const char *unit_op_words(unit_t *unit, const unit_op_t *op);
/* "w_buffer[0:256]". */
const char *unit_view_words(unit_t *unit, uint32_t view);

#endif
