/* The kernels behind cpu_find. Each trusts what cpu_find checked. */
#ifndef CPU_KERNELS_H
#define CPU_KERNELS_H

#include "plan/kernel.h"

void copy_run(const kernel_call_t *call, char *const *data);
void fill_run(const kernel_call_t *call, char *const *data);

/* "copy.rows", "copy.blocks" or "copy.elements": how copy_run moves this call. */
const char *copy_method_name(const kernel_call_t *call);

#endif
