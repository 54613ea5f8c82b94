/* Tokens of the text language, one line at a time. A lexer borrows the text; tokens point into it.
 *
 * Blanks separate, '#' outside quotes opens a comment to the line's end. Confined to one thread. */
#ifndef IR_TEXT_LEXER_H
#define IR_TEXT_LEXER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/memory.h"

typedef enum token_kind {
    TOKEN_END,    /* of the line */
    TOKEN_NAME,   /* letters, digits, underscores; no digit first */
    TOKEN_NUMBER, /* from a digit on: letters, digits, dots, the sign of an exponent */
    TOKEN_QUOTED, /* with both quotes */
    TOKEN_MARK,   /* one character, or one of "->" and "//" */
} token_kind_t;

typedef struct token {
    token_kind_t kind;
    const char *start;
    size_t length;
} token_t;

typedef struct lexer {
    const char *at, *end; /* what follows the current token */
    int line;             /* from 1 */
    token_t token;        /* the current one */
} lexer_t;

/* The current token becomes the first of the first line. */
void lexer_init(lexer_t *lexer, const char *text, size_t length);
/* Moves to the next token; stays at TOKEN_END. */
void lexer_next(lexer_t *lexer);
/* Moves to the first token of the next line, skipping what is left of this one. False past the
 * last. */
bool lexer_next_line(lexer_t *lexer);

bool lexer_is(const lexer_t *lexer, const char *words);

/* The text that the current quoted token stands for, in arena. *out_text is NULL where an escape is
 * none. Errors: UNCOPY_ERROR_MEMORY. */
UNCOPY_MUST_CHECK uncopy_status_t lexer_unquote(const lexer_t *lexer, arena_t *arena,
                                                const char **out_text);

/* With the current token the mark "@": reads FILE, bare or quoted, as one token. */
void lexer_next_file(lexer_t *lexer);

#endif
