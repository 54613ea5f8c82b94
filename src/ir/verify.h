/* Checks a program with its numbers. Each rule has a number, stated at its check in verify.c and
 * tested alone. */
#ifndef IR_VERIFY_H
#define IR_VERIFY_H

#include "ir/program.h"

/* extents: one for each view (ir_evaluate). Errors: UNCOPY_ERROR_PROGRAM, the message naming
 * operation, line, operand and values. */
UNCOPY_MUST_CHECK uncopy_status_t ir_verify(const ir_program_t *program,
                                            const ir_extent_t *extents);

/* As ir_verify with the values that the program assumes for its symbols; a program with a symbol
 * that has none is checked in what needs no numbers alone. */
UNCOPY_MUST_CHECK uncopy_status_t ir_verify_assumed(const ir_program_t *program);

#endif
