/* Sizes, strides and offsets: expressions by precedence, symbols and names for expressions.
 *
 *   sum     = product { ("+" | "-") product }
 *   product = factor { ("*" | "//" | "%") factor }
 *   factor  = integer | name | "-" factor | "(" sum ")" | ("min" | "max") "(" sum "," sum ")" */
#include <string.h>

#include "base/status.h"
#include "ir/text_parse.h"

typedef struct binary {
    const char *mark;
    uncopy_expression_kind_t kind;
} binary_t;

static const binary_t sums[] = {{"+", UNCOPY_EXPRESSION_ADD}, {"-", UNCOPY_EXPRESSION_SUBTRACT}};
static const binary_t products[] = {{"*", UNCOPY_EXPRESSION_MULTIPLY},
                                    {"//", UNCOPY_EXPRESSION_FLOOR_DIVIDE},
                                    {"%", UNCOPY_EXPRESSION_MODULO}};
static const binary_t calls[] = {{"min", UNCOPY_EXPRESSION_MINIMUM},
                                 {"max", UNCOPY_EXPRESSION_MAXIMUM}};

static uncopy_status_t parse_sum(parser_t *parser, int depth, uncopy_dim_t *out_dim);

/* The entry of table that the current token names, taken; NULL for none. */
static const binary_t *take_binary(parser_t *parser, const binary_t *table, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (parse_take(parser, table[i].mark)) {
            return &table[i];
        }
    }
    return NULL;
}

static uncopy_status_t combine(parser_t *parser, uncopy_expression_kind_t kind, uncopy_dim_t a,
                               uncopy_dim_t b, uncopy_dim_t *out_dim)
{
    return parse_pass(parser, ir_add_expression(parser->program, kind, a, b, out_dim));
}

static bool is_token(const token_t *token, const char *name)
{
    return strlen(name) == token->length && memcmp(name, token->start, token->length) == 0;
}

/* The dim that a name stands for: a symbol's, or that of a `dim` line. */
static bool find_dim(const parser_t *parser, const token_t *token, uncopy_dim_t *out_dim)
{
    for (size_t i = 0; i < parser->num_dims; i++) {
        if (is_token(token, parser->dims[i].name)) {
            *out_dim = parser->dims[i].dim;
            return true;
        }
    }
    return false;
}

static bool opens_call(const parser_t *parser)
{
    lexer_t ahead = parser->lexer;
    if (!lexer_is(&ahead, "min") && !lexer_is(&ahead, "max")) {
        return false;
    }
    lexer_next(&ahead);
    return lexer_is(&ahead, "(");
}

static uncopy_status_t parse_call(parser_t *parser, int depth, uncopy_dim_t *out_dim)
{
    uncopy_dim_t a = 0;
    uncopy_dim_t b = 0;
    const binary_t *call = take_binary(parser, calls, sizeof(calls) / sizeof(calls[0]));
    TRY(parse_word(parser, "("));
    TRY(parse_sum(parser, depth, &a));
    TRY(parse_word(parser, ","));
    TRY(parse_sum(parser, depth, &b));
    TRY(parse_word(parser, ")"));
    return combine(parser, call->kind, a, b, out_dim);
}

static uncopy_status_t parse_factor(parser_t *parser, int depth, uncopy_dim_t *out_dim)
{
    if (depth > PARSE_DEPTH_LIMIT) {
        return parse_fail(parser, "an expression nested less deeply");
    }
    if (parse_take(parser, "-")) {
        uncopy_dim_t operand = 0;
        TRY(parse_factor(parser, depth + 1, &operand));
        return combine(parser, UNCOPY_EXPRESSION_SUBTRACT, 0, operand, out_dim);
    }
    if (parse_take(parser, "(")) {
        TRY(parse_sum(parser, depth + 1, out_dim));
        return parse_word(parser, ")");
    }
    if (opens_call(parser)) {
        return parse_call(parser, depth + 1, out_dim);
    }
    if (parser->lexer.token.kind == TOKEN_NUMBER) {
        return parse_integer(parser, false, out_dim);
    }
    if (parser->lexer.token.kind != TOKEN_NAME ||
        !find_dim(parser, &parser->lexer.token, out_dim)) {
        return parse_fail(parser, "an integer, a symbol, '-', '(', 'min(' or 'max('");
    }
    lexer_next(&parser->lexer);
    return UNCOPY_OK;
}

static uncopy_status_t parse_product(parser_t *parser, int depth, uncopy_dim_t *out_dim)
{
    TRY(parse_factor(parser, depth, out_dim));
    for (;;) {
        const binary_t *binary =
            take_binary(parser, products, sizeof(products) / sizeof(products[0]));
        if (binary == NULL) {
            return UNCOPY_OK;
        }
        uncopy_dim_t right = 0;
        TRY(parse_factor(parser, depth, &right));
        TRY(combine(parser, binary->kind, *out_dim, right, out_dim));
    }
}

static uncopy_status_t parse_sum(parser_t *parser, int depth, uncopy_dim_t *out_dim)
{
    TRY(parse_product(parser, depth, out_dim));
    for (;;) {
        const binary_t *binary = take_binary(parser, sums, sizeof(sums) / sizeof(sums[0]));
        if (binary == NULL) {
            return UNCOPY_OK;
        }
        uncopy_dim_t right = 0;
        TRY(parse_product(parser, depth, &right));
        TRY(combine(parser, binary->kind, *out_dim, right, out_dim));
    }
}

uncopy_status_t parse_expression(parser_t *parser, uncopy_dim_t *out_dim)
{
    return parse_sum(parser, 0, out_dim);
}

/* ---- names for expressions ---- */

