/* Tile programs: many operations over one index space, as data.
 *
 * A tile program is a loop nest of up to SPAN_MAX_RANK dims and a list of instructions that run for
 * each index of it. An instruction makes one value; later instructions name it by its number, so
 * the list is in single assignment and in order. Addresses come with the call, one a slot. The
 * machine in src/cpu runs a program over tiles of TILE_ELEMENTS in the nearest cache; how it cuts
 * and orders the loop changes no bit.
 *
 *      tile 8 x [1024]                                  [n]: a reduced dim
 *        %0   bf16   read slot 1 (2048,2)
 *        %1   f32    convert %0
 *        %2   f32    reduce amax %1   a row              one value for each index of the other dims
 *        %3   f32    sub %1, %2
 *        %4   f32    exp %3
 *        %5   f32    reduce sum %4   a row
 *        %6   f32    div %4, %5
 *        %7   bf16   convert %6
 *             bf16   write slot 0 (2048,2) %7
 *
 * Values. A value belongs to an element (one for each index of all dims) or, if nothing it comes
 * from differs along the reduced dims, to a row (one for each index of the dims not reduced). A
 * row's value may be used wherever an element's may. A value has a dtype and lies in a register of
 * that dtype's compute type. Between instructions it is rounded (wrapped, for integers) to its
 * dtype, as eager does after each operation, unless `is_wide` says that it keeps the compute type.
 *
 * Order of effects. For each index all reads of a slot come before its writes; reads and writes of
 * one address are allowed where the operands have the same index map (an operation in place).
 * Writes whose operands have an index of their own (a scatter) happen in order of the loop.
 *
 * Invariants, checked by tile_verify
 *   t1 a source is the number of an earlier instruction that makes a value
 *   t2 every operand's slot is below num_slots; an immediate has none
 *   t3 a reduction's source is any value, its result a row's; without reduced dims there is none
 *   t4 an index value is i64 or i32
 *   t5 no size is below zero; a size of zero is an empty loop, whose reductions give their neutral
 *   t6 at most TILE_MAX_LIVE element values are needed at one point (numbers do not count)
 *
 * In a plan an instruction of kind PLAN_TILE runs a program: slot s is its s-th operand, so results
 * come before reads as plan.h says.
 *
 * Immutable once built; lies in one arena, holds no address of code, and can be written to disk. */
#ifndef PLAN_TILE_H
#define PLAN_TILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/ops.h"
#include "plan/kernel.h"
#include "span/span.h"

enum {
    TILE_ELEMENTS = 512,
    TILE_MAX_SLOTS = 32,
    TILE_MAX_OPERANDS = 64,
    TILE_MAX_CODES = 256,
    TILE_MAX_LIVE = 24,
    TILE_MAX_SOURCES = 3,
    TILE_MAX_INDICES = 4,
};

/* Number of the instruction that makes a value. */
typedef uint16_t tile_value_t;
#define TILE_NO_VALUE ((tile_value_t)UINT16_MAX)

/* Where a value is read from or written to. */
typedef struct tile_operand {
    uint16_t slot;
    uncopy_dtype_t dtype;
    int64_t strides[SPAN_MAX_RANK]; /* bytes along each loop dim; 0: broadcast */
    /* The address moves on by indices[i] * index_strides[i] too. An index must lie in
     * 0 .. index_sizes[i]-1; where allows_negative is set, one from -index_sizes[i] on counts from
     * the end. All indices of a program are checked before anything is written; one that fails
     * ends the run with tile_failure_t. */
    uint8_t num_indices;
    bool allows_negative;
    tile_value_t indices[TILE_MAX_INDICES];
    int64_t index_strides[TILE_MAX_INDICES];
    int64_t index_sizes[TILE_MAX_INDICES];
} tile_operand_t;

