/* A program: storages, views of them, and operations that read and write views, in order. The order
 * is the meaning.
 *
 * Build it by these calls or from text (docs/text-language.md), then make a function or a plan of
 * it. An argument is a tensor of the caller; the program never says which arguments share bytes:
 * the addresses of each call do.
 *
 * Owner: whoever created or retained it. Threads: confined while it is built; once a function holds
 * it, it is immutable and adding fails. */
#ifndef UNCOPY_PROGRAM_H
#define UNCOPY_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "uncopy/context.h"
#include "uncopy/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Largest number of dims of a view. */
#define UNCOPY_MAX_RANK 12

typedef struct uncopy_program uncopy_program_t;

/* A size, stride or offset: a value >= 0 is that constant, a negative one names an expression of
 * the program. */
typedef int64_t uncopy_dim_t;

/* Numbers of views and groups within one program. Each storage and argument has a first view that
 * covers it, so storages are named by views. */
typedef uint32_t uncopy_view_t;
typedef uint32_t uncopy_group_t;
#define UNCOPY_NONE UINT32_MAX

/* dtype, sizes and strides of a view. strides are elements; NULL means row-major without gaps. */
typedef struct uncopy_layout {
    uncopy_dtype_t dtype;
    int32_t rank;
    const uncopy_dim_t *sizes;
    const uncopy_dim_t *strides;
} uncopy_layout_t;

/* What an operation reads: a view, or a number of the program itself. */
typedef struct uncopy_operand {
    uncopy_view_t view; /* UNCOPY_NONE: the number below */
    int is_integer;     /* the number is integer, and number its nearest double */
    int64_t integer;
    double number;
} uncopy_operand_t;

/* Scalar attribute of an operation, as "alpha". */
typedef struct uncopy_attribute {
    const char *name;
    double value;
} uncopy_attribute_t;

/* What is known of an operation that the host runs. */
enum {
    UNCOPY_EFFECT_AUDITED = 1 << 0, /* reads, writes and returns are all it does; else it may touch
                                       any byte that is not scratch */
    UNCOPY_EFFECT_RAISES = 1 << 1,  /* may raise on data */
    UNCOPY_EFFECT_RANDOM =
        1 << 2, /* uses random numbers, prints, or keeps state: order among these is kept */
    UNCOPY_EFFECT_LAYOUT =
        1 << 3,                 /* result bits or strides depend on the layouts of its operands */
    UNCOPY_EFFECT_OUT = 1 << 4, /* has a true out form: can write its one result where it is told,
                                   allocating nothing */
    UNCOPY_EFFECT_THREADS = 1 << 5, /* opens threads of the host's own */
    UNCOPY_EFFECT_OUT_LAYOUT =
        1 << 6, /* its out form takes any strides of the result without an inner copy */
};

/* One operation. name is a row of docs/operations.md or "extern". All pointers are borrowed for the
 * call. */
typedef struct uncopy_operation {
    const char *name;
    const uncopy_operand_t *reads;
    size_t num_reads;
    const uncopy_view_t
        *writes; /* bytes that exist before the operation, or a scratch or fresh storage it fills */
    size_t num_writes;
    const uncopy_view_t
        *returns; /* extern only: results the host makes; the storage of each comes to be here, or
                     is that of an operand when the result is an alias */
    size_t num_returns;
    const uncopy_attribute_t *attributes;
    size_t num_attributes;
    uncopy_group_t group; /* collectives; else UNCOPY_NONE */
    const char *target;   /* the host's name of it, as "aten.mm.default"; NULL for none */
    unsigned effects; /* UNCOPY_EFFECT_..., of an extern; UNCOPY_EFFECT_OUT and _OUT_LAYOUT also of
                         other rows, for runs on the host's kernels alone */
    int64_t host_id;  /* handed to the host's call; negative for none */
    const char *file; /* source line; NULL for none */
    int line;
} uncopy_operation_t;

/* Where the bytes of a storage come from. */
typedef enum uncopy_storage_kind {
    UNCOPY_STORAGE_SCRATCH = 0, /* nobody sees it after the run */
    UNCOPY_STORAGE_FRESH = 1,   /* a new result of each run */
} uncopy_storage_kind_t;

typedef enum uncopy_expression_kind {
    UNCOPY_EXPRESSION_ADD = 0,
    UNCOPY_EXPRESSION_SUBTRACT = 1,
    UNCOPY_EXPRESSION_MULTIPLY = 2,
    UNCOPY_EXPRESSION_FLOOR_DIVIDE = 3, /* rounds towards minus infinity */
    UNCOPY_EXPRESSION_MODULO = 4,       /* has the sign of the divisor */
    UNCOPY_EXPRESSION_MINIMUM = 5,
    UNCOPY_EXPRESSION_MAXIMUM = 6,
} uncopy_expression_kind_t;

/* What of an argument a symbol stands for. */
typedef enum uncopy_symbol_kind {
    UNCOPY_SYMBOL_SIZE = 0,   /* a size */
    UNCOPY_SYMBOL_STRIDE = 1, /* a stride, in elements */
    UNCOPY_SYMBOL_VALUE = 2,  /* the integer that the argument, an i64 without dims, holds when the
                                 call begins; it may be below zero */
} uncopy_symbol_kind_t;

