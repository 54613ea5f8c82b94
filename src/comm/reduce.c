/* Choice of the reduction loops, and which dtype takes which reduction. */
#include "comm/reduce.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"

_Static_assert(DTYPE_COUNT == 20, "reduce_table_t has an entry a dtype");

/* Written by whoever comes first; all writers store the same value. Relaxed: tables are
 * constant. */
static _Atomic(const reduce_table_t *) chosen;

#if defined(__x86_64__)
static const reduce_table_t *choose(const char *limit)
{
    bool is_portable = strcmp(limit, "portable") == 0 || strcmp(limit, "scalar") == 0;
    if (is_portable || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        return &reduce_portable;
    }
    bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    return strcmp(limit, "avx2") != 0 && has_avx512 ? &reduce_avx512 : &reduce_avx2;
}
#else
static const reduce_table_t *choose(const char *limit)
{
    (void)limit;
    return &reduce_portable;
}
#endif

static const reduce_table_t *table_in_use(void)
{
    const reduce_table_t *table = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (table == NULL) {
        const char *limit = getenv("UNCOPY_ISA");
        table = choose(limit != NULL ? limit : "");
        atomic_store_explicit(&chosen, table, memory_order_relaxed);
    }
    return table;
}

const char *uncopy_reduction_name(uncopy_reduction_t reduction)
{
    switch (reduction) {
#define REDUCTION(name, value, text) \
    case UNCOPY_REDUCE_##name:       \
        return text;
#include "uncopy/reduction.def"
#undef REDUCTION
    }
    return NULL;
}

bool reduce_is_supported(uncopy_dtype_t dtype, uncopy_reduction_t reduction)
{
    if (!dtype_is_valid(dtype) || uncopy_reduction_name(reduction) == NULL ||
        reduce_portable.of_dtype[dtype] == NULL) {
        return false;
    }
    bool is_float = dtype_kind(dtype) == DTYPE_KIND_FLOAT;
    bool is_bitwise = reduction == UNCOPY_REDUCE_BAND || reduction == UNCOPY_REDUCE_BOR ||
                      reduction == UNCOPY_REDUCE_BXOR;
    return is_float ? !is_bitwise : reduction != UNCOPY_REDUCE_AVG;
}

void reduce_elements(uncopy_dtype_t dtype, const reduce_run_t *run)
{
    if (run->count > 0) {
        table_in_use()->of_dtype[dtype](run);
    }
}

const char *reduce_isa_name(void)
{
    return table_in_use()->name;
}
