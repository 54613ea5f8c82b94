/* The operations that the tests' host runs, and the reference too.
 *
 *   test.double(x) -> 2 x                     pure
 *   test.increment_(x)                        writes x + 1 into x
 *   test.same(x) -> x                         returns its argument
 *   test.rotate_into(x, y)                    y[i] = x[i + 1], the last is x's first
 *   test.ramp_(x)                             fills with 0, 1, 2 ... in order of addresses
 *   test.kept() -> copy of argument 0         reads bytes that are no operand
 *   test.check(x)                             might raise, and does not
 *   test.fail(...)                            always fails
 *   aten.NAME.overload(views...) -> result    a row of ops.def without numbers */
#ifndef EXTERNS_H
#define EXTERNS_H

#include "element.h"

typedef struct externs_call {
    const char *target;
    const uncopy_bound_t *reads;
    size_t num_reads;
    const uncopy_bound_t *writes;
    size_t num_writes;
    const uncopy_bound_t *results; /* with memory */
    size_t num_results;
    const uncopy_bound_t *kept; /* argument 0 */
} externs_call_t;

/* Whether the target's one result is its first operand. */
bool externs_is_alias(const char *target);
/* False where the operation fails or is unknown: then nothing is done. */
bool externs_run(const externs_call_t *call);

#endif
