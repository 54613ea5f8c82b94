#include <string.h>

#include "base/checked.h"
#include "ir/text_print.h"

enum {
    INLINE_SIZE_LIMIT = 48,  /* nodes of an expression within a line */
    INLINE_DEPTH_LIMIT = 24, /* below PARSE_DEPTH_LIMIT with room for parentheses */
    EQUAL_STEPS_LIMIT = 1000,
};

static bool is_expression(uncopy_dim_t dim)
{
    return dim < 0;
}

static size_t expression_number(uncopy_dim_t dim)
{
    return (size_t)(-(dim + 1));
}

/* ---- row-major strides, as the builder makes them ---- */

/* Whether two dims are the same expression, by structure. Gives up, with no, after a bound. */
static bool dims_equal(const ir_program_t *program, uncopy_dim_t a, uncopy_dim_t b, int *steps)
{
    if (a == b) {
        return true;
    }
    if (!is_expression(a) || !is_expression(b) || ++*steps > EQUAL_STEPS_LIMIT) {
        return false;
    }
    const ir_expression_t *left = &program->expressions[expression_number(a)];
    const ir_expression_t *right = &program->expressions[expression_number(b)];
    if (left->is_symbol || right->is_symbol) {
        return left->is_symbol && right->is_symbol && left->symbol == right->symbol;
    }
    return left->kind == right->kind && dims_equal(program, left->a, right->a, steps) &&
           dims_equal(program, left->b, right->b, steps);
}

/* Whether stride is inner * max(size, 1) in the form that the builder gives it. */
static bool is_next_stride(const ir_program_t *program, uncopy_dim_t stride, uncopy_dim_t inner,
                           uncopy_dim_t size)
{
    int steps = 0;
    if (!is_expression(inner) && !is_expression(size)) {
        int64_t product = 0;
        return checked_multiply(inner, size > 1 ? size : 1, &product) && stride == product;
    }
    if (!is_expression(stride)) {
        return false;
    }
    const ir_expression_t *product = &program->expressions[expression_number(stride)];
    if (product->is_symbol || product->kind != UNCOPY_EXPRESSION_MULTIPLY ||
        !is_expression(product->b) || !dims_equal(program, product->a, inner, &steps)) {
        return false;
    }
    const ir_expression_t *least = &program->expressions[expression_number(product->b)];
    return !least->is_symbol && least->kind == UNCOPY_EXPRESSION_MAXIMUM && least->b == 1 &&
           dims_equal(program, least->a, size, &steps);
}

static bool is_row_major(const ir_program_t *program, const ir_view_t *view)
{
    for (int32_t d = view->rank - 1; d >= 0; d--) {
        bool is_last = d == view->rank - 1;
        if (is_last ? view->strides[d] != 1
                    : !is_next_stride(program, view->strides[d], view->strides[d + 1],
                                      view->sizes[d + 1])) {
            return false;
        }
    }
    return true;
}

/* ---- which expressions are printed, and which by name ---- */

static void use_dim(printer_t *printer, uncopy_dim_t dim)
{
    if (is_expression(dim)) {
        printer->expressions[expression_number(dim)].is_used = true;
    }
}

static void use_view(printer_t *printer, const ir_view_t *view)
{
    bool has_strides = !is_row_major(printer->program, view);
    use_dim(printer, view->offset_bytes);
    for (int32_t d = 0; d < view->rank; d++) {
        use_dim(printer, view->sizes[d]);
        if (has_strides) {
            use_dim(printer, view->strides[d]);
        }
    }
}

static const print_expression_t *part(const printer_t *printer, uncopy_dim_t dim)
{
    static const print_expression_t leaf = {.size = 1, .depth = 1};
    const print_expression_t *known =
        is_expression(dim) ? &printer->expressions[expression_number(dim)] : &leaf;
    return known->is_named ? &leaf : known;
}

