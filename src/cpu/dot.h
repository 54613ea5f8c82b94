/* Matmul of few rows with an operand that is contiguous along k, as nn.Linear's weight is. */
#ifndef CPU_DOT_H
#define CPU_DOT_H

#include "plan/kernel.h"

enum {
    DOT_LANES = 16,       /* sums of one result element side by side */
    DOT_NEAR_DEPTH = 256, /* elements of k behind one addition to the far sums of the lanes */
    DOT_DEPTH = 2048,     /* elements of k behind one addition to the result's sum */
    DOT_COLUMNS = 4,      /* computed at a time */
    DOT_MOST_ROWS = 8,
};

/* Whether matmul_dot_run takes the call rather than matmul_run. Decided for a whole call: the two
 * add in different orders, so the parts that a call is cut into all use the one. */
bool matmul_is_dot(const kernel_call_t *call);
void matmul_dot_run(const kernel_call_t *call, char *const *data);

#endif
