/* The parser of the text language: one pass over the lines, each handed to the function of its
 * first word. What the text says goes to the builder (ir/program.h) at once, which checks each part
 * alone. Time and memory are linear in the text, apart from the look-up of symbols. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/status.h"
#include "ir/text.h"
#include "ir/text_number.h"
#include "ir/text_parse.h"

/* ---- failures and tokens ---- */

enum { SHOWN_BYTES = 40, MESSAGE_BYTES = 512 };

/* The current token as a person may read it. */
static void show_token(const parser_t *parser, char shown[SHOWN_BYTES + 8])
{
    const token_t *token = &parser->lexer.token;
    if (token->kind == TOKEN_END) {
        (void)snprintf(shown, SHOWN_BYTES + 8, "the end of the line");
        return;
    }
    size_t length = token->length < SHOWN_BYTES ? token->length : SHOWN_BYTES;
    shown[0] = '\'';
    for (size_t i = 0; i < length; i++) {
        char c = token->start[i];
        shown[i + 1] = c >= ' ' && c <= '~' ? c : '?';
    }
    (void)snprintf(shown + 1 + length, 7, "%s'", token->length > length ? "..." : "");
}

uncopy_status_t parse_fail(const parser_t *parser, const char *expected)
{
    char shown[SHOWN_BYTES + 8];
    show_token(parser, shown);
    return status_fail(UNCOPY_ERROR_PARSE, "line %d: found %s, expected %s", parser->lexer.line,
                       shown, expected);
}

uncopy_status_t parse_pass(const parser_t *parser, uncopy_status_t status)
{
    if (status == UNCOPY_OK || status == UNCOPY_ERROR_MEMORY) {
        return status;
    }
    char words[MESSAGE_BYTES];
    (void)snprintf(words, sizeof(words), "%s", uncopy_last_message());
    return status_fail(status == UNCOPY_ERROR_ARGUMENT ? UNCOPY_ERROR_PARSE : status, "line %d: %s",
                       parser->lexer.line, words);
}

bool parse_take(parser_t *parser, const char *word)
{
    if (!lexer_is(&parser->lexer, word)) {
        return false;
    }
    lexer_next(&parser->lexer);
    return true;
}

uncopy_status_t parse_word(parser_t *parser, const char *word)
{
    char expected[64];
    if (parse_take(parser, word)) {
        return UNCOPY_OK;
    }
    (void)snprintf(expected, sizeof(expected), "'%s'", word);
    return parse_fail(parser, expected);
}

uncopy_status_t parse_end(parser_t *parser)
{
    return parser->lexer.token.kind == TOKEN_END ? UNCOPY_OK
                                                 : parse_fail(parser, "the end of the line");
}

