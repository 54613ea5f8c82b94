#include "ir/text_lexer.h"

#include <ctype.h>
#include <string.h>

static bool is_letter(char c)
{
    return isalpha((unsigned char)c) || c == '_';
}

static bool is_letter_or_digit(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r')) {
        at++;
    }
    return at;
}

static const char *end_of_number(const char *at, const char *end)
{
    bool is_hex = end - at >= 2 && at[0] == '0' && at[1] == 'x';
    while (at < end && (is_letter_or_digit(*at) || *at == '.')) {
        bool takes_sign = !is_hex && (*at == 'e' || *at == 'E') && end - at >= 2 &&
                          (at[1] == '+' || at[1] == '-');
        at += takes_sign ? 2 : 1;
    }
    return at;
}

/* An unclosed quote ends with its line; lexer_unquote refuses it. */
static const char *end_of_quoted(const char *at, const char *end)
{
    at++;
    while (at < end && *at != '"' && *at != '\n') {
        at += *at == '\\' && end - at >= 2 && at[1] != '\n' ? 2 : 1;
    }
    return at < end && *at == '"' ? at + 1 : at;
}

static const char *end_of_mark(const char *at, const char *end)
{
    bool is_pair = end - at >= 2 && (memcmp(at, "->", 2) == 0 || memcmp(at, "//", 2) == 0);
    return at + (is_pair ? 2 : 1);
}

static void set_token(lexer_t *lexer, token_kind_t kind, const char *start, const char *end)
{
    lexer->token = (token_t){kind, start, (size_t)(end - start)};
    lexer->at = end;
}

void lexer_next(lexer_t *lexer)
{
    const char *at = skip_blanks(lexer->at, lexer->end);
    const char *end = lexer->end;
    if (at == end || *at == '\n' || *at == '#') {
        set_token(lexer, TOKEN_END, at, at);
    } else if (is_letter(*at)) {
        const char *stop = at;
        while (stop < end && is_letter_or_digit(*stop)) {
            stop++;
        }
        set_token(lexer, TOKEN_NAME, at, stop);
    } else if (isdigit((unsigned char)*at)) {
        set_token(lexer, TOKEN_NUMBER, at, end_of_number(at, end));
    } else if (*at == '"') {
        set_token(lexer, TOKEN_QUOTED, at, end_of_quoted(at, end));
    } else {
        set_token(lexer, TOKEN_MARK, at, end_of_mark(at, end));
    }
}

void lexer_init(lexer_t *lexer, const char *text, size_t length)
{
    *lexer = (lexer_t){.at = text, .end = text + length, .line = 1};
    lexer_next(lexer);
}

bool lexer_next_line(lexer_t *lexer)
{
    const char *stop = NULL;
    if (lexer->at < lexer->end) {
        stop = memchr(lexer->at, '\n', (size_t)(lexer->end - lexer->at));
    }
    if (stop == NULL) {
        set_token(lexer, TOKEN_END, lexer->end, lexer->end);
        return false;
    }
    lexer->at = stop + 1;
    lexer->line++;
    lexer_next(lexer);
    return true;
}

bool lexer_is(const lexer_t *lexer, const char *words)
{
    const token_t *token = &lexer->token;
    return token->kind != TOKEN_QUOTED && strlen(words) == token->length &&
           memcmp(token->start, words, token->length) == 0;
}

static int hex_value(char digit)
{
    const char *digits = "0123456789abcdef";
    const char *at = digit == '\0' ? NULL : strchr(digits, tolower((unsigned char)digit));
    return at == NULL ? -1 : (int)(at - digits);
}

/* Decodes the escape after a backslash; returns the bytes read, 0 where it is none. */
static size_t unescape(const char *at, size_t length, char *out)
{
    if (length >= 1 && (at[0] == '"' || at[0] == '\\')) {
        *out = at[0];
        return 1;
    }
    if (length >= 1 && (at[0] == 'n' || at[0] == 't')) {
        *out = at[0] == 'n' ? '\n' : '\t';
        return 1;
    }
    if (length >= 3 && at[0] == 'x' && hex_value(at[1]) >= 0 && hex_value(at[2]) >= 0) {
        *out = (char)(hex_value(at[1]) * 16 + hex_value(at[2]));
        return *out == '\0' ? 0 : 3;
    }
    return 0;
}

uncopy_status_t lexer_unquote(const lexer_t *lexer, arena_t *arena, const char **out_text)
{
    const token_t *token = &lexer->token;
    *out_text = NULL;
    if (token->kind != TOKEN_QUOTED || token->length < 2 ||
        token->start[token->length - 1] != '"' ||
        memchr(token->start, '\0', token->length) != NULL) {
        return UNCOPY_OK;
    }
    char *copy = arena_allocate(arena, token->length, 1);
    if (copy == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    size_t length = 0;
    for (size_t i = 1; i + 1 < token->length; i++) {
        copy[length] = token->start[i];
        if (token->start[i] == '\\') {
            size_t read = unescape(token->start + i + 1, token->length - i - 2, &copy[length]);
            if (read == 0) {
                return UNCOPY_OK;
            }
            i += read;
        }
        length++;
    }
    *out_text = copy;
    return UNCOPY_OK;
}

static bool is_bare_file_byte(char c)
{
    return is_letter_or_digit(c) || c == '.' || c == '/' || c == '-' || c == '+' || c == '~';
}

void lexer_next_file(lexer_t *lexer)
{
    const char *at = skip_blanks(lexer->at, lexer->end);
    const char *stop = at;
    while (stop < lexer->end && is_bare_file_byte(*stop)) {
        stop++;
    }
    if (stop == at) {
        lexer_next(lexer);
    } else {
        set_token(lexer, TOKEN_NAME, at, stop);
    }
}