typedef enum tile_code {
    TILE_READ,    /* the element at operand's address, of operand's dtype */
    TILE_NUMBER,  /* number, as dtype (is_wide: in the compute type) */
    TILE_INDEX,   /* i64: the loop's index along dim `operand` */
    TILE_APPLY,   /* the POINTWISE row opcode on sources, with attributes */
    TILE_CONVERT, /* source 0 as dtype, as eager's to(dtype) */
    TILE_REDUCE,  /* source 0 over the reduced dims; argmax and argmin give i64 */
    TILE_WRITE,   /* source 0 to operand's address; makes no value */
    TILE_ADD,     /* as WRITE, but adds to what is there (index_put with accumulate) */
} tile_code_t;

typedef enum tile_reduction {
    TILE_SUM, /* in the compute type of dtype: 16 accumulators a tile, joined in a fixed tree */
    TILE_PROD,
    TILE_AMAX, /* NaN if any is */
    TILE_AMIN,
    TILE_ARGMAX, /* the first of the greatest, a NaN before all; counted over the reduced dims */
    TILE_ARGMIN,
    TILE_ANY,
    TILE_ALL,
} tile_reduction_t;

typedef struct tile_instruction {
    tile_code_t code;
    uncopy_dtype_t dtype; /* of the value; of WRITE and ADD the source's */
    bool is_wide;         /* the value is not rounded to dtype */
    bool is_row;          /* the value belongs to a row; set by the builder */
    opcode_t opcode;
    tile_reduction_t reduction;
    uint16_t operand; /* of READ, WRITE, ADD; INDEX: the dim */
    uint16_t num_sources;
    tile_value_t sources[TILE_MAX_SOURCES];
    double attributes[OP_MAX_ATTRIBUTES];
    kernel_immediate_t number;
} tile_instruction_t;

typedef struct tile_program {
    int32_t rank;
    int64_t sizes[SPAN_MAX_RANK];
    bool is_reduced[SPAN_MAX_RANK]; /* reduced dims run in the program's order, the last fastest */
    uint16_t num_slots;
    uint16_t num_operands;
    uint16_t num_instructions;
    const tile_operand_t *operands;
    const tile_instruction_t *instructions;
    bool may_raise; /* has index operands */
} tile_program_t;

/* Why a run stopped: an index out of range. Nothing was written. */
typedef struct tile_failure {
    uint16_t operand;
    uint8_t index; /* which of the operand's indices */
    int64_t value, size;
} tile_failure_t;

/* ---- running, as the runtime sees it ----
 *
 * A program made ready for this machine, with the functions that run it; src/cpu/tile.h says what
 * each does. Units may run in any order and on any threads. */

typedef struct tile_kernel tile_kernel_t;

typedef struct tile_runner {
    const tile_kernel_t *kernel;
    int64_t num_units;
    size_t workspace_bytes; /* shared by the units of a run; 0: none, and no join */
    int64_t cost_ns;        /* of all units, on one thread */
    bool (*check)(const tile_kernel_t *kernel, char *const *data, tile_failure_t *out_failure);
    void (*run)(const tile_kernel_t *kernel, char *const *data, void *workspace, int64_t first,
                int64_t end);
    void (*join)(const tile_kernel_t *kernel, char *const *data, void *workspace);
} tile_runner_t;

/* ---- building ----
 *
 * A builder takes values in order and makes the program. An error (no memory, a limit reached, a
 * dtype that no row takes) is kept; the calls after it do nothing, and tile_finish reports it.
 * Confined to one thread. Everything is allocated from the arena. */

typedef struct tile_builder {
    arena_t *arena;
    tile_program_t program;
    tile_operand_t *operands;
    tile_instruction_t *instructions;
    size_t operands_capacity, instructions_capacity, num_operands, num_instructions;
    uint16_t num_slots;
    bool is_fused_precision;
    uncopy_status_t status;
} tile_builder_t;

/* Loop dims are those of the index space; is_reduced NULL: none. is_fused_precision: f16 and bf16
 * values stay in f32 between operations (option precision="fused"). */
void tile_begin(tile_builder_t *builder, arena_t *arena, int32_t rank, const int64_t *sizes,
                const bool *is_reduced, bool is_fused_precision);

