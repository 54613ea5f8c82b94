/* Reductions of a tile program: accumulators and the tree that joins them.
 *
 * A sum's bits are defined over its elements in the order of the reduced dims, cut into tiles of
 * TILE_ELEMENTS. Within a tile element i goes to accumulator i % 16, and the accumulators are
 * joined 8, 4, 2 and 1 apart. Tiles are joined as a binary counter carries: a tile joins the one
 * before it, two the two before them, and so on; at the end what is left joins from the shortest
 * to the longest. So the tree depends on the number of elements alone. A part of whole
 * TILE_SPLIT_TILES tiles is a node of that tree, which is why a long row may be cut there. Products
 * and extremes use the same tree; an argument of an extreme is the first place that holds it.
 *
 * A reduction's memory: its header, a level of lanes for each digit of the counter, and when
 * columns are walked 16 accumulators of lanes. */
#include <string.h>

#include "cpu/tile_code.h"

typedef struct header {
    uint64_t num_tiles; /* joined so far; of an argument: whether there is one */
    number_t neutral;
    bool is_open; /* the accumulators hold a part of a tile */
} header_t;

enum { HEADER_BYTES = TILE_ALIGNMENT };

_Static_assert(sizeof(header_t) <= HEADER_BYTES, "a header has its room");

static bool is_argument(tile_reduction_t reduction)
{
    return reduction == TILE_ARGMAX || reduction == TILE_ARGMIN;
}

fold_t tile_fold(tile_reduction_t reduction)
{
    switch (reduction) {
    case TILE_SUM:
        return FOLD_SUM;
    case TILE_PROD:
        return FOLD_PROD;
    case TILE_AMAX:
    case TILE_ARGMAX:
    case TILE_ANY:
        return FOLD_MAX;
    case TILE_AMIN:
    case TILE_ARGMIN:
    case TILE_ALL:
        break;
    }
    return FOLD_MIN;
}

kind_t tile_fold_kind(kind_t kind)
{
    switch (kind) {
    case KIND_BOOL:
        return KIND_I32;
    case KIND_BF16:
    case KIND_F16:
        return KIND_F32;
    default:
        return kind;
    }
}

static int64_t most_lanes(const tile_kernel_t *code)
{
    return code->mode == TILE_MODE_COLUMNS ? code->tile_columns : 1;
}

static size_t round_up(size_t bytes)
{
    return (bytes + TILE_ALIGNMENT - 1) / TILE_ALIGNMENT * TILE_ALIGNMENT;
}

size_t tile_reduction_bytes(const tile_kernel_t *code, const tile_reduction_code_t *reduction)
{
    size_t lanes = (size_t)most_lanes(code), bytes = (size_t)table_register_bytes(reduction->kind);
    if (is_argument(reduction->reduction)) {
        return round_up(HEADER_BYTES + lanes * 2 * sizeof(int64_t));
    }
    size_t vectors = (size_t)code->num_levels;
    vectors += code->mode == TILE_MODE_COLUMNS ? FOLD_LANES : 0;
    return round_up(HEADER_BYTES + vectors * lanes * bytes);
}

size_t tile_partial_bytes(const tile_kernel_t *code)
{
    return (size_t)most_lanes(code) * 2 * sizeof(number_t);
}

/* ---- one reduction's memory ---- */

typedef struct fold_state {
    header_t *header;
    char *vectors; /* levels, then accumulators; of an argument: values, then indices */
    int64_t lanes;
    int64_t bytes; /* of an element */
    const tile_reduction_code_t *code;
    join_t join;
    fold_row_t fold;
    find_t find;
} fold_state_t;

static fold_state_t open_state(const tile_machine_t *machine, size_t number)
{
    const tile_reduction_code_t *code = &machine->variant->reductions[number];
    const table_t *table = machine->code->table;
    char *memory = machine->room + code->offset;
    return (fold_state_t){.header = (header_t *)(void *)memory,
                          .vectors = memory + HEADER_BYTES,
                          .lanes = machine->lanes,
                          .bytes = table_register_bytes(code->kind),
                          .code = code,
                          .join = table->joins[code->fold][code->kind],
                          .fold = table->folds[code->fold][code->kind],
                          .find = table->finds[code->fold == FOLD_MIN][code->kind]};
}

