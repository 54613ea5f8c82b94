/* CPU kernels: finding the function for a call, and what a call costs.
 *
 * A kernel is a function over plan/kernel.h's call and addresses. It allocates nothing (at most 128
 * KiB of stack), keeps no state and cannot fail; all that could go wrong is refused by cpu_find.
 * Sizes of zero are allowed and do nothing. Addresses need no alignment.
 *
 * Bits: docs/kernels.md says which are promised. Threads: every function here is safe. */
#ifndef CPU_CPU_H
#define CPU_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/kernel.h"

/* The kernel that runs a copy, fill or matmul, or NULL where none takes it. POINTWISE rows and
 * CONVERT run as tile programs (cpu/tile.h). */
kernel_function_t cpu_find(const kernel_call_t *call);

/* Whether a kernel takes an operation with these dtypes: reads holds those of all num_reads
 * operands read, immediates included. Narrower than op_accepts: a fill of an opaque dtype is
 * further limited to the number zero by cpu_find. */
bool cpu_accepts(opcode_t opcode, const uncopy_dtype_t *reads, size_t num_reads,
                 uncopy_dtype_t result);

/* Rough time of one run on one thread, in nanoseconds; good to a factor of about two. For deciding
 * whether releasing a lock or forking pays. */
int64_t cpu_cost_ns(const kernel_call_t *call);

/* Name for printing: "add.f32", "matmul.gemv.bf16", "copy.rows". Static storage; "none" where no
 * kernel takes call. */
const char *cpu_kernel_name(const kernel_call_t *call);

/* Whether a host's matmul (PyTorch's, over MKL and oneDNN) is the faster one for this shape; the
 * figures are in docs/kernels.md. The number of threads does not enter, so that results do not
 * depend on it. False for calls that are no matmul. */
bool cpu_prefers_host_matmul(const kernel_call_t *call);

/* The instruction set in use: "portable", "avx2" or "avx512". Chosen at first use by what the
 * processor has; the environment variable UNCOPY_ISA=portable|avx2|avx512 lowers it ("scalar" is
 * the same as "portable"). */
const char *cpu_isa_name(void);

#endif