static uncopy_status_t name_dim(parser_t *parser, const char *name, uncopy_dim_t dim)
{
    ARENA_PUSH(&parser->scratch, parser->dims, parser->num_dims, parser->dims_capacity,
               (parse_dim_t){name, dim});
    return UNCOPY_OK;
}

static uncopy_status_t parse_new_dim_name(parser_t *parser, const char **out_name)
{
    uncopy_dim_t dim = 0;
    if (parser->lexer.token.kind == TOKEN_NAME && find_dim(parser, &parser->lexer.token, &dim)) {
        return parse_fail(parser, "a name that no symbol or dim has");
    }
    return parse_name(parser, "the name of a symbol or dim", out_name);
}

uncopy_status_t parse_dim_line(parser_t *parser)
{
    const char *name = NULL;
    uncopy_dim_t dim = 0;
    TRY(parse_new_dim_name(parser, &name));
    TRY(parse_word(parser, "="));
    TRY(parse_expression(parser, &dim));
    return name_dim(parser, name, dim);
}

static uncopy_status_t add_symbol(parser_t *parser, const char *name, uint32_t argument,
                                  uncopy_symbol_kind_t kind, int32_t dim, uncopy_dim_t *out_dim)
{
    TRY(parse_pass(parser, ir_add_symbol(parser->program, name, argument, kind, dim, out_dim)));
    return name_dim(parser, name, *out_dim);
}

uncopy_status_t parse_number_line(parser_t *parser)
{
    uncopy_dim_t dim = 0;
    size_t number = 0;
    TRY(parse_expression(parser, &dim));
    return parse_pass(parser, ir_add_number(parser->program, dim, &number));
}

uncopy_status_t parse_symbol_line(parser_t *parser)
{
    const char *name = NULL;
    int32_t dim = 0;
    int64_t argument = 0;
    uncopy_dim_t symbol = 0;
    TRY(parse_new_dim_name(parser, &name));
    TRY(parse_word(parser, "="));
    uncopy_symbol_kind_t kind = UNCOPY_SYMBOL_SIZE;
    if (parse_take(parser, "value")) {
        kind = UNCOPY_SYMBOL_VALUE;
    } else {
        kind = parse_take(parser, "stride") ? UNCOPY_SYMBOL_STRIDE : UNCOPY_SYMBOL_SIZE;
        if (kind == UNCOPY_SYMBOL_SIZE) {
            TRY(parse_word(parser, "size"));
        }
        TRY(parse_int32(parser, &dim));
    }
    TRY(parse_word(parser, "of"));
    TRY(parse_word(parser, "argument"));
    TRY(parse_integer(parser, false, &argument));
    uint32_t number = argument < UNCOPY_NONE ? (uint32_t)argument : UNCOPY_NONE;
    return add_symbol(parser, name, number, kind, dim, &symbol);
}

/* ---- layouts ---- */

/* Whether the current token alone is one entry of a list that `close` ends, and an unknown name. */
static bool introduces_symbol(const parser_t *parser, const char *close)
{
    uncopy_dim_t dim = 0;
    lexer_t ahead = parser->lexer;
    if (ahead.token.kind != TOKEN_NAME || find_dim(parser, &ahead.token, &dim)) {
        return false;
    }
    lexer_next(&ahead);
    return lexer_is(&ahead, ",") || lexer_is(&ahead, close);
}

/* The entries up to `close` (taken). argument as in parse_layout. */
static uncopy_status_t parse_dims(parser_t *parser, const char *close, uint32_t argument,
                                  bool is_stride, uncopy_dim_t *dims, int32_t *out_count)
{
    int32_t count = 0;
    if (parse_take(parser, close)) {
        *out_count = 0;
        return UNCOPY_OK;
    }
    do {
        if (count == SPAN_MAX_RANK) {
            return parse_fail(parser, "at most 12 dims");
        }
        if (argument != UNCOPY_NONE && introduces_symbol(parser, close)) {
            const char *name = NULL;
            TRY(parse_name(parser, "a symbol", &name));
            TRY(add_symbol(parser, name, argument,
                           is_stride ? UNCOPY_SYMBOL_STRIDE : UNCOPY_SYMBOL_SIZE, count,
                           &dims[count]));
        } else {
            TRY(parse_expression(parser, &dims[count]));
        }
        count++;
    } while (parse_take(parser, ","));
    TRY(parse_word(parser, close));
    *out_count = count;
    return UNCOPY_OK;
}

uncopy_status_t parse_layout(parser_t *parser, uint32_t argument, parse_layout_t *out_layout)
{
    const token_t *token = &parser->lexer.token;
    uncopy_layout_t *layout = &out_layout->layout;
    int32_t num_strides = 0;
    *out_layout = (parse_layout_t){0};
    if (token->kind != TOKEN_NAME || !dtype_find(token->start, token->length, &layout->dtype)) {
        return parse_fail(parser, "a dtype, as f32");
    }
    lexer_next(&parser->lexer);
    TRY(parse_word(parser, "["));
    TRY(parse_dims(parser, "]", argument, false, out_layout->sizes, &layout->rank));
    layout->sizes = out_layout->sizes;
    if (!lexer_is(&parser->lexer, "(")) {
        return UNCOPY_OK;
    }
    lexer_t before = parser->lexer;
    lexer_next(&parser->lexer);
    TRY(parse_dims(parser, ")", argument, true, out_layout->strides, &num_strides));
    if (num_strides != layout->rank) {
        parser->lexer = before;
        return parse_fail(parser, "as many strides as sizes");
    }
    layout->strides = out_layout->strides;
    return UNCOPY_OK;
}