static char *level(const fold_state_t *state, int64_t number)
{
    return state->vectors + number * state->lanes * state->bytes;
}

static char *accumulators(const tile_machine_t *machine, const fold_state_t *state)
{
    return level(state, machine->code->num_levels);
}

static void fill(char *to, const void *element, int64_t bytes, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        memcpy(to + i * bytes, element, (size_t)bytes);
    }
}

/* Joins one more tile, total, which is overwritten. */
static void push(const fold_state_t *state, char *total)
{
    int64_t number = 0;
    for (uint64_t digits = state->header->num_tiles; (digits & 1) != 0; digits >>= 1) {
        char *older = level(state, number++);
        state->join(older, total, state->lanes);
        total = older;
    }
    memmove(level(state, number), total, (size_t)(state->lanes * state->bytes));
    state->header->num_tiles++;
}

/* The whole, from the shortest part to the longest, to result. */
static void finish(const fold_state_t *state, char *result)
{
    const char *total = NULL;
    int64_t number = 0;
    for (uint64_t digits = state->header->num_tiles; digits != 0; digits >>= 1, number++) {
        if ((digits & 1) == 0) {
            continue;
        }
        if (total != NULL) {
            state->join(level(state, number), total, state->lanes);
        }
        total = level(state, number);
    }
    if (total != NULL) {
        memcpy(result, total, (size_t)(state->lanes * state->bytes));
    } else {
        fill(result, &state->header->neutral, state->bytes, state->lanes);
    }
}

/* ---- arguments of extremes ---- */

/* Whether b, found later, takes the place of a. */
#define IS_BETTER(a, b, is_least) ((is_least ? (b) < (a) : (b) > (a)) || ((b) != (b) && (a) == (a)))

/* What was found may lie at any address. */
#define TAKE_BETTER(T)                                                         \
    do {                                                                       \
        typedef T loose __attribute__((aligned(1), may_alias));                \
        T *best = (T *)(void *)values;                                         \
        const loose *found = (const loose *)(const void *)from;                \
        for (int64_t i = 0; i < state->lanes; i++) {                           \
            if (is_first || IS_BETTER(best[i], found[i], is_least)) {          \
                best[i] = found[i];                                            \
                indices[i] = found_indices == NULL ? index : found_indices[i]; \
            }                                                                  \
        }                                                                      \
    } while (0)

static int64_t *argument_indices(const tile_machine_t *machine, const fold_state_t *state)
{
    int64_t lanes = most_lanes(machine->code);
    return (int64_t *)(void *)(state->vectors + lanes * (int64_t)sizeof(int64_t));
}

/* One vector of lanes whose elements are at index, or at found_indices. */
static void take_better(const tile_machine_t *machine, const fold_state_t *state, const char *from,
                        const int64_t *found_indices, int64_t index)
{
    char *values = state->vectors;
    int64_t *indices = argument_indices(machine, state);
    bool is_first = state->header->num_tiles == 0, is_least = state->code->fold == FOLD_MIN;
    switch (state->code->kind) {
    case KIND_F32:
        TAKE_BETTER(float);
        break;
    case KIND_F64:
        TAKE_BETTER(double);
        break;
    case KIND_I32:
        TAKE_BETTER(int32_t);
        break;
    default:
        TAKE_BETTER(int64_t);
    }
    state->header->num_tiles = 1;
}

/* ---- a phase ---- */

void tile_reductions_open(tile_machine_t *machine, size_t phase)
{
    for (size_t i = 0; i < machine->variant->num_reductions; i++) {
        fold_state_t state = open_state(machine, i);
        if (state.code->phase != phase) {
            continue;
        }
        *state.header = (header_t){0};
        if (is_argument(state.code->reduction)) {
            memset(state.vectors, 0, (size_t)most_lanes(machine->code) * 2 * sizeof(int64_t));
        }
        state.fold(&state.header->neutral, state.vectors, 0);
        if (state.code->reduction == TILE_ANY || state.code->reduction == TILE_ALL) {
            state.header->neutral.i32 = state.code->reduction == TILE_ALL;
        }
    }
}

