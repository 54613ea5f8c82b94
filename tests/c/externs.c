#include "externs.h"

#include <string.h>

bool externs_is_alias(const char *target)
{
    return strncmp(target, "test.same", 9) == 0;
}

/* The row that serves "aten.NAME.overload". */
static bool find_row(const char *target, opcode_t *out_opcode)
{
    if (strncmp(target, "aten.", 5) != 0) {
        return false;
    }
    size_t length = strcspn(target + 5, ".");
    return op_find_aten(target + 5, length, out_opcode) ||
           (length > 1 && target[4 + length] == '_' &&
            op_find_aten(target + 5, length - 1, out_opcode));
}

/* The view that the operation fills, returned or written. */
static const uncopy_bound_t *result_of(const externs_call_t *call)
{
    return call->num_results > 0 ? call->results : call->writes;
}

static bool run_row(const externs_call_t *call, opcode_t opcode)
{
    static const double one[OP_MAX_ATTRIBUTES] = {1, 0};
    element_operand_t reads[OP_MAX_READS] = {{0}};
    if (call->num_reads != (size_t)op_row(opcode)->num_reads) {
        return false;
    }
    for (size_t i = 0; i < call->num_reads; i++) {
        reads[i].view = &call->reads[i];
    }
    return element_run(opcode, reads, call->num_reads, one, result_of(call));
}

static void add_number(const uncopy_bound_t *from, int64_t number, const uncopy_bound_t *to)
{
    static const double one[OP_MAX_ATTRIBUTES] = {1, 0};
    element_operand_t reads[2] = {
        {.view = from},
        {.number = {UNCOPY_NONE, 1, number, (double)number}},
    };
    (void)element_run(OPCODE_ADD, reads, 2, one, to);
}

static void double_elements(const uncopy_bound_t *from, const uncopy_bound_t *to)
{
    static const double one[OP_MAX_ATTRIBUTES] = {1, 0};
    element_operand_t reads[2] = {{.view = from}, {.view = from}};
    (void)element_run(OPCODE_ADD, reads, 2, one, to);
}

/* Element by element, so that overlap of the two shows. */
static void rotate(const uncopy_bound_t *from, const uncopy_bound_t *to)
{
    int64_t count = element_count(to);
    for (int64_t i = 0; i < count; i++) {
        memcpy(element_at(to, i), element_at(from, (i + 1) % count), uncopy_dtype_size(to->dtype));
    }
}

/* Number of elements at lower addresses; views with gaps have each address once. */
static int64_t rank_by_address(const uncopy_bound_t *bound, int64_t index, int64_t count)
{
    int64_t before = 0;
    for (int64_t i = 0; i < count; i++) {
        before += element_at(bound, i) < element_at(bound, index) ? 1 : 0;
    }
    return before;
}

static void ramp(const uncopy_bound_t *to)
{
    int64_t count = element_count(to);
    for (int64_t i = 0; i < count; i++) {
        int64_t one_size = 1;
        int64_t one_stride = 1;
        int64_t value = rank_by_address(to, i, count);
        uncopy_bound_t element = *to;
        element_operand_t number = {.number = {UNCOPY_NONE, 1, value, (double)value}};
        element.rank = 1;
        element.sizes = &one_size;
        element.strides = &one_stride;
        element.data = element_at(to, i);
        (void)element_run(OPCODE_FILL, &number, 1, NULL, &element);
    }
}

static void copy_kept(const uncopy_bound_t *kept, const uncopy_bound_t *to)
{
    element_operand_t read = {.view = kept};
    (void)element_run(OPCODE_COPY, &read, 1, NULL, to);
}

static bool is_target(const externs_call_t *call, const char *name)
{
    size_t length = strlen(name);
    return strncmp(call->target, name, length) == 0 &&
           (call->target[length] == '\0' || call->target[length] == '.');
}

bool externs_run(const externs_call_t *call)
{
    opcode_t opcode = OPCODE_EXTERN;
    if (find_row(call->target, &opcode)) {
        return run_row(call, opcode);
    }
    if (is_target(call, "test.double")) {
        double_elements(&call->reads[0], &call->results[0]);
    } else if (is_target(call, "test.increment_")) {
        add_number(result_of(call), 1, result_of(call));
    } else if (is_target(call, "test.rotate_into")) {
        rotate(&call->reads[0], result_of(call));
    } else if (is_target(call, "test.ramp_")) {
        ramp(result_of(call));
    } else if (is_target(call, "test.kept")) {
        copy_kept(call->kept, &call->results[0]);
    } else if (!is_target(call, "test.same") && !is_target(call, "test.check")) {
        return false;
    }
    return true;
}
