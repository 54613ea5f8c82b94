/* What print and explain share: names of things as people read them, and the order edges between
 * instructions. */
#ifndef PLAN_DESCRIBE_H
#define PLAN_DESCRIBE_H

#include "plan/plan.h"

/* Appends "file.py:3", the file without its folders; "a line unknown" where the program says
 * none. */
void describe_append_line(const char *file, int line, text_t *text);

/* Name of an instruction: its row's, or the host's name of an extern. */
const char *describe_instruction(const plan_instruction_t *instruction);

/* Span of an operand at the addresses of planning; comparable between operands for which
 * describe_shares holds. */
span_t describe_span(const plan_t *plan, uint32_t operand);

/* Whether two operands' bases are in one address space: one base, or both the caller's. */
bool describe_shares(const plan_t *plan, uint32_t a, uint32_t b);

/* The caller's argument as a span at the addresses of planning. */
span_t describe_argument(const plan_t *plan, size_t argument);

/* The edge that keeps instruction after an earlier one. */
typedef struct describe_edge {
    size_t earlier;
    uint32_t operand; /* of the later instruction, UNCOPY_NONE where it is not bytes */
    bool is_write;    /* the later instruction writes it */
} describe_edge_t;

/* The nearest earlier instruction that conflicts with instruction number at; false if there is
 * none. */
bool describe_nearest_edge(const plan_t *plan, size_t at, describe_edge_t *out_edge);

#endif
