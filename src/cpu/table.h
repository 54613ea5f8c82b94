/* Inner loops, compiled once for each instruction set, and the choice among them.
 *
 * A table is immutable and complete: every table has the same entries filled. table_body.inc is the
 * one source of all of them; table_portable.c, table_avx2.c and table_avx512.c compile it with
 * different targets. Pointwise loops, loads and stores give the same bits in every table; matmul
 * does not, for the portable one rounds products.
 *
 * Compute kinds: the type in which an element is held between load and store. */
#ifndef CPU_TABLE_H
#define CPU_TABLE_H

#include "base/ops.h"

typedef enum kind {
    KIND_F32,
    KIND_F64,
    KIND_I32, /* all integer types up to 32 bits but u32 */
    KIND_I64,
    KIND_U64,
    KIND_BOOL,
    KIND_BF16, /* held as bf16, computed in f32, rounded after each operation */
    KIND_F16,  /* likewise */
    KIND_COUNT,
} kind_t;

/* Elements of a tile: what a load fills, a loop computes and a store empties. Tiles of the widest
 * kind for a result and three operands take 16 KiB, half of a small L1. */
enum { TILE = 512 };

/* How a row of pointwise.def takes its first two reads: a vector, or one number in the compute type
 * for all elements. */
typedef enum row_form {
    ROW_VECTORS,
    ROW_VECTOR_NUMBER, /* the second read is a number */
    ROW_NUMBER_VECTOR, /* the first read is a number */
    ROW_FORM_COUNT,
} row_form_t;

/* What sums, products and extremes are made of; the reductions of a tile program come down to
 * them. */
typedef enum fold {
    FOLD_SUM,
    FOLD_PROD,
    FOLD_MAX,
    FOLD_MIN,
    FOLD_COUNT,
} fold_t;

/* Accumulators of a tile's fold. */
enum { FOLD_LANES = 16 };

/* A number in the compute type of its kind. */
typedef union number {
    float f32;
    double f64;
    int32_t i32;
    int64_t i64;
    uint64_t u64;
    uint8_t boolean;
} number_t;

/* Element types for memory that has no promised alignment and may hold anything. */
typedef float any_f32 __attribute__((aligned(1), may_alias));
typedef double any_f64 __attribute__((aligned(1), may_alias));
typedef int8_t any_i8 __attribute__((aligned(1), may_alias));
typedef int16_t any_i16 __attribute__((aligned(1), may_alias));
typedef int32_t any_i32 __attribute__((aligned(1), may_alias));
typedef int64_t any_i64 __attribute__((aligned(1), may_alias));
typedef uint8_t any_u8 __attribute__((aligned(1), may_alias));
typedef uint16_t any_u16 __attribute__((aligned(1), may_alias));
typedef uint32_t any_u32 __attribute__((aligned(1), may_alias));
typedef uint64_t any_u64 __attribute__((aligned(1), may_alias));

/* to[i * step] = the element at from + i * stride, for i below count; to is of the kind's type. */
typedef void (*load_t)(void *to, int64_t step, const char *from, int64_t stride, int64_t count);
/* The element at to + i * stride = from[i], rounded to its dtype. */
typedef void (*store_t)(char *to, int64_t stride, const void *from, int64_t count);
/* result[i] = formula(reads[0][i], reads[1][i], reads[2][i], scalars). Only as many reads as the
 * row has are touched; result may be exactly one of them. Elements are of the kind's register type;
 * those of a comparison's result and of a selection's first read are u8. A number among the reads
 * is of the compute type. scalars are the two attributes, in the compute type. */
typedef void (*row_loop_t)(void *result, const void *const *reads, const number_t *scalars,
                           int64_t count);
/* total = the fold of count elements: element i goes to accumulator i % 16, and the accumulators
 * are joined 8, 4, 2, 1 apart. count 0 gives the neutral element. */
typedef void (*fold_row_t)(void *total, const void *from, int64_t count);
/* into[i] = into[i] joined with from[i]. */
typedef void (*join_t)(void *into, const void *from, int64_t count);
/* Index of the first element that is greatest (or least), a NaN before all. count is above 0. */
typedef int64_t (*find_t)(const void *from, int64_t count);

/* Matmul's inner loop; see matmul_body.h. */
typedef void (*multiply_t)(void *total, int64_t total_step, const void *a, const char *b,
                           int64_t b_stride, int64_t columns, int64_t depth);

/* Matmul by dot products; see dot_body.h. */
typedef void (*dot_t)(void *sums, const void *a, const char *b, int64_t b_stride, int64_t depth);

enum { DOT_ROW_CHOICES = 3 };      /* 1, 2, 4 rows */
enum { MULTIPLY_ROW_CHOICES = 4 }; /* 1, 2, 4, 8 rows */

typedef struct table {
    const char *name;
    load_t loads[KIND_COUNT][DTYPE_COUNT];   /* NULL where the kind cannot hold the dtype */
    store_t stores[KIND_COUNT][DTYPE_COUNT]; /* NULL likewise */
    /* NULL where there is no such form */
    row_loop_t rows[ROW_FORM_COUNT][KIND_COUNT][OPCODE_COUNT];
    fold_row_t folds[FOLD_COUNT][KIND_COUNT]; /* of F32, F64, I32, I64 */
    join_t joins[FOLD_COUNT][KIND_COUNT];
    find_t finds[2][KIND_COUNT];                    /* greatest, least */
    load_t gather_16;                               /* elements of 2 bytes, as they are */
    multiply_t multiply_f32[MULTIPLY_ROW_CHOICES];  /* b is f32 */
    multiply_t multiply_bf16[MULTIPLY_ROW_CHOICES]; /* b is bf16, the rest f32 */
    multiply_t multiply_f64[MULTIPLY_ROW_CHOICES];
    dot_t dot_f32[DOT_ROW_CHOICES]; /* types as above */
    dot_t dot_bf16[DOT_ROW_CHOICES];
    dot_t dot_f64[DOT_ROW_CHOICES];
} table_t;

extern const table_t table_portable;
#if defined(__x86_64__)
extern const table_t table_avx2;
extern const table_t table_avx512;
#endif

/* The table in use. Chosen on the first call, then one load. */
const table_t *table_get(void);

/* Makes the named table the one in use, for tests; false where the processor lacks it. What was
 * prepared before keeps its own. */
bool table_force(const char *name);

/* The kind that computes on dtype. dtype must not be complex or opaque. */
kind_t table_kind(uncopy_dtype_t dtype);

/* The kind of a register that holds values of dtype: as table_kind, but f16 and bf16 are held as
 * they are. */
kind_t table_register_kind(uncopy_dtype_t dtype);

/* Bytes of an element of a register of kind, and of a number of its compute type. */
int64_t table_register_bytes(kind_t kind);
int64_t table_compute_bytes(kind_t kind);

/* The dtype whose memory a register of kind is laid out as. */
uncopy_dtype_t table_register_dtype(kind_t kind);

#endif
