/* Explains a plan in words: what shares bytes, what stays and why, what was removed, what runs
 * where, what must wait. */
#include "plan/describe.h"

static void explain_sharing(const plan_t *plan, text_t *text)
{
    size_t count = 0;
    text_append(text, "what shares memory\n");
    for (size_t b = 0; b < plan->num_arguments; b++) {
        for (size_t a = 0; a < b; a++) {
            span_t x = describe_argument(plan, a);
            span_t y = describe_argument(plan, b);
            span_relation_t relation = span_relate(&y, &x);
            if (relation != SPAN_DISJOINT) {
                text_append(text, "  %s is %s %s, %lld bytes after its first\n",
                            plan->arguments[b].name, span_relation_name(relation),
                            plan->arguments[a].name, (long long)(y.start - x.start));
                count++;
            }
        }
    }
    if (count == 0) {
        text_append(text, "  nothing: all arguments are apart\n");
    }
}

static void explain_copies(const plan_t *plan, text_t *text)
{
    text_append(text, "copies that stay: %zu\n", plan->num_copies);
    for (size_t i = 0; i < plan->num_copies; i++) {
        const uncopy_copy_t *copy = &plan->copies[i];
        text_append(text, "  %lld bytes at ", (long long)copy->bytes);
        describe_append_line(copy->file, copy->line, text);
        text_append(text, ", %s: %s\n", copy->reason, copy->words);
    }
    if (plan->num_removed > 0) {
        text_append(text, "copies that were removed: %zu\n", plan->num_removed);
    }
    for (size_t i = 0; i < plan->num_removed; i++) {
        text_append(text, "  %s\n", plan->removed[i]);
    }
}

static void explain_moves(const plan_t *plan, text_t *text)
{
    for (size_t i = 0; i < plan->num_instructions; i++) {
        const plan_instruction_t *at = &plan->instructions[i];
        if (at->move_kind == PLAN_MOVE_ASKED) {
            text_append(text,
                        "  instruction %zu moves %lld bytes that the program asks for twice (", i,
                        (long long)at->move_bytes);
            describe_append_line(at->file, at->line, text);
            text_append(text, ")\n");
        }
    }
}

static void explain_externs(const plan_t *plan, text_t *text)
{
    text_append(text, "operations on the host's kernels: %lld\n", (long long)plan->counts.externs);
    for (size_t i = 0; i < plan->num_instructions; i++) {
        const plan_instruction_t *at = &plan->instructions[i];
        if (at->kind == PLAN_HOST_CALL) {
            text_append(text, "  %s at ", describe_instruction(at));
            describe_append_line(at->file, at->line, text);
            text_append(text, "%s\n",
                        at->form == UNCOPY_CALL_OUT ? ", writes where it is told"
                                                    : ", makes its own results");
        }
    }
}

static void explain_order(const plan_t *plan, text_t *text)
{
    static const char *const names[] = {"program", "BFS", "DFS", "RDFS", "StableRDFS"};
    text_append(text, "order: %s\n", names[plan->order]);
    for (size_t i = 0; i < plan->num_instructions; i++) {
        describe_edge_t edge;
        if (!describe_nearest_edge(plan, i, &edge)) {
            continue;
        }
        const plan_instruction_t *earlier = &plan->instructions[edge.earlier];
        text_append(text, "  %s (%zu) runs after %s (%zu)",
                    describe_instruction(&plan->instructions[i]), i, describe_instruction(earlier),
                    edge.earlier);
        if (edge.operand != UNCOPY_NONE) {
            text_append(text, ", because it %s ", edge.is_write ? "writes" : "reads");
            plan_print_operand(plan, edge.operand, text);
        }
        text_append(text, "\n");
    }
}

void plan_explain(const plan_t *plan, text_t *text)
{
    plan_print(plan, text);
    text_append(text, "\n");
    explain_sharing(plan, text);
    explain_copies(plan, text);
    explain_moves(plan, text);
    explain_externs(plan, text);
    explain_order(plan, text);
}