static void measure(printer_t *printer, size_t e)
{
    const ir_expression_t *expression = &printer->program->expressions[e];
    print_expression_t *known = &printer->expressions[e];
    known->size = 1;
    known->depth = 1;
    if (!expression->is_symbol) {
        const print_expression_t *a = part(printer, expression->a);
        const print_expression_t *b = part(printer, expression->b);
        known->size = 1 + a->size + b->size;
        known->depth = 1 + (a->depth > b->depth ? a->depth : b->depth);
    }
    known->is_named = known->size > INLINE_SIZE_LIMIT || known->depth > INLINE_DEPTH_LIMIT;
}

uncopy_status_t print_init(printer_t *printer, const ir_program_t *program, text_t *text)
{
    *printer = (printer_t){.program = program, .text = text};
    arena_init(&printer->arena, text->allocator);
    printer->expressions =
        arena_allocate(&printer->arena, program->num_expressions, sizeof(*printer->expressions));
    printer->symbol_order =
        arena_allocate(&printer->arena, program->num_symbols, sizeof(*printer->symbol_order));
    if (printer->expressions == NULL || printer->symbol_order == NULL) {
        print_release(printer);
        return UNCOPY_ERROR_MEMORY;
    }
    for (size_t v = 0; v < program->num_views; v++) {
        use_view(printer, &program->views[v]);
    }
    for (size_t n = 0; n < program->num_numbers; n++) {
        use_dim(printer, program->numbers[n]);
    }
    for (size_t e = program->num_expressions; e-- > 0;) {
        const ir_expression_t *expression = &program->expressions[e];
        if (printer->expressions[e].is_used && !expression->is_symbol) {
            use_dim(printer, expression->a);
            use_dim(printer, expression->b);
        }
    }
    for (size_t e = 0; e < program->num_expressions; e++) {
        measure(printer, e);
    }
    return UNCOPY_OK;
}

void print_release(printer_t *printer)
{
    arena_release(&printer->arena);
}

/* ---- printing ---- */

