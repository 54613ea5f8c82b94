/* Prints a plan: a head with the counts, the facts, one line an instruction, the outputs. */
#include "plan/describe.h"

enum { COLUMN_OPERANDS = 26, COLUMN_LINE = 76, COLUMN_EDGE = 92 };

static void print_number(double value, text_t *text)
{
    text_append(text, value == (double)(int64_t)value ? "%.0f" : "%.17g", value);
}

void plan_print_operand(const plan_t *plan, uint32_t operand, text_t *text)
{
    const plan_operand_t *at = &plan->operands[operand];
    const plan_base_t *base = &plan->bases[at->base];
    bool is_storage = base->kind == UNCOPY_BASE_STORAGE;
    if (at->is_whole && !is_storage) {
        text_append(text, "%s", base->name);
        return;
    }
    text_append(text, "%s%s[%lld:%lld]", is_storage ? "storage of " : "", base->name,
                (long long)at->hull_first, (long long)at->hull_end);
}

static void print_range(const plan_t *plan, uint32_t first, size_t count, text_t *text)
{
    for (size_t i = 0; i < count; i++) {
        text_append(text, i == 0 ? "" : ", ");
        plan_print_operand(plan, first + (uint32_t)i, text);
    }
}

/* Operands that are read, numbers among them in their places. */
static void print_reads(const plan_t *plan, const plan_instruction_t *at, text_t *text)
{
    uint32_t first = at->first_operand + at->num_results + at->num_writes;
    if (at->call == NULL || at->kind == PLAN_MOVE_RANK) {
        print_range(plan, first, at->num_reads, text);
        if (at->kind == PLAN_HOST_FILL && at->num_reads == 0) {
            print_number(at->number.number, text);
        }
        return;
    }
    for (int32_t i = 1; i < at->call->num_operands; i++) {
        text_append(text, i == 1 ? "" : ", ");
        if (at->kernel_operands[i] == UNCOPY_NONE) {
            print_number(at->call->operands[i].immediate.number, text);
        } else {
            plan_print_operand(plan, at->kernel_operands[i], text);
        }
    }
}

static void print_name(const plan_instruction_t *at, size_t number, text_t *text)
{
    text_append(text, "%-3zu %s", number, describe_instruction(at));
    if (at->kind == PLAN_HOST_CALL || at->kind == PLAN_HOST_COPY || at->kind == PLAN_HOST_FILL) {
        text_append(text, at->form == UNCOPY_CALL_OUT ? " (extern, out)" : " (extern)");
    }
}

static void print_operands(const plan_t *plan, const plan_instruction_t *at, text_t *text)
{
    if (at->kind == PLAN_FENCE) {
        print_range(plan, at->first_operand, at->num_results, text);
        return;
    }
    print_reads(plan, at, text);
    if (at->num_writes > 0) {
        text_append(text, " writes ");
        print_range(plan, at->first_operand + at->num_results, at->num_writes, text);
    }
    if (at->num_results > 0) {
        text_append(text, " -> ");
        print_range(plan, at->first_operand, at->num_results, text);
    }
}

static void print_instruction(const plan_t *plan, size_t number, text_t *text)
{
    const plan_instruction_t *at = &plan->instructions[number];
    print_name(at, number, text);
    text_append(text, " ");
    text_pad(text, COLUMN_OPERANDS);
    print_operands(plan, at, text);
    if (at->file != NULL) {
        text_append(text, "  ");
        text_pad(text, COLUMN_LINE);
        describe_append_line(at->file, at->line, text);
    }
    describe_edge_t edge;
    if (describe_nearest_edge(plan, number, &edge)) {
        text_append(text, "  ");
        text_pad(text, COLUMN_EDGE);
        text_append(text, "after %zu", edge.earlier);
        if (edge.operand != UNCOPY_NONE) {
            text_append(text, ": %s ", edge.is_write ? "writes" : "reads");
            plan_print_operand(plan, edge.operand, text);
        }
    }
    if (at->move_kind == PLAN_MOVE_COPY) {
        text_append(text, "  copy of %lld B: %s", (long long)at->move_bytes,
                    plan->copies[at->copy].reason);
    }
    text_append(text, "\n");
}

/* The caller's arguments whose bytes meet, and that all others are apart. */
static void print_facts(const plan_t *plan, text_t *text)
{
    size_t count = 0;
    for (size_t b = 0; b < plan->num_arguments; b++) {
        for (size_t a = 0; a < b; a++) {
            span_t x = describe_argument(plan, a);
            span_t y = describe_argument(plan, b);
            span_relation_t relation = span_relate(&y, &x);
            if (relation != SPAN_DISJOINT) {
                text_append(text, "%s%s %s %s", count++ == 0 ? "facts     " : ", ",
                            plan->arguments[b].name, span_relation_name(relation),
                            plan->arguments[a].name);
            }
        }
    }
    if (count > 0) {
        text_append(text, ", all else apart   (bytes below are of the call that was planned)\n");
    }
}

void plan_print(const plan_t *plan, text_t *text)
{
    const uncopy_plan_counts_t *counts = &plan->counts;
    text_append(text, "plan %s: %zu instruction%s, arena %lld B (lower bound %lld B), %lld cop%s, ",
                plan->name, plan->num_instructions, plan->num_instructions == 1 ? "" : "s",
                (long long)counts->arena_bytes, (long long)counts->arena_lower_bound_bytes,
                (long long)counts->copies, counts->copies == 1 ? "y" : "ies");
    text_append(text, "%lld move%s, %lld extern%s\n", (long long)counts->moves,
                counts->moves == 1 ? "" : "s", (long long)counts->externs,
                counts->externs == 1 ? "" : "s");
    print_facts(plan, text);
    for (size_t i = 0; i < plan->num_instructions; i++) {
        print_instruction(plan, i, text);
    }
    for (size_t i = 0; i < plan->num_outputs; i++) {
        text_append(text, "output %zu  ", i);
        text_pad(text, COLUMN_OPERANDS);
        plan_print_operand(plan, plan->outputs[i].bound.id, text);
        text_append(text, "\n");
    }
}