static void accumulate_row(const tile_machine_t *machine, const fold_state_t *state,
                           const char *from)
{
    if (is_argument(state->code->reduction)) {
        int64_t found = state->find(from, machine->count);
        take_better(machine, state, from + found * state->bytes, NULL, machine->start + found);
        return;
    }
    number_t total;
    state->fold(&total, from, machine->count);
    push(state, (char *)&total);
}

static void accumulate_lanes(const tile_machine_t *machine, const fold_state_t *state,
                             const char *from)
{
    int64_t vector_bytes = state->lanes * state->bytes;
    if (is_argument(state->code->reduction)) {
        for (int64_t r = 0; r < machine->rows; r++) {
            take_better(machine, state, from + r * vector_bytes, NULL, machine->start + r);
        }
        return;
    }
    char *sums = accumulators(machine, state);
    if (!state->header->is_open) {
        number_t neutral;
        state->fold(&neutral, from, 0);
        fill(sums, &neutral, state->bytes, FOLD_LANES * state->lanes);
        state->header->is_open = true;
    }
    for (int64_t r = 0; r < machine->rows;) {
        int64_t place = (machine->start + r) % FOLD_LANES;
        int64_t left = machine->rows - r;
        int64_t steps = left < FOLD_LANES - place ? left : FOLD_LANES - place;
        state->join(sums + place * vector_bytes, from + r * vector_bytes, steps * state->lanes);
        r += steps;
    }
}

void tile_accumulate(tile_machine_t *machine, const tile_step_t *step)
{
    fold_state_t state = open_state(machine, step->reduction);
    if (machine->code->mode == TILE_MODE_COLUMNS) {
        accumulate_lanes(machine, &state, machine->at[step->from[0]]);
    } else {
        accumulate_row(machine, &state, machine->at[step->from[0]]);
    }
}

void tile_reductions_end_tile(tile_machine_t *machine, size_t phase)
{
    for (size_t i = 0; i < machine->variant->num_reductions; i++) {
        fold_state_t state = open_state(machine, i);
        if (state.code->phase != phase || !state.header->is_open) {
            continue;
        }
        char *sums = accumulators(machine, &state);
        for (int64_t apart = FOLD_LANES / 2; apart > 0; apart /= 2) {
            int64_t elements = apart * state.lanes;
            state.join(sums, sums + elements * state.bytes, elements);
        }
        push(&state, sums);
        state.header->is_open = false;
    }
}

void tile_reductions_close(tile_machine_t *machine, size_t phase)
{
    for (size_t i = 0; i < machine->variant->num_reductions; i++) {
        fold_state_t state = open_state(machine, i);
        if (state.code->phase != phase) {
            continue;
        }
        char *result = machine->at[state.code->to];
        if (is_argument(state.code->reduction)) {
            memcpy(result, argument_indices(machine, &state),
                   (size_t)state.lanes * sizeof(int64_t));
        } else {
            finish(&state, result);
        }
    }
}

/* ---- rows in parts ---- */

void tile_reductions_save(tile_machine_t *machine, char *record)
{
    for (size_t i = 0; i < machine->variant->num_reductions; i++) {
        fold_state_t state = open_state(machine, i);
        char *part = record + state.code->partial;
        if (is_argument(state.code->reduction)) {
            memcpy(part, state.vectors, (size_t)(state.lanes * state.bytes));
            memcpy(part + most_lanes(machine->code) * (int64_t)sizeof(number_t),
                   argument_indices(machine, &state), (size_t)state.lanes * sizeof(int64_t));
        } else {
            finish(&state, part);
        }
    }
}

void tile_reductions_join(tile_machine_t *machine, const char *records, int64_t num_records)
{
    char lanes[TILE_MAX_LANES * sizeof(number_t)];
    tile_reductions_open(machine, 0);
    for (int64_t r = 0; r < num_records; r++, records += machine->variant->partial_bytes) {
        for (size_t i = 0; i < machine->variant->num_reductions; i++) {
            fold_state_t state = open_state(machine, i);
            const char *part = records + state.code->partial;
            memcpy(lanes, part, (size_t)(state.lanes * state.bytes));
            if (is_argument(state.code->reduction)) {
                part += most_lanes(machine->code) * (int64_t)sizeof(number_t);
                take_better(machine, &state, lanes, (const int64_t *)(const void *)part, 0);
            } else {
                push(&state, lanes);
            }
        }
    }
    tile_reductions_close(machine, 0);
}
