/* Operation lines:
 *
 *   NAME [operands] [-> views] {clause} ["@" FILE:LINE]
 *   fence VIEW      order VIEW after VIEW      extern ["target"] {clause}
 *   clause = reads ... | writes ... | returns ... | group NAME | target "..." | effects word...
 *          | id N | ATTRIBUTE=number */
#include <string.h>

#include "base/ops.h"
#include "base/status.h"
#include "ir/text_number.h"
#include "ir/text_parse.h"
#include "ir/text_words.h"

/* ---- operands ---- */

/* A number with its sign taken before. */
static uncopy_status_t parse_number(parser_t *parser, bool is_negative, uncopy_operand_t *out)
{
    const token_t *token = &parser->lexer.token;
    uncopy_operand_t operand = {.view = UNCOPY_NONE};
    if (token->kind == TOKEN_NUMBER &&
        number_parse_integer(token->start, token->length, is_negative, &operand.integer)) {
        operand.is_integer = 1;
        operand.number = (double)operand.integer;
    } else if (token->kind == TOKEN_END || token->kind == TOKEN_QUOTED ||
               !number_parse(token->start, token->length, is_negative, &operand.number)) {
        return parse_fail(parser, "a number");
    }
    *out = operand;
    lexer_next(&parser->lexer);
    return UNCOPY_OK;
}

static uncopy_status_t parse_operand(parser_t *parser, uncopy_operand_t *out)
{
    if (parser->lexer.token.kind == TOKEN_NUMBER) {
        return parse_number(parser, false, out);
    }
    if (lexer_is(&parser->lexer, "-") || lexer_is(&parser->lexer, "+")) {
        bool is_negative = lexer_is(&parser->lexer, "-");
        lexer_next(&parser->lexer);
        return parse_number(parser, is_negative, out);
    }
    *out = (uncopy_operand_t){0};
    return parse_view(parser, &out->view);
}

static uncopy_status_t parse_reads(parser_t *parser, uncopy_operation_t *operation)
{
    do {
        uncopy_operand_t operand;
        TRY(parse_operand(parser, &operand));
        ARENA_PUSH(&parser->scratch, parser->reads, operation->num_reads, parser->reads_capacity,
                   operand);
        operation->reads = parser->reads;
    } while (parse_take(parser, ","));
    return UNCOPY_OK;
}

static uncopy_status_t parse_writes(parser_t *parser, uncopy_operation_t *operation)
{
    do {
        uncopy_view_t view = 0;
        TRY(parse_view(parser, &view));
        ARENA_PUSH(&parser->scratch, parser->writes, operation->num_writes, parser->writes_capacity,
                   view);
        operation->writes = parser->writes;
    } while (parse_take(parser, ","));
    return UNCOPY_OK;
}

static uncopy_status_t parse_returns(parser_t *parser, uncopy_operation_t *operation)
{
    do {
        uncopy_view_t view = 0;
        TRY(parse_view(parser, &view));
        ARENA_PUSH(&parser->scratch, parser->returns, operation->num_returns,
                   parser->returns_capacity, view);
        operation->returns = parser->returns;
    } while (parse_take(parser, ","));
    return UNCOPY_OK;
}

/* ---- clauses: the current token follows the clause's word ---- */

static uncopy_status_t parse_group_clause(parser_t *parser, uncopy_operation_t *operation)
{
    for (size_t g = 0; g < parser->program->num_groups; g++) {
        if (parse_take(parser, parser->program->groups[g].token)) {
            operation->group = (uncopy_group_t)g;
            return UNCOPY_OK;
        }
    }
    return parse_fail(parser, "the name of a group declared above");
}

static uncopy_status_t parse_effects(parser_t *parser, uncopy_operation_t *operation)
{
    unsigned before = operation->effects;
    for (size_t i = 0; i < WORDS_NUM_EFFECTS; i++) {
        if (parse_take(parser, words_effects[i].word)) {
            operation->effects |= words_effects[i].bit;
            i = SIZE_MAX; /* the next word may be any again */
        }
    }
    return operation->effects != before ? UNCOPY_OK : parse_fail(parser, "the name of an effect");
}

