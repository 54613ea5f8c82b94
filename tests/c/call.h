/* One kernel call of any class run as the library runs it, for the kernels' tests. */
#ifndef TESTS_CALL_H
#define TESTS_CALL_H

#include <stdbool.h>

#include "plan/kernel.h"

/* Whether a kernel takes the call. */
bool call_has_kernel(const kernel_call_t *call);

/* Runs it; data has an address for each operand, numbers among them. A tile program's units run in
 * two ranges, the later one first. */
void call_run(const kernel_call_t *call, char *const *data);

#endif
