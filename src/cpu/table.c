/* Choice of the inner loops: the best instruction set of the processor, or a lower one that
 * UNCOPY_ISA names. */
#include "cpu/table.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"

/* Written by whoever comes first; all writers store the same value. Relaxed: the tables are
 * constant. */
static _Atomic(const table_t *) chosen;

#if defined(__x86_64__)
static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static const table_t *choose(const char *limit)
{
    bool is_portable = strcmp(limit, "portable") == 0 || strcmp(limit, "scalar") == 0;
    if (is_portable || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        return &table_portable;
    }
    return strcmp(limit, "avx2") != 0 && has_avx512() ? &table_avx512 : &table_avx2;
}
#else
static const table_t *choose(const char *limit)
{
    (void)limit;
    return &table_portable;
}
#endif

const table_t *table_get(void)
{
    const table_t *table = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (table == NULL) {
        const char *limit = getenv("UNCOPY_ISA");
        table = choose(limit != NULL ? limit : "");
        atomic_store_explicit(&chosen, table, memory_order_relaxed);
    }
    return table;
}

bool table_force(const char *name)
{
    const table_t *table = choose(name);
    if (strcmp(table->name, name) != 0) {
        return false;
    }
    atomic_store_explicit(&chosen, table, memory_order_relaxed);
    return true;
}

kind_t table_kind(uncopy_dtype_t dtype)
{
    switch (dtype) {
    case UNCOPY_DTYPE_BOOL:
        return KIND_BOOL;
    case UNCOPY_DTYPE_F64:
        return KIND_F64;
    case UNCOPY_DTYPE_F32:
    case UNCOPY_DTYPE_F16:
    case UNCOPY_DTYPE_BF16:
        return KIND_F32;
    case UNCOPY_DTYPE_U64:
        return KIND_U64;
    case UNCOPY_DTYPE_I64:
    case UNCOPY_DTYPE_U32:
        return KIND_I64;
    default:
        return KIND_I32;
    }
}

kind_t table_register_kind(uncopy_dtype_t dtype)
{
    return dtype == UNCOPY_DTYPE_BF16  ? KIND_BF16
           : dtype == UNCOPY_DTYPE_F16 ? KIND_F16
                                       : table_kind(dtype);
}

uncopy_dtype_t table_register_dtype(kind_t kind)
{
    static const uncopy_dtype_t dtypes[KIND_COUNT] = {
        [KIND_F32] = UNCOPY_DTYPE_F32,   [KIND_F64] = UNCOPY_DTYPE_F64,
        [KIND_I32] = UNCOPY_DTYPE_I32,   [KIND_I64] = UNCOPY_DTYPE_I64,
        [KIND_U64] = UNCOPY_DTYPE_U64,   [KIND_BOOL] = UNCOPY_DTYPE_BOOL,
        [KIND_BF16] = UNCOPY_DTYPE_BF16, [KIND_F16] = UNCOPY_DTYPE_F16,
    };
    return dtypes[kind];
}

int64_t table_register_bytes(kind_t kind)
{
    return (int64_t)uncopy_dtype_size(table_register_dtype(kind));
}

int64_t table_compute_bytes(kind_t kind)
{
    return kind == KIND_BF16 || kind == KIND_F16 ? 4 : table_register_bytes(kind);
}

const char *cpu_isa_name(void)
{
    return table_get()->name;
}