uncopy_status_t parse_name(parser_t *parser, const char *expected, const char **out_name)
{
    const token_t *token = &parser->lexer.token;
    if (token->kind != TOKEN_NAME) {
        return parse_fail(parser, expected);
    }
    const char *name = arena_copy_text(&parser->scratch, token->start, token->length);
    if (name == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    *out_name = name;
    lexer_next(&parser->lexer);
    return UNCOPY_OK;
}

uncopy_status_t parse_quoted(parser_t *parser, const char *expected, const char **out_text)
{
    const char *text = NULL;
    TRY(lexer_unquote(&parser->lexer, &parser->scratch, &text));
    if (text == NULL) {
        return parse_fail(parser, expected);
    }
    *out_text = text;
    lexer_next(&parser->lexer);
    return UNCOPY_OK;
}

uncopy_status_t parse_view(parser_t *parser, uncopy_view_t *out_view)
{
    const token_t *token = &parser->lexer.token;
    uncopy_view_t view = UNCOPY_NONE;
    if (token->kind == TOKEN_NAME) {
        view = ir_find_view(parser->program, token->start, token->length);
    }
    if (view == UNCOPY_NONE) {
        return parse_fail(parser, "the name of a view declared above");
    }
    *out_view = view;
    lexer_next(&parser->lexer);
    return UNCOPY_OK;
}

uncopy_status_t parse_integer(parser_t *parser, bool may_be_negative, int64_t *out_value)
{
    bool is_negative = may_be_negative && parse_take(parser, "-");
    const token_t *token = &parser->lexer.token;
    if (token->kind != TOKEN_NUMBER ||
        !number_parse_integer(token->start, token->length, is_negative, out_value)) {
        return parse_fail(parser, "an integer");
    }
    lexer_next(&parser->lexer);
    return UNCOPY_OK;
}

uncopy_status_t parse_int32(parser_t *parser, int32_t *out_value)
{
    lexer_t before = parser->lexer;
    int64_t value = 0;
    TRY(parse_integer(parser, true, &value));
    if (value < INT32_MIN || value > INT32_MAX) {
        parser->lexer = before;
        return parse_fail(parser, "an integer of 32 bits");
    }
    *out_value = (int32_t)value;
    return UNCOPY_OK;
}

/* ---- declarations: the current token follows the line's first word ---- */

static uncopy_status_t parse_argument(parser_t *parser)
{
    const char *name = NULL;
    parse_layout_t layout;
    uncopy_view_t view = 0;
    TRY(parse_name(parser, "the name of an argument", &name));
    TRY(parse_layout(parser, (uint32_t)parser->program->num_arguments, &layout));
    return parse_pass(parser, ir_add_argument(parser->program, name, &layout.layout, &view));
}

static uncopy_status_t parse_storage(parser_t *parser, ir_storage_kind_t kind)
{
    const char *name = NULL;
    parse_layout_t layout;
    uncopy_view_t view = 0;
    TRY(parse_name(parser, "the name of a storage", &name));
    TRY(parse_layout(parser, UNCOPY_NONE, &layout));
    return parse_pass(parser, ir_add_storage(parser->program, name, kind, &layout.layout, &view));
}

static uncopy_status_t parse_scratch(parser_t *parser)
{
    return parse_storage(parser, IR_STORAGE_SCRATCH);
}

static uncopy_status_t parse_fresh(parser_t *parser)
{
    return parse_storage(parser, IR_STORAGE_FRESH);
}

/* One element of a constant, appended to bytes (*length of them). */
static uncopy_status_t parse_element(parser_t *parser, uncopy_dtype_t dtype, unsigned char **bytes,
                                     size_t *length, size_t *capacity)
{
    unsigned char element[16] = {0};
    bool is_negative = parse_take(parser, "-");
    if (!is_negative) {
        (void)parse_take(parser, "+");
    }
    const token_t *token = &parser->lexer.token;
    if ((token->kind != TOKEN_NUMBER && token->kind != TOKEN_NAME) ||
        !number_parse_element(dtype, token->start, token->length, is_negative, element)) {
        return parse_fail(parser, "an element of the constant's dtype");
    }
    for (size_t i = 0; i < uncopy_dtype_size(dtype); i++) {
        ARENA_PUSH(&parser->scratch, *bytes, *length, *capacity, element[i]);
    }
    lexer_next(&parser->lexer);
    return UNCOPY_OK;
}

static uncopy_status_t parse_constant(parser_t *parser)
{
    const char *name = NULL;
    parse_layout_t layout;
    unsigned char *bytes = NULL;
    size_t length = 0;
    size_t capacity = 0;
    uncopy_view_t view = 0;
    TRY(parse_name(parser, "the name of a constant", &name));
    TRY(parse_layout(parser, UNCOPY_NONE, &layout));
    TRY(parse_word(parser, "="));
    if (parser->lexer.token.kind != TOKEN_END) {
        do {
            TRY(parse_element(parser, layout.layout.dtype, &bytes, &length, &capacity));
        } while (parse_take(parser, ","));
    }
    const void *data = bytes != NULL ? (const void *)bytes : "";
    return parse_pass(parser,
                      ir_add_constant(parser->program, name, &layout.layout, data, length, &view));
}

static uncopy_status_t parse_view_line(parser_t *parser)
{
    const char *name = NULL;
    parse_layout_t layout;
    uncopy_view_t of = 0;
    uncopy_view_t view = 0;
    uncopy_dim_t offset = 0;
    bool is_from_storage = false;
    TRY(parse_name(parser, "the name of a view", &name));
    TRY(parse_word(parser, "="));
    TRY(parse_view(parser, &of));
    TRY(parse_layout(parser, UNCOPY_NONE, &layout));
    if (parse_take(parser, "+")) {
        TRY(parse_expression(parser, &offset));
    }
    if (parse_take(parser, "from")) {
        TRY(parse_word(parser, "storage"));
        is_from_storage = true;
    }
    return parse_pass(parser, ir_add_view(parser->program, name, of, &layout.layout, offset,
                                          is_from_storage, &view));
}

static bool group_exists(const ir_program_t *program, const char *token)
{
    for (size_t g = 0; g < program->num_groups; g++) {
        if (strcmp(program->groups[g].token, token) == 0) {
            return true;
        }
    }
    return false;
}

static uncopy_status_t parse_group(parser_t *parser)
{
    lexer_t before = parser->lexer;
    const char *token = NULL;
    const char *name = NULL;
    int32_t size = 0;
    int32_t rank = 0;
    uncopy_group_t group = 0;
    TRY(parse_name(parser, "the name of a group", &token));
    if (group_exists(parser->program, token)) {
        parser->lexer = before;
        return parse_fail(parser, "a name that no group has");
    }
    TRY(parse_quoted(parser, "the host's name of the group, quoted", &name));
    TRY(parse_word(parser, "size"));
    TRY(parse_int32(parser, &size));
    if (parse_take(parser, "rank")) {
        TRY(parse_int32(parser, &rank));
    }
    return parse_pass(parser, ir_add_group(parser->program, token, name, size, rank, &group));
}

static uncopy_status_t parse_output(parser_t *parser)
{
    do {
        uncopy_view_t view = 0;
        TRY(parse_view(parser, &view));
        TRY(parse_pass(parser, ir_add_output(parser->program, view)));
    } while (parse_take(parser, ","));
    return UNCOPY_OK;
}

static ir_symbol_t *find_symbol(const parser_t *parser, const token_t *name)
{
    ir_program_t *program = parser->program;
    for (size_t s = 0; name->kind == TOKEN_NAME && s < program->num_symbols; s++) {
        const char *other = program->symbols[s].name;
        if (strlen(other) == name->length && memcmp(other, name->start, name->length) == 0) {
            return &program->symbols[s];
        }
    }
    return NULL;
}

static uncopy_status_t parse_argument_name(parser_t *parser, uint32_t *out_argument)
{
    lexer_t before = parser->lexer;
    uncopy_view_t view = 0;
    TRY(parse_view(parser, &view));
    uint32_t argument = ir_argument_of(parser->program, view);
    if (argument == UNCOPY_NONE || parser->program->storages[argument].first_view != view) {
        parser->lexer = before;
        return parse_fail(parser, "the name of an argument");
    }
    *out_argument = argument;
    return UNCOPY_OK;
}

/* assume ARGUMENT = ARGUMENT +bytes, or assume SYMBOL = value: what stands right of "=" tells
 * which. */
static uncopy_status_t parse_assume(parser_t *parser)
{
    lexer_t left = parser->lexer;
    lexer_next(&parser->lexer);
    TRY(parse_word(parser, "="));
    if (parser->lexer.token.kind == TOKEN_NUMBER) {
        ir_symbol_t *symbol = find_symbol(parser, &left.token);
        if (symbol == NULL) {
            parser->lexer = left;
            return parse_fail(parser, "the name of a symbol");
        }
        return parse_integer(parser, false, &symbol->assumed);
    }
    uint32_t a = 0;
    uint32_t b = 0;
    int64_t offset = 0;
    lexer_t right = parser->lexer;
    parser->lexer = left;
    TRY(parse_argument_name(parser, &a));
    parser->lexer = right;
    TRY(parse_argument_name(parser, &b));
    if (parser->lexer.token.kind != TOKEN_END) {
        if (!lexer_is(&parser->lexer, "-")) {
            TRY(parse_word(parser, "+"));
        }
        TRY(parse_integer(parser, true, &offset));
    }
    return parse_pass(parser, ir_assume(parser->program, a, b, offset));
}

/* ---- lines ---- */

typedef struct line_kind {
    const char *word;
    uncopy_status_t (*parse)(parser_t *parser);
} line_kind_t;

static const line_kind_t line_kinds[] = {
    {"argument", parse_argument}, {"scratch", parse_scratch},    {"fresh", parse_fresh},
    {"constant", parse_constant}, {"view", parse_view_line},     {"symbol", parse_symbol_line},
    {"dim", parse_dim_line},      {"group", parse_group},        {"output", parse_output},
    {"assume", parse_assume},     {"number", parse_number_line},
};

static uncopy_status_t parse_line(parser_t *parser)
{
    for (size_t i = 0; i < sizeof(line_kinds) / sizeof(line_kinds[0]); i++) {
        if (parse_take(parser, line_kinds[i].word)) {
            TRY(line_kinds[i].parse(parser));
            return parse_end(parser);
        }
    }
    TRY(parse_operation(parser));
    return parse_end(parser);
}

static uncopy_status_t parse_program(parser_t *parser, const uncopy_allocator_t *allocator)
{
    const char *name = NULL;
    TRY(parse_word(parser, "program"));
    if (parser->lexer.token.kind == TOKEN_QUOTED) {
        TRY(parse_quoted(parser, "the program's name", &name));
    } else {
        TRY(parse_name(parser, "the program's name", &name));
    }
    parser->has_program = true;
    TRY(parse_pass(parser, ir_program_init(parser->program, allocator, name)));
    return parse_end(parser);
}

static uncopy_status_t parse_lines(parser_t *parser, const uncopy_allocator_t *allocator)
{
    do {
        if (parser->lexer.token.kind == TOKEN_END) {
            continue;
        }
        if (parser->has_program) {
            TRY(parse_line(parser));
        } else {
            TRY(parse_program(parser, allocator));
        }
    } while (lexer_next_line(&parser->lexer));
    return parser->has_program ? UNCOPY_OK : parse_fail(parser, "'program' and its name");
}

uncopy_status_t ir_parse(ir_program_t *program, const uncopy_allocator_t *allocator,
                         const char *text, size_t length)
{
    parser_t parser = {.program = program};
    *program = (ir_program_t){0};
    arena_init(&program->arena, allocator);
    arena_init(&parser.scratch, allocator);
    lexer_init(&parser.lexer, text, length);
    uncopy_status_t status = parse_lines(&parser, allocator);
    arena_release(&parser.scratch);
    if (status != UNCOPY_OK) {
        ir_program_release(program);
    }
    return status;
}
