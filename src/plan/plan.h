/* The plan: a flat array of instructions over a table of bases. Everything lies in the plan's
 * arena; immutable after compile has made it.
 *
 *      bases          0 .. n-1      data of the n arguments
 *                     n .. 2n-1     their storages
 *                     2n ..         arena, constants, outputs, scratch of its own, results that
 *                                   host calls make
 *      operands       (base, byte offset, layout), numbered; instructions name consecutive runs
 *      instructions   in the order they run
 *
 * Invariants
 *   q1 an instruction's operands are operands[first .. first + results + writes + reads), in that
 *      order
 *   q2 bases of kind MADE are first named by the host call that returns them
 *   q3 every hull lies within its argument's storage, checked at each call before any effect */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "base/memory.h"
#include "plan/kernel.h"
#include "plan/symbol.h"
#include "plan/tile.h"
#include "span/facts.h"
#include "uncopy/plan.h"

typedef struct plan_base {
    uncopy_base_kind_t kind;
    uint32_t argument; /* of ARGUMENT and STORAGE */
    /* the block's own layout, of bases that allocate serves and of MADE; UNCOPY_NONE else */
    uint32_t operand;
    int64_t size_bytes; /* of the block; 0 for arguments */
    const void *bytes;  /* of a constant */
    const char *name;   /* the storage's name in the program */
} plan_base_t;

typedef struct plan_operand {
    uint32_t base;
    uncopy_dtype_t dtype;
    int32_t rank;
    bool is_whole;
    int64_t offset_bytes;
    int64_t hull_first, hull_end; /* bytes from the base's address, for people */
    const int64_t *sizes;
    const int64_t *strides; /* elements */
} plan_operand_t;

typedef enum plan_kind {
    PLAN_KERNEL, /* call->... on our kernels */
    PLAN_TILE,   /* tile on our machine: slot s is the s-th operand */
    PLAN_MATMUL, /* the host's matmul if it takes it, else the kernel */
    PLAN_HOST_CALL,
    PLAN_HOST_COPY,
    PLAN_HOST_FILL,
    PLAN_COLLECTIVE, /* started by the host */
    PLAN_MOVE_RANK,  /* a collective of a group of one: a move */
    PLAN_FENCE,
} plan_kind_t;

/* What a copy that stayed, or a move, is to the reader of the plan. */
typedef enum plan_move_kind {
    PLAN_MOVE_NONE, /* no move */
    PLAN_MOVE_ASKED,
    PLAN_MOVE_COPY,
} plan_move_kind_t;

typedef struct plan_instruction {
    plan_kind_t kind;
    opcode_t opcode;
    uint32_t first_operand;
    uint16_t num_results, num_writes, num_reads;
    uncopy_call_form_t form;
    kernel_call_t *call; /* of KERNEL, MATMUL, MOVE_RANK; of a TILE that is one operation */
    const tile_program_t *tile;
    /* operand of each of call's; UNCOPY_NONE for immediates */
    uint32_t kernel_operands[KERNEL_MAX_OPERANDS];
    uncopy_operand_t number; /* of HOST_FILL */
    int64_t host_id;
    const char *target;
    uint32_t group; /* of COLLECTIVE */
    uint32_t work;  /* of COLLECTIVE and FENCE */
    double attribute;
    const uint32_t *releases; /* bases used no more after this instruction */
    size_t num_releases;
    plan_move_kind_t move_kind;
    int64_t move_bytes;
    uint32_t copy; /* number among the plan's copies */
    const char *file;
    int line;
} plan_instruction_t;

typedef struct plan_group {
    const char *token;
    const char *name;
    int32_t size, rank;
} plan_group_t;

/* What a call's argument must be for this plan. */
typedef struct plan_argument {
    const char *name;
    uncopy_dtype_t dtype;
    int32_t rank;
    const int64_t *sizes;
    const int64_t *strides;    /* elements */
    facts_hull_t hull;         /* of views that count from the data pointer */
    facts_hull_t storage_hull; /* of views that count from the storage's start */
    bool is_written;           /* by instructions of ours */
    bool is_written_by_host;
} plan_argument_t;

typedef struct plan {
    arena_t arena;
    const char *name;
    plan_argument_t *arguments;
    size_t num_arguments;
    plan_symbol_t *symbols;
    size_t num_symbols;
    int64_t *numbers; /* of the program, for the symbols' values */
    size_t num_numbers;
    plan_base_t *bases;
    size_t num_bases;
    plan_operand_t *operands;
    size_t num_operands;
    plan_instruction_t *instructions;
    size_t num_instructions;
    plan_group_t *groups;
    size_t num_groups;
    uncopy_output_t *outputs; /* bound.id is the operand's number */
    size_t num_outputs;
    uncopy_copy_t *copies;
    size_t num_copies;
    const char **removed; /* sentences about copies that elide removed */
    size_t num_removed;
    size_t num_works;
    uint32_t arena_base; /* UNCOPY_NONE when no scratch needs it */
    uncopy_order_t order;
    bool needs_host_call, needs_host_collective;
    facts_t *facts;
    /* of argument bases when it was planned: what the bytes in the print are of */
    int64_t *addresses;
    uncopy_plan_counts_t counts;
} plan_t;

/* Frees the arena; the struct itself is the owner's. */
void plan_release(plan_t *plan);

/* Appends the plan as people read it, and the explanation in words. */
void plan_print(const plan_t *plan, text_t *text);
void plan_explain(const plan_t *plan, text_t *text);

/* Appends an operand as "w_buffer[0:256]". */
void plan_print_operand(const plan_t *plan, uint32_t operand, text_t *text);

#endif
