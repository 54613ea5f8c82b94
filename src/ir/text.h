/* The text language (docs/text-language.md): parse and print. Printing a parsed program and parsing
 * it again gives an equal program. */
#ifndef IR_TEXT_H
#define IR_TEXT_H

#include "ir/program.h"

/* Parses length bytes into program, which is initialised here and released on error.
 * Errors: UNCOPY_ERROR_PARSE with line number and the words found there, UNCOPY_ERROR_PROGRAM,
 * UNCOPY_ERROR_MEMORY. */
UNCOPY_MUST_CHECK uncopy_status_t ir_parse(ir_program_t *program,
                                           const uncopy_allocator_t *allocator, const char *text,
                                           size_t length);

/* Appends the program's text. */
void ir_print(const ir_program_t *program, text_t *text);

#endif
