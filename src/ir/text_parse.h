/* What the parts of the parser share: its state, the helpers for tokens and failures, and one
 * function for each kind of line. Used inside this room only.
 *
 * Every function that parses leaves the lexer at the token after what it took. All fail with
 * UNCOPY_ERROR_PARSE naming the line, pass UNCOPY_ERROR_MEMORY, and give what the builder refuses
 * with the line before its words. */
#ifndef IR_TEXT_PARSE_H
#define IR_TEXT_PARSE_H

#include "base/memory.h"
#include "ir/program.h"
#include "ir/text_lexer.h"

/* Deepest nesting of an expression. What the printer nests deeper it names by `dim` lines. */
enum { PARSE_DEPTH_LIMIT = 100 };

typedef struct parse_dim {
    const char *name;
    uncopy_dim_t dim;
} parse_dim_t;

typedef struct parser {
    lexer_t lexer;
    ir_program_t *program;
    arena_t scratch; /* names and lists, until the parse ends */
    bool has_program;
    parse_dim_t *dims; /* of `dim` lines */
    size_t num_dims, dims_capacity;
    uncopy_operand_t *reads; /* lists of the operation at hand, reused by the next */
    uncopy_view_t *writes, *returns;
    uncopy_attribute_t *attributes;
    size_t reads_capacity, writes_capacity, returns_capacity, attributes_capacity;
} parser_t;

/* A layout with room for its own numbers. */
typedef struct parse_layout {
    uncopy_layout_t layout; /* strides is NULL where the text has none */
    uncopy_dim_t sizes[SPAN_MAX_RANK], strides[SPAN_MAX_RANK];
} parse_layout_t;

/* Fails: names the line, the current token and what was expected there. */
uncopy_status_t parse_fail(const parser_t *parser, const char *expected);
/* Puts the line before the words of a builder's failure; UNCOPY_OK passes. */
uncopy_status_t parse_pass(const parser_t *parser, uncopy_status_t status);

UNCOPY_MUST_CHECK uncopy_status_t parse_word(parser_t *parser, const char *word);
/* Takes the word if it is the current token. */
bool parse_take(parser_t *parser, const char *word);
UNCOPY_MUST_CHECK uncopy_status_t parse_end(parser_t *parser);
/* A name, copied. expected says what it names. */
UNCOPY_MUST_CHECK uncopy_status_t parse_name(parser_t *parser, const char *expected,
                                             const char **out_name);
UNCOPY_MUST_CHECK uncopy_status_t parse_quoted(parser_t *parser, const char *expected,
                                               const char **out_text);
UNCOPY_MUST_CHECK uncopy_status_t parse_view(parser_t *parser, uncopy_view_t *out_view);
/* A decimal integer, with a sign if may_be_negative. */
UNCOPY_MUST_CHECK uncopy_status_t parse_integer(parser_t *parser, bool may_be_negative,
                                                int64_t *out_value);
UNCOPY_MUST_CHECK uncopy_status_t parse_int32(parser_t *parser, int32_t *out_value);

/* text_parse_layout.c */
UNCOPY_MUST_CHECK uncopy_status_t parse_expression(parser_t *parser, uncopy_dim_t *out_dim);
/* dtype[sizes](strides). argument: number of the argument that unknown names are symbols of,
 * UNCOPY_NONE for none. */
UNCOPY_MUST_CHECK uncopy_status_t parse_layout(parser_t *parser, uint32_t argument,
                                               parse_layout_t *out_layout);
UNCOPY_MUST_CHECK uncopy_status_t parse_dim_line(parser_t *parser);
UNCOPY_MUST_CHECK uncopy_status_t parse_symbol_line(parser_t *parser);
UNCOPY_MUST_CHECK uncopy_status_t parse_number_line(parser_t *parser);

/* text_parse_operation.c: the current token is the operation's name. */
UNCOPY_MUST_CHECK uncopy_status_t parse_operation(parser_t *parser);

#endif