static bool is_symbol_name(const ir_program_t *program, const char *name)
{
    for (size_t s = 0; s < program->num_symbols; s++) {
        if (strcmp(program->symbols[s].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* "e7", with underscores until no symbol has the name. */
static void print_dim_name(printer_t *printer, uint32_t number)
{
    size_t start = printer->text->length;
    text_append(printer->text, "e%u", number);
    while (!printer->text->has_failed &&
           is_symbol_name(printer->program, printer->text->bytes + start)) {
        text_append(printer->text, "_");
    }
}

typedef struct print_form {
    const char *mark; /* between the operands, or before them */
    int precedence;   /* 0: a call */
} print_form_t;

static const print_form_t forms[] = {
    [UNCOPY_EXPRESSION_ADD] = {" + ", 1},      [UNCOPY_EXPRESSION_SUBTRACT] = {" - ", 1},
    [UNCOPY_EXPRESSION_MULTIPLY] = {" * ", 2}, [UNCOPY_EXPRESSION_FLOOR_DIVIDE] = {" // ", 2},
    [UNCOPY_EXPRESSION_MODULO] = {" % ", 2},   [UNCOPY_EXPRESSION_MINIMUM] = {"min", 0},
    [UNCOPY_EXPRESSION_MAXIMUM] = {"max", 0},
};

/* Depth is bounded by INLINE_DEPTH_LIMIT. Parentheses are put where the operator around binds as
 * tightly as least says, or tighter. */
static void print_inner(printer_t *printer, uncopy_dim_t dim, int least, bool is_root)
{
    if (!is_expression(dim)) {
        text_append(printer->text, "%lld", (long long)dim);
        return;
    }
    const ir_expression_t *expression = &printer->program->expressions[expression_number(dim)];
    const print_expression_t *known = &printer->expressions[expression_number(dim)];
    if (expression->is_symbol) {
        text_append(printer->text, "%s", printer->program->symbols[expression->symbol].name);
        return;
    }
    if (known->is_named && !is_root) {
        print_dim_name(printer, known->number);
        return;
    }
    const print_form_t *form = &forms[expression->kind];
    bool is_call = form->precedence == 0;
    bool has_parentheses = is_call || form->precedence < least;
    text_append(printer->text, "%s%s", is_call ? form->mark : "", has_parentheses ? "(" : "");
    print_inner(printer, expression->a, form->precedence, false);
    text_append(printer->text, "%s", is_call ? ", " : form->mark);
    print_inner(printer, expression->b, is_call ? 0 : form->precedence + 1, false);
    text_append(printer->text, "%s", has_parentheses ? ")" : "");
}

void print_dim(printer_t *printer, uncopy_dim_t dim)
{
    print_inner(printer, dim, 0, false);
}

static void print_list(printer_t *printer, const uncopy_dim_t *dims, int32_t count)
{
    for (int32_t d = 0; d < count; d++) {
        text_append(printer->text, "%s", d == 0 ? "" : ",");
        print_dim(printer, dims[d]);
    }
}

void print_layout(printer_t *printer, const ir_view_t *view)
{
    text_append(printer->text, "%s[", uncopy_dtype_name(view->dtype));
    print_list(printer, view->sizes, view->rank);
    text_append(printer->text, "]");
    if (!is_row_major(printer->program, view)) {
        text_append(printer->text, "(");
        print_list(printer, view->strides, view->rank);
        text_append(printer->text, ")");
    }
}

/* ---- lines before a view's ---- */

static void introduce_symbol(printer_t *printer, size_t e)
{
    print_expression_t *known = &printer->expressions[e];
    if (!known->is_known) {
        known->is_known = true;
        printer->symbol_order[printer->num_ordered++] = printer->program->expressions[e].symbol;
    }
}

static void print_symbol_line(printer_t *printer, size_t e)
{
    const ir_symbol_t *symbol = &printer->program->symbols[printer->program->expressions[e].symbol];
    if (symbol->kind == UNCOPY_SYMBOL_VALUE) {
        text_append(printer->text, "symbol %s = value of argument %u\n", symbol->name,
                    symbol->argument);
    } else {
        text_append(printer->text, "symbol %s = %s %d of argument %u\n", symbol->name,
                    symbol->kind == UNCOPY_SYMBOL_STRIDE ? "stride" : "size", symbol->dim,
                    symbol->argument);
    }
    introduce_symbol(printer, e);
}

/* Largest number of an expression in the view's line, plus one. */
static size_t expressions_needed(const printer_t *printer, const ir_view_t *view)
{
    bool has_strides = !is_row_major(printer->program, view);
    uncopy_dim_t least = view->offset_bytes;
    for (int32_t d = 0; d < view->rank; d++) {
        least = view->sizes[d] < least ? view->sizes[d] : least;
        least = has_strides && view->strides[d] < least ? view->strides[d] : least;
    }
    return is_expression(least) ? expression_number(least) + 1 : 0;
}

static bool mentions(const printer_t *printer, uncopy_dim_t dim, size_t e)
{
    if (!is_expression(dim) || expression_number(dim) < e) {
        return false;
    }
    const ir_expression_t *expression = &printer->program->expressions[expression_number(dim)];
    bool is_leaf = expression->is_symbol || printer->expressions[expression_number(dim)].is_named;
    return expression_number(dim) == e || (!is_leaf && (mentions(printer, expression->a, e) ||
                                                        mentions(printer, expression->b, e)));
}

/* Whether the first mention of symbol expression e in the argument's line is the very place that
 * the symbol stands for: then the parser takes it for the symbol's introduction. */
static bool is_introduced(const printer_t *printer, const ir_view_t *view, size_t e)
{
    const ir_symbol_t *symbol = &printer->program->symbols[printer->program->expressions[e].symbol];
    bool has_strides = !is_row_major(printer->program, view);
    uncopy_dim_t dim = -(uncopy_dim_t)e - 1;
    for (int32_t list = 0; list < (has_strides ? 2 : 1); list++) {
        const uncopy_dim_t *dims = list == 0 ? view->sizes : view->strides;
        for (int32_t d = 0; d < view->rank; d++) {
            if (dims[d] == dim) {
                return symbol->kind == (list == 1 ? UNCOPY_SYMBOL_STRIDE : UNCOPY_SYMBOL_SIZE) &&
                       symbol->dim == d;
            }
            if (mentions(printer, dims[d], e)) {
                return false;
            }
        }
    }
    return false;
}

/* The number of the argument that the view is first of, UNCOPY_NONE for another view. */
static uint32_t argument_declared(const printer_t *printer, const ir_view_t *view)
{
    const ir_storage_t *storage = &printer->program->storages[view->storage];
    bool is_first = &printer->program->views[storage->first_view] == view;
    return is_first && storage->kind == IR_STORAGE_ARGUMENT ? view->storage : UNCOPY_NONE;
}

static bool needs_dim_line(const printer_t *printer, size_t e)
{
    const print_expression_t *known = &printer->expressions[e];
    return known->is_used && known->is_named && !known->is_known;
}

static void print_dim_line(printer_t *printer, size_t e)
{
    print_expression_t *known = &printer->expressions[e];
    known->number = printer->num_named++;
    known->is_known = true;
    text_append(printer->text, "dim ");
    print_dim_name(printer, known->number);
    text_append(printer->text, " = ");
    print_inner(printer, -(uncopy_dim_t)e - 1, 0, true);
    text_append(printer->text, "\n");
}

static void print_symbols_of(printer_t *printer, const ir_view_t *view, bool has_dim_lines)
{
    const ir_program_t *program = printer->program;
    uint32_t argument = argument_declared(printer, view);
    for (size_t e = 0; argument != UNCOPY_NONE && e < program->num_expressions; e++) {
        const ir_expression_t *expression = &program->expressions[e];
        if (expression->is_symbol && !printer->expressions[e].is_known &&
            program->symbols[expression->symbol].argument == argument &&
            (has_dim_lines || !is_introduced(printer, view, e))) {
            print_symbol_line(printer, e);
        }
    }
}

/* Symbols that the argument's own line introduces, in its order. */
static void introduce_symbols_of(printer_t *printer, const ir_view_t *view)
{
    for (int32_t i = 0; i < 2 * view->rank; i++) {
        uncopy_dim_t dim = i < view->rank ? view->sizes[i] : view->strides[i - view->rank];
        if (is_expression(dim) && printer->program->expressions[expression_number(dim)].is_symbol) {
            introduce_symbol(printer, expression_number(dim));
        }
    }
}

void print_needed_dims(printer_t *printer, const ir_view_t *view)
{
    size_t needed = expressions_needed(printer, view);
    bool has_dim_lines = false;
    for (size_t e = 0; e < needed; e++) {
        has_dim_lines = has_dim_lines || needs_dim_line(printer, e);
    }
    print_symbols_of(printer, view, has_dim_lines);
    for (size_t e = 0; has_dim_lines && e < needed; e++) {
        if (needs_dim_line(printer, e)) {
            print_dim_line(printer, e);
        }
    }
    if (argument_declared(printer, view) != UNCOPY_NONE) {
        introduce_symbols_of(printer, view);
    }
}

void print_remaining_symbols(printer_t *printer)
{
    for (size_t e = 0; e < printer->program->num_expressions; e++) {
        if (printer->program->expressions[e].is_symbol && !printer->expressions[e].is_known) {
            print_symbol_line(printer, e);
        }
    }
}

void print_numbers(printer_t *printer)
{
    const ir_program_t *program = printer->program;
    for (size_t e = 0; program->num_numbers > 0 && e < program->num_expressions; e++) {
        if (needs_dim_line(printer, e)) {
            print_dim_line(printer, e);
        }
    }
    for (size_t n = 0; n < program->num_numbers; n++) {
        text_append(printer->text, "number ");
        print_dim(printer, program->numbers[n]);
        text_append(printer->text, "\n");
    }
}