static uncopy_status_t parse_target(parser_t *parser, uncopy_operation_t *operation)
{
    return parse_quoted(parser, "the host's name of the operation, quoted", &operation->target);
}

static uncopy_status_t parse_id(parser_t *parser, uncopy_operation_t *operation)
{
    return parse_integer(parser, false, &operation->host_id);
}

static uncopy_status_t parse_attribute(parser_t *parser, uncopy_operation_t *operation)
{
    uncopy_attribute_t attribute = {0};
    uncopy_operand_t number = {0};
    TRY(parse_name(parser, "'->', a clause, an attribute, or '@'", &attribute.name));
    TRY(parse_word(parser, "="));
    bool is_negative = lexer_is(&parser->lexer, "-");
    if (is_negative || lexer_is(&parser->lexer, "+")) {
        lexer_next(&parser->lexer);
    }
    TRY(parse_number(parser, is_negative, &number));
    attribute.value = number.number;
    ARENA_PUSH(&parser->scratch, parser->attributes, operation->num_attributes,
               parser->attributes_capacity, attribute);
    operation->attributes = parser->attributes;
    return UNCOPY_OK;
}

typedef struct clause {
    const char *word;
    uncopy_status_t (*parse)(parser_t *parser, uncopy_operation_t *operation);
} clause_t;

static const clause_t clauses[] = {
    {"reads", parse_reads},     {"writes", parse_writes},
    {"returns", parse_returns}, {"group", parse_group_clause},
    {"effects", parse_effects}, {"target", parse_target},
    {"id", parse_id},
};

static uncopy_status_t parse_clause(parser_t *parser, uncopy_operation_t *operation)
{
    for (size_t i = 0; i < sizeof(clauses) / sizeof(clauses[0]); i++) {
        if (parse_take(parser, clauses[i].word)) {
            return clauses[i].parse(parser, operation);
        }
    }
    return parse_attribute(parser, operation);
}

/* With the current token "@". */
static uncopy_status_t parse_source(parser_t *parser, uncopy_operation_t *operation)
{
    lexer_next_file(&parser->lexer);
    if (parser->lexer.token.kind == TOKEN_QUOTED) {
        TRY(parse_quoted(parser, "a file name", &operation->file));
    } else {
        TRY(parse_name(parser, "a file name", &operation->file));
    }
    TRY(parse_word(parser, ":"));
    int32_t line = 0;
    TRY(parse_int32(parser, &line));
    operation->line = line;
    return UNCOPY_OK;
}

/* ---- operations ---- */

/* Operands and results of a row, in the form that its class has. */
static uncopy_status_t parse_positional(parser_t *parser, opcode_t opcode,
                                        uncopy_operation_t *operation)
{
    const token_t *token = &parser->lexer.token;
    if (opcode == OPCODE_EXTERN) {
        return token->kind == TOKEN_QUOTED ? parse_target(parser, operation) : UNCOPY_OK;
    }
    if (opcode == OPCODE_FENCE) {
        return parse_writes(parser, operation);
    }
    if (token->kind != TOKEN_END && !lexer_is(&parser->lexer, "->")) {
        TRY(parse_reads(parser, operation));
    }
    if (opcode == OPCODE_ORDER) {
        TRY(parse_word(parser, "after"));
        return parse_reads(parser, operation);
    }
    return parse_take(parser, "->") ? parse_writes(parser, operation) : UNCOPY_OK;
}

uncopy_status_t parse_operation(parser_t *parser)
{
    const token_t *token = &parser->lexer.token;
    opcode_t opcode = OPCODE_EXTERN;
    if (token->kind != TOKEN_NAME || !op_find(token->start, token->length, &opcode)) {
        return parse_fail(parser, "a declaration or an operation (docs/text-language.md)");
    }
    uncopy_operation_t operation = {
        .name = op_row(opcode)->name, .group = UNCOPY_NONE, .host_id = -1};
    lexer_next(&parser->lexer);
    TRY(parse_positional(parser, opcode, &operation));
    while (parser->lexer.token.kind == TOKEN_NAME) {
        TRY(parse_clause(parser, &operation));
    }
    if (lexer_is(&parser->lexer, "@")) {
        TRY(parse_source(parser, &operation));
    }
    return parse_pass(parser, ir_add_operation(parser->program, &operation));
}