/* Creates an empty program named name. Errors: UNCOPY_ERROR_MEMORY, UNCOPY_ERROR_ARGUMENT. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_program_create(uncopy_context_t *context,
                                                                   const char *name,
                                                                   uncopy_program_t **out_program);

/* Parses length bytes of text. Errors: UNCOPY_ERROR_PARSE with the line, UNCOPY_ERROR_PROGRAM,
 * UNCOPY_ERROR_MEMORY. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_program_parse(uncopy_context_t *context,
                                                                  const char *text, size_t length,
                                                                  uncopy_program_t **out_program);

UNCOPY_API void uncopy_program_retain(uncopy_program_t *program);
/* NULL is allowed. */
UNCOPY_API void uncopy_program_release(uncopy_program_t *program);

/* Names must be letters, digits and underscores, not starting with a digit, unique in the program;
 * NULL makes one up. */

/* Adds the next argument. Sizes may hold symbols (uncopy_program_add_symbol). */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t
uncopy_program_add_argument(uncopy_program_t *program, const char *name,
                            const uncopy_layout_t *layout, uncopy_view_t *out_view);

/* Adds a storage just large enough for layout; *out_view is the view of that layout at its start.
 */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t
uncopy_program_add_storage(uncopy_program_t *program, const char *name, uncopy_storage_kind_t kind,
                           const uncopy_layout_t *layout, uncopy_view_t *out_view);

/* Adds a constant whose size_bytes bytes (exactly those of layout, which is row-major) are copied.
 */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_program_add_constant(
    uncopy_program_t *program, const char *name, const uncopy_layout_t *layout, const void *bytes,
    size_t size_bytes, uncopy_view_t *out_view);

/* Adds a view of the storage that view `of` belongs to. offset_bytes counts from the storage's
 * start if is_from_storage is not 0 (for an argument: the start of the caller's storage object,
 * known at each call), else from where the storage's first view starts (for an argument: its data
 * pointer). */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_program_add_view(
    uncopy_program_t *program, const char *name, uncopy_view_t of, const uncopy_layout_t *layout,
    uncopy_dim_t offset_bytes, int is_from_storage, uncopy_view_t *out_view);

/* Adds a symbol that stands for size or stride number dim of the argument with number argument (in
 * order of adding, the next one to be added allowed), or for its value (dim is 0 then). */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t
uncopy_program_add_symbol(uncopy_program_t *program, const char *name, uint32_t argument,
                          uncopy_symbol_kind_t kind, int32_t dim, uncopy_dim_t *out_dim);

UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t
uncopy_program_add_expression(uncopy_program_t *program, uncopy_expression_kind_t kind,
                              uncopy_dim_t a, uncopy_dim_t b, uncopy_dim_t *out_dim);

/* Adds a group of ranks: token names it in text, name is what the host resolves, rank is this
 * process's. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_program_add_group(uncopy_program_t *program,
                                                                      const char *token,
                                                                      const char *name,
                                                                      int32_t size, int32_t rank,
                                                                      uncopy_group_t *out_group);

/* Appends an operation. Errors: UNCOPY_ERROR_PROGRAM (names the operation, its line and what does
 * not fit), UNCOPY_ERROR_ARGUMENT (no such view), UNCOPY_ERROR_MEMORY; on error nothing is added.
 */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t
uncopy_program_add_operation(uncopy_program_t *program, const uncopy_operation_t *operation);

/* Appends an output. A view of a scratch storage makes that storage fresh. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_program_add_output(uncopy_program_t *program,
                                                                       uncopy_view_t view);

/* Appends a number that each plan knows (uncopy_plan_number): what a host passes to its operations
 * or returns beside tensors. *out_number counts from 0. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_program_add_number(uncopy_program_t *program,
                                                                       uncopy_dim_t dim,
                                                                       size_t *out_number);

/* For planning without a call: the first byte of argument a lies offset_bytes after that of
 * argument b. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_program_assume(uncopy_program_t *program,
                                                                   uncopy_view_t a, uncopy_view_t b,
                                                                   int64_t offset_bytes);

/* Checks the whole program as planning does. Errors: UNCOPY_ERROR_PROGRAM. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_program_verify(const uncopy_program_t *program);

/* The program in the text language; uncopy_text_release when done. Parsing it gives an equal
 * program. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_program_print(const uncopy_program_t *program,
                                                                  char **out_text);

UNCOPY_API size_t uncopy_program_num_arguments(const uncopy_program_t *program);
UNCOPY_API size_t uncopy_program_num_outputs(const uncopy_program_t *program);
UNCOPY_API size_t uncopy_program_num_numbers(const uncopy_program_t *program);

/* The row that serves an operation of aten by its base name ("add"), NULL for none: then it is an
 * extern. */
UNCOPY_API const char *uncopy_operation_find(const char *aten_base_name);

/* Whether a row takes these dtypes of its view operands, and this one of its result. 0 for an
 * unknown row. */
UNCOPY_API int uncopy_operation_accepts(const char *name, const uncopy_dtype_t *reads,
                                        size_t num_reads, uncopy_dtype_t result);

/* Number of operands that a row reads, -1 for any number, -2 for an unknown row. */
UNCOPY_API int uncopy_operation_num_reads(const char *name);

/* Names and defaults of a row's attributes as "alpha=1", NULL for an unknown row. Static storage.
 */
UNCOPY_API const char *uncopy_operation_attributes(const char *name);

#ifdef __cplusplus
}
#endif

#endif
