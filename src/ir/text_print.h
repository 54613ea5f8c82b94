/* How the printer writes sizes, strides and offsets. Used inside this room only.
 *
 * Expressions are printed inline, as trees. Trees beyond a bound, which shared parts can make very
 * large, are cut: their roots get `dim` lines and are printed by name. */
#ifndef IR_TEXT_PRINT_H
#define IR_TEXT_PRINT_H

#include "base/memory.h"
#include "ir/program.h"

/* What the printer knows of one expression. */
typedef struct print_expression {
    bool is_used;
    bool is_named;       /* too large to be inline */
    bool is_known;       /* its name, or the symbol's, stands in the text already */
    uint32_t number;     /* of the name, in order of printing */
    int32_t size, depth; /* of its tree, named parts counted as leaves */
} print_expression_t;

typedef struct printer {
    const ir_program_t *program;
    text_t *text;
    arena_t arena;
    print_expression_t *expressions;
    uint32_t num_named;
    uint32_t *symbol_order; /* symbols in the order in which the text introduces them */
    size_t num_ordered;
} printer_t;

UNCOPY_MUST_CHECK uncopy_status_t print_init(printer_t *printer, const ir_program_t *program,
                                             text_t *text);
void print_release(printer_t *printer);

/* Lines that must stand before the view's own: symbols that it does not introduce, and `dim`s. */
void print_needed_dims(printer_t *printer, const ir_view_t *view);
/* Symbols whose argument is not there. */
void print_remaining_symbols(printer_t *printer);
/* `number` lines, after those of all symbols, and the `dim`s that they need. */
void print_numbers(printer_t *printer);
/* dtype[sizes](strides), strides only where they are not row-major. */
void print_layout(printer_t *printer, const ir_view_t *view);
void print_dim(printer_t *printer, uncopy_dim_t dim);

#endif
