#include "plan/describe.h"

#include <string.h>

void describe_append_line(const char *file, int line, text_t *text)
{
    if (file == NULL) {
        text_append(text, "a line unknown");
        return;
    }
    const char *slash = strrchr(file, '/');
    text_append(text, "%s:%d", slash == NULL ? file : slash + 1, line);
}

const char *describe_instruction(const plan_instruction_t *instruction)
{
    return instruction->opcode == OPCODE_EXTERN && instruction->target != NULL
               ? instruction->target
               : op_row(instruction->opcode)->name;
}

static span_t make_span(uncopy_dtype_t dtype, int32_t rank, const int64_t *sizes,
                        const int64_t *strides, int64_t start)
{
    span_t span = {
        .start = start, .element_bytes = (int64_t)uncopy_dtype_size(dtype), .rank = rank};
    for (int32_t d = 0; d < rank; d++) {
        span.sizes[d] = sizes[d];
        span.strides[d] = strides[d] * span.element_bytes;
    }
    return span;
}

static bool is_callers(const plan_t *plan, uint32_t base)
{
    return base < 2 * plan->num_arguments;
}

span_t describe_span(const plan_t *plan, uint32_t operand)
{
    const plan_operand_t *at = &plan->operands[operand];
    int64_t address = is_callers(plan, at->base) ? plan->addresses[at->base] : 0;
    return make_span(at->dtype, at->rank, at->sizes, at->strides, address + at->offset_bytes);
}

bool describe_shares(const plan_t *plan, uint32_t a, uint32_t b)
{
    uint32_t x = plan->operands[a].base;
    uint32_t y = plan->operands[b].base;
    return x == y || (is_callers(plan, x) && is_callers(plan, y));
}

span_t describe_argument(const plan_t *plan, size_t argument)
{
    const plan_argument_t *at = &plan->arguments[argument];
    return make_span(at->dtype, at->rank, at->sizes, at->strides, plan->addresses[argument]);
}

static bool is_write(const plan_instruction_t *instruction, uint32_t index)
{
    return index < (uint32_t)instruction->num_results + instruction->num_writes;
}

static uint32_t num_operands(const plan_instruction_t *instruction)
{
    return (uint32_t)instruction->num_results + instruction->num_writes + instruction->num_reads;
}

/* Whether two instructions conflict; *out_operand is the later one's operand. */
static bool find_conflict(const plan_t *plan, const plan_instruction_t *earlier,
                          const plan_instruction_t *later, describe_edge_t *edge)
{
    for (uint32_t j = 0; j < num_operands(later); j++) {
        for (uint32_t i = 0; i < num_operands(earlier); i++) {
            uint32_t a = earlier->first_operand + i;
            uint32_t b = later->first_operand + j;
            if ((!is_write(earlier, i) && !is_write(later, j)) || !describe_shares(plan, a, b)) {
                continue;
            }
            span_t x = describe_span(plan, a);
            span_t y = describe_span(plan, b);
            if (span_overlaps(&x, &y)) {
                edge->operand = b;
                edge->is_write = is_write(later, j);
                return true;
            }
        }
    }
    return false;
}

bool describe_nearest_edge(const plan_t *plan, size_t at, describe_edge_t *out_edge)
{
    const plan_instruction_t *later = &plan->instructions[at];
    for (size_t i = at; i-- > 0;) {
        const plan_instruction_t *earlier = &plan->instructions[i];
        *out_edge = (describe_edge_t){.earlier = i, .operand = UNCOPY_NONE};
        if (later->kind == PLAN_FENCE && earlier->kind == PLAN_COLLECTIVE &&
            earlier->work == later->work) {
            return true;
        }
        if (find_conflict(plan, earlier, later, out_edge)) {
            return true;
        }
    }
    return false;
}