/* A value read from a slot. strides: bytes along each loop dim, 0 where the operand is broadcast;
 * along reduced dims 0 throughout for a row's value. */
tile_value_t tile_read(tile_builder_t *builder, uint16_t slot, uncopy_dtype_t dtype,
                       const int64_t *strides);

/* As tile_read, from places picked by index values: operand is copied. */
tile_value_t tile_read_at(tile_builder_t *builder, const tile_operand_t *operand);

/* A number. Where it enters in the compute type (flag OPMATH, second read), pass is_wide. */
tile_value_t tile_number(tile_builder_t *builder, const kernel_immediate_t *number,
                         uncopy_dtype_t dtype, bool is_wide);

tile_value_t tile_index(tile_builder_t *builder, int32_t dim);

/* One POINTWISE row. attributes: OP_MAX_ATTRIBUTES numbers, or NULL for none. dtype: the
 * result's, as the row's rule gives it. */
tile_value_t tile_apply(tile_builder_t *builder, opcode_t opcode, const tile_value_t *sources,
                        size_t num_sources, const double *attributes, uncopy_dtype_t dtype);

/* To another dtype; the value itself where it has that dtype already. */
tile_value_t tile_convert(tile_builder_t *builder, tile_value_t value, uncopy_dtype_t dtype);

/* One reduction. f16 and bf16 are reduced in f32, and integers summed in i64; the value has the
 * source's dtype (sums and products of integers: i64; argmax, argmin: i64; any, all: bool). */
tile_value_t tile_reduce(tile_builder_t *builder, tile_reduction_t reduction, tile_value_t value);

/* Writes a value, converted to dtype, to a slot. A row's value needs strides of 0 along the reduced
 * dims and is written once a row. */
void tile_write(tile_builder_t *builder, uint16_t slot, uncopy_dtype_t dtype,
                const int64_t *strides, tile_value_t value);

/* As tile_write, to places picked by index values; is_added: adds to what is there. */
void tile_write_at(tile_builder_t *builder, const tile_operand_t *operand, tile_value_t value,
                   bool is_added);

/* A whole operation of ops.def: a POINTWISE row or CONVERT. reads: values in the row's order
 * (TILE_NO_VALUE for one that is absent). dtypes: of the results. out: as many values as the row
 * has results. */
void tile_operation(tile_builder_t *builder, opcode_t opcode, const tile_value_t *reads,
                    size_t num_reads, const double *attributes, const uncopy_dtype_t *dtypes,
                    tile_value_t *out);

/* Whether values of this operation may join a program: there is a tile form of it. */
bool tile_takes(opcode_t opcode);

/* Whether a value belongs to a row. */
bool tile_is_row(const tile_builder_t *builder, tile_value_t value);

/* Greatest number of element values needed at one point, so far: a caller may watch it so as to cut
 * before TILE_MAX_LIVE is reached. */
size_t tile_num_live(const tile_builder_t *builder);

/* The program, verified, in the arena. Values that no write needs are dropped. Errors:
 * UNCOPY_ERROR_MEMORY; UNCOPY_ERROR_UNSUPPORTED (a limit of the enum above, a row or dtype without
 * a tile form), after which the caller cuts or keeps the operations apart. */
UNCOPY_MUST_CHECK uncopy_status_t tile_finish(tile_builder_t *builder,
                                              const tile_program_t **out_program);

/* One POINTWISE row or CONVERT on operands as a kernel takes them: slots are the operands that are
 * no numbers, in order. Errors: as tile_finish. */
UNCOPY_MUST_CHECK uncopy_status_t tile_of_call(const kernel_call_t *call, arena_t *arena,
                                               const tile_program_t **out_program);

/* The invariants of this file's head. Errors: UNCOPY_ERROR_PROGRAM naming the instruction. */
UNCOPY_MUST_CHECK uncopy_status_t tile_verify(const tile_program_t *program);

/* Appends the program as in the picture above, each line indented by indent spaces. */
void tile_print(const tile_program_t *program, int indent, text_t *text);

#endif
