/* Finding, naming and estimating kernels. See cpu.h. */
#include "cpu/cpu.h"

#include "cpu/convert.h"
#include "cpu/dot.h"
#include "cpu/kernels.h"
#include "cpu/matmul.h"

static bool is_computed(uncopy_dtype_t dtype)
{
    dtype_kind_t kind = dtype_kind(dtype);
    return kind != DTYPE_KIND_COMPLEX && kind != DTYPE_KIND_OPAQUE;
}

bool cpu_accepts(opcode_t opcode, const uncopy_dtype_t *reads, size_t num_reads,
                 uncopy_dtype_t result)
{
    const op_row_t *row = op_row(opcode);
    bool is_kernel = row->class_ == OP_CLASS_POINTWISE || row->class_ == OP_CLASS_MOVE ||
                     row->class_ == OP_CLASS_MATMUL;
    if (!is_kernel || row->num_reads != (int)num_reads ||
        !op_accepts(opcode, reads, num_reads, result)) {
        return false;
    }
    return row->class_ != OP_CLASS_POINTWISE || is_computed(result);
}

/* The dtypes of the operands read; false when an operand is one that no kernel takes. */
static bool call_dtypes(const kernel_call_t *call, uncopy_dtype_t *out_reads)
{
    bool has_memory_result = call->num_operands > 1 && !call->operands[0].is_immediate;
    if (!has_memory_result || call->num_operands > KERNEL_MAX_OPERANDS ||
        call->rank > SPAN_MAX_RANK) {
        return false;
    }
    for (int32_t i = 0; i < call->num_operands; i++) {
        if (!dtype_is_valid(call->operands[i].dtype)) {
            return false;
        }
        if (i > 0) {
            out_reads[i - 1] = call->operands[i].dtype;
        }
    }
    return true;
}

kernel_function_t cpu_find(const kernel_call_t *call)
{
    uncopy_dtype_t reads[KERNEL_MAX_OPERANDS];
    if (!call_dtypes(call, reads) ||
        !cpu_accepts(call->opcode, reads, (size_t)(call->num_operands - 1),
                     call->operands[0].dtype)) {
        return NULL;
    }
    const kernel_operand_t *first = &call->operands[1];
    switch (call->opcode) {
    case OPCODE_COPY:
        return first->is_immediate ? NULL : copy_run;
    case OPCODE_FILL:
        if (!first->is_immediate) {
            return copy_run;
        }
        return dtype_kind(first->dtype) != DTYPE_KIND_OPAQUE || convert_is_zero(&first->immediate)
                   ? fill_run
                   : NULL;
    case OPCODE_MATMUL:
        if (call->rank < 2 || first->is_immediate || call->operands[2].is_immediate) {
            return NULL;
        }
        return matmul_is_dot(call) ? matmul_dot_run : matmul_run;
    default:
        return NULL;
    }
}

/* Names of an operation, or of a method, on each dtype. */
#define NAMES_BY_DTYPE(text)                            \
    {                                                   \
        [UNCOPY_DTYPE_BOOL] = text ".bool",             \
        [UNCOPY_DTYPE_U8] = text ".u8",                 \
        [UNCOPY_DTYPE_I8] = text ".i8",                 \
        [UNCOPY_DTYPE_I16] = text ".i16",               \
        [UNCOPY_DTYPE_I32] = text ".i32",               \
        [UNCOPY_DTYPE_I64] = text ".i64",               \
        [UNCOPY_DTYPE_F16] = text ".f16",               \
        [UNCOPY_DTYPE_BF16] = text ".bf16",             \
        [UNCOPY_DTYPE_F32] = text ".f32",               \
        [UNCOPY_DTYPE_F64] = text ".f64",               \
        [UNCOPY_DTYPE_C32] = text ".c32",               \
        [UNCOPY_DTYPE_C64] = text ".c64",               \
        [UNCOPY_DTYPE_C128] = text ".c128",             \
        [UNCOPY_DTYPE_U16] = text ".u16",               \
        [UNCOPY_DTYPE_U32] = text ".u32",               \
        [UNCOPY_DTYPE_U64] = text ".u64",               \
        [UNCOPY_DTYPE_F8E4M3FN] = text ".f8e4m3fn",     \
        [UNCOPY_DTYPE_F8E5M2] = text ".f8e5m2",         \
        [UNCOPY_DTYPE_F8E4M3FNUZ] = text ".f8e4m3fnuz", \
        [UNCOPY_DTYPE_F8E5M2FNUZ] = text ".f8e5m2fnuz", \
    }

