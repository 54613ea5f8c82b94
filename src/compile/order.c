/* Order: lays operations out as the options ask.
 *
 * Requires     an indexed unit
 * Establishes  an order in which every pair in conflict stands as it did; collectives as captured
 * Breaks       positions (re-indexed at the end)
 *
 *   program, StableRDFS  as captured: no pass of ours adds operations that must be fitted in
 *   BFS                  level by level: an operation runs once all it depends on has run, ties
 *                        by position
 *   DFS                  follows one chain to its end before it begins another
 *   RDFS                 starts at the last operations, visits what each depends on depth-first,
 *                        emits afterwards
 *
 * (names and meanings: the sort strategies of Ascend's graph engine). Dependences are the conflicts
 * of depend.h, of which the chain of all collectives is one. Cost: quadratic in the operations for
 * all but program order. */
#include "base/status.h"
#include "compile/depend.h"
#include "compile/passes.h"

typedef struct graph {
    unit_t *unit;
    size_t count;
    bool *edges;       /* edges[i * count + j]: j depends on i, both positions, i < j */
    uint32_t *missing; /* dependences of each that have not run yet */
    uint32_t *result;
    bool *is_done;
    size_t num_result;
} graph_t;

static uncopy_status_t build_graph(unit_t *unit, graph_t *graph)
{
    size_t count = unit->num_order;
    *graph = (graph_t){.unit = unit, .count = count};
    graph->edges = arena_allocate(&unit->arena, count * count, sizeof(bool));
    graph->missing = arena_allocate(&unit->arena, count, sizeof(uint32_t));
    graph->result = arena_allocate(&unit->arena, count, sizeof(uint32_t));
    graph->is_done = arena_allocate(&unit->arena, count, sizeof(bool));
    if (graph->edges == NULL || graph->missing == NULL || graph->result == NULL ||
        graph->is_done == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    for (size_t j = 0; j < count; j++) {
        for (size_t i = 0; i < j; i++) {
            bool has_conflict = false;
            uint32_t a = 0;
            uint32_t b = 0;
            TRY(depend_conflicts(unit, &unit->ops[unit->order[i]], &unit->ops[unit->order[j]],
                                 &has_conflict, &a, &b));
            graph->edges[i * count + j] = has_conflict;
            graph->missing[j] += has_conflict;
        }
    }
    return UNCOPY_OK;
}

static void emit(graph_t *graph, size_t i)
{
    graph->result[graph->num_result++] = graph->unit->order[i];
    graph->is_done[i] = true;
    for (size_t j = i + 1; j < graph->count; j++) {
        graph->missing[j] -= graph->edges[i * graph->count + j];
    }
}

static uncopy_status_t order_breadth_first(graph_t *graph)
{
    bool *is_ready = arena_allocate(&graph->unit->arena, graph->count, sizeof(bool));
    if (is_ready == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    while (graph->num_result < graph->count) {
        for (size_t i = 0; i < graph->count; i++) {
            is_ready[i] = !graph->is_done[i] && graph->missing[i] == 0;
        }
        for (size_t i = 0; i < graph->count; i++) {
            if (is_ready[i]) {
                emit(graph, i);
            }
        }
    }
    return UNCOPY_OK;
}

/* A stack of ready operations; what one makes ready comes before what was ready before, earliest on
 * top. */
static uncopy_status_t order_depth_first(graph_t *graph)
{
    size_t *stack = arena_allocate(&graph->unit->arena, graph->count, sizeof(size_t));
    if (stack == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    size_t depth = 0;
    for (size_t i = graph->count; i-- > 0;) {
        if (graph->missing[i] == 0) {
            stack[depth++] = i;
        }
    }
    while (depth > 0) {
        size_t i = stack[--depth];
        emit(graph, i);
        for (size_t j = graph->count; j-- > i + 1;) {
            if (graph->edges[i * graph->count + j] && graph->missing[j] == 0) {
                stack[depth++] = j;
            }
        }
    }
    return UNCOPY_OK;
}

/* Visits with a stack of its own: entries are (operation, next dependence to look at). What an
 * operation depends on comes before it, so that none is on the stack twice. */
static void visit_reverse(graph_t *graph, size_t root, size_t *stack, size_t *next)
{
    size_t depth = 0;
    stack[depth] = root;
    next[depth++] = 0;
    while (depth > 0) {
        size_t at = stack[depth - 1];
        size_t i = next[depth - 1];
        while (i < at && (!graph->edges[i * graph->count + at] || graph->is_done[i])) {
            i++;
        }
        next[depth - 1] = i + 1;
        if (i < at) {
            stack[depth] = i;
            next[depth++] = 0;
        } else {
            emit(graph, at);
            depth--;
        }
    }
}

static bool is_sink(const graph_t *graph, size_t i)
{
    for (size_t j = i + 1; j < graph->count; j++) {
        if (graph->edges[i * graph->count + j]) {
            return false;
        }
    }
    return true;
}

static uncopy_status_t order_reverse_depth_first(graph_t *graph)
{
    size_t *stack = arena_allocate(&graph->unit->arena, graph->count + 1, sizeof(size_t));
    size_t *next = arena_allocate(&graph->unit->arena, graph->count + 1, sizeof(size_t));
    if (stack == NULL || next == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    for (size_t i = 0; i < graph->count; i++) {
        if (is_sink(graph, i)) {
            visit_reverse(graph, i, stack, next);
        }
    }
    return UNCOPY_OK;
}

/* ---- overlap ---- */

static uncopy_status_t swaps(unit_t *unit, size_t i, bool *out_swaps)
{
    bool has_conflict = true;
    uint32_t a = 0;
    uint32_t b = 0;
    TRY(depend_conflicts(unit, &unit->ops[unit->order[i]], &unit->ops[unit->order[i + 1]],
                         &has_conflict, &a, &b));
    *out_swaps = !has_conflict;
    if (!has_conflict) {
        uint32_t first = unit->order[i];
        unit->order[i] = unit->order[i + 1];
        unit->order[i + 1] = first;
        unit->ops[unit->order[i]].position = (uint32_t)i;
        unit->ops[first].position = (uint32_t)i + 1;
    }
    return UNCOPY_OK;
}

/* Starts move up and fences down, one neighbour at a time, as far as conflicts allow. */
static uncopy_status_t overlap(unit_t *unit)
{
    for (size_t i = 1; i < unit->num_order; i++) {
        bool moves = op_row(unit->ops[unit->order[i]].opcode)->class_ == OP_CLASS_COLLECTIVE;
        for (size_t at = i; moves && at > 0; at--) {
            TRY(swaps(unit, at - 1, &moves));
        }
    }
    for (size_t i = unit->num_order; i-- > 0;) {
        bool moves = unit->ops[unit->order[i]].opcode == OPCODE_FENCE;
        for (size_t at = i; moves && at + 1 < unit->num_order; at++) {
            TRY(swaps(unit, at, &moves));
        }
    }
    return UNCOPY_OK;
}

uncopy_status_t order_run(unit_t *unit)
{
    uncopy_order_t order = unit->options->order;
    if (order == UNCOPY_ORDER_BFS || order == UNCOPY_ORDER_DFS || order == UNCOPY_ORDER_RDFS) {
        graph_t graph;
        TRY(build_graph(unit, &graph));
        TRY(order == UNCOPY_ORDER_BFS   ? order_breadth_first(&graph)
            : order == UNCOPY_ORDER_DFS ? order_depth_first(&graph)
                                        : order_reverse_depth_first(&graph));
        unit->order = graph.result;
    }
    TRY(unit_index(unit));
    if (unit->options->has_overlap) {
        TRY(overlap(unit));
    }
    return unit_index(unit);
}