static const char *const operation_names[OPCODE_COUNT][DTYPE_COUNT] = {
#define OPERATION(name, text, class, reads, rule, flags, aten, attributes, formula) \
    [OPCODE_##name] = NAMES_BY_DTYPE(text),
#include "base/ops.def"
#undef OPERATION
};

static const char *const gemv_names[DTYPE_COUNT] = NAMES_BY_DTYPE("matmul.gemv");
static const char *const dot_names[DTYPE_COUNT] = NAMES_BY_DTYPE("matmul.dot");
static const char *const block_names[DTYPE_COUNT] = NAMES_BY_DTYPE("matmul.block");

const char *cpu_kernel_name(const kernel_call_t *call)
{
    uncopy_dtype_t reads[KERNEL_MAX_OPERANDS];
    if (!call_dtypes(call, reads) ||
        !cpu_accepts(call->opcode, reads, (size_t)(call->num_operands - 1),
                     call->operands[0].dtype)) {
        return "none";
    }
    kernel_function_t kernel = cpu_find(call);
    if (kernel == copy_run) {
        return copy_method_name(call);
    }
    uncopy_dtype_t result = call->operands[0].dtype;
    if (kernel == matmul_dot_run) {
        return dot_names[result];
    }
    if (kernel == matmul_run) {
        return matmul_is_gemv(call) ? gemv_names[result] : block_names[result];
    }
    bool is_compare = op_row(call->opcode)->rule == OP_RULE_COMPARE;
    return operation_names[call->opcode][is_compare ? call->operands[1].dtype : result];
}

/* ---- cost ---- */

/* Rough figures of one core, in picoseconds: a byte moved within the caches, and one of operands
 * too big for them; a cheap operation on an element, one that computes a function, and a
 * multiply-add of a matmul. */
enum {
    CALL_NS = 60,
    BYTE_PS = 8,
    FAR_BYTE_PS = 20,
    ELEMENT_PS = 30,
    FUNCTION_PS = 1500,
    PRODUCT_PS = 25,
    CACHE_BYTES = 1 << 24,
};

static bool is_slow(opcode_t opcode)
{
    switch (opcode) {
    case OPCODE_EXP:
    case OPCODE_LOG:
    case OPCODE_SIN:
    case OPCODE_COS:
    case OPCODE_TANH:
    case OPCODE_SIGMOID:
        return true;
    default:
        return false;
    }
}

/* In f64, which cannot overflow. */
static double count_elements(const kernel_call_t *call)
{
    double count = 1;
    for (int32_t d = 0; d < call->rank; d++) {
        count *= (double)call->sizes[d];
    }
    return count;
}

static double operand_bytes(const kernel_call_t *call, int32_t index)
{
    const kernel_operand_t *operand = &call->operands[index];
    double bytes = operand->is_immediate ? 0 : (double)uncopy_dtype_size(operand->dtype);
    for (int32_t d = 0; d < call->rank; d++) {
        bytes *= operand->strides[d] != 0 ? (double)call->sizes[d] : 1;
    }
    bool has_depth = call->opcode == OPCODE_MATMUL && index > 0;
    return has_depth ? bytes * (double)call->k : bytes;
}

int64_t cpu_cost_ns(const kernel_call_t *call)
{
    double bytes = 0;
    for (int32_t i = 0; i < call->num_operands; i++) {
        bytes += operand_bytes(call, i);
    }
    double picoseconds = (bytes > CACHE_BYTES ? FAR_BYTE_PS : BYTE_PS) * bytes;
    double elements = count_elements(call);
    if (call->opcode == OPCODE_MATMUL) {
        picoseconds += PRODUCT_PS * elements * (double)call->k;
    } else if (op_row(call->opcode)->class_ == OP_CLASS_POINTWISE ||
               call->opcode == OPCODE_CONVERT) {
        picoseconds += (is_slow(call->opcode) ? FUNCTION_PS : ELEMENT_PS) * elements;
    }
    double nanoseconds = CALL_NS + picoseconds / 1000;
    return nanoseconds < 1e18 ? (int64_t)nanoseconds : INT64_C(1000000000000000000);
}

/* ---- choice between the own and the host's matmul ---- */

bool cpu_prefers_host_matmul(const kernel_call_t *call)
{
    return call->opcode == OPCODE_MATMUL && matmul_prefers_host(call);
}
