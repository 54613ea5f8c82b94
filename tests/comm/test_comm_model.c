/* The step's protocol as a model: every interleaving of a few steps is tried, with store buffers.
 *
 * A rank is a small program over shared words, as step.h and wait.h state it: fill the slot (two
 * words), set its flag, look for sleepers and wake them; for each peer wait for its flag, asleep if
 * it has not come, and read its slot. Stores go through the rank's buffer, which empties into
 * memory at any moment; a seq_cst store waits until the buffer is empty. A sleep has no time limit
 * here, so a lost wake-up is a state in which nobody can go on. What must hold: whoever reads a
 * slot finds the step that it waited for, and every rank comes to the end.
 *
 * The search is worth something only if it finds faults: each rule of the protocol is broken once,
 * and the search must say so. */
#include <stdlib.h>

#include "checks.h"

enum { MOST_RANKS = 3, MOST_PENDING = 4, NUM_WORDS = MOST_RANKS * 8, TABLE_BITS = 21 };

typedef enum fault {
    FAULT_NONE,
    FAULT_ONE_SLOT,     /* step k + 1 uses the slot of step k */
    FAULT_NO_FENCE,     /* the flag is a release store: sleepers are looked for before it is seen */
    FAULT_FLAG_FIRST,   /* the flag is set before the slot is filled */
    FAULT_COUNTS_LATE,  /* a sleeper counts itself after it has looked at the flag again */
    FAULT_WAITS_FOR_ONE /* a rank goes on when one peer has come */
} fault_t;

/* What a rank does next. */
typedef enum place {
    FILL_FIRST,
    FILL_SECOND,
    SET_FLAG,
    FENCE,
    LOOK_FOR_SLEEPERS,
    LOOK_AT_FLAG,
    COUNT_ITSELF,
    LOOK_AGAIN,
    SLEEP,
    ASLEEP,
    COUNT_OFF,
    READ_FIRST,
    READ_SECOND,
    DONE
} place_t;

typedef struct model_rank {
    uint8_t place, step, peer, seen; /* peer: 1 .. size-1, counted from the rank */
    uint8_t num_pending, words[MOST_PENDING], values[MOST_PENDING];
} model_rank_t;

typedef struct state {
    uint8_t memory[NUM_WORDS];
    model_rank_t ranks[MOST_RANKS];
} state_t;

typedef enum outcome {
    OUTCOME_FINE,
    OUTCOME_WRONG_SLOT,
    OUTCOME_STUCK,
    OUTCOME_TOO_MANY
} outcome_t;

typedef struct search {
    int32_t size, num_steps;
    fault_t fault;
    outcome_t outcome;
    state_t *states; /* in order of discovery */
    uint32_t *table; /* index of a state + 1 by hash */
    uint32_t num_states;
} search_t;

/* ---------------------------------------------------------------- shared words */

enum { WORD_FIRST, WORD_SECOND, WORD_FLAG, WORD_SLEEPERS };

static uint8_t word(const search_t *s, int32_t owner, uint8_t step, int32_t kind)
{
    int32_t slot = s->fault == FAULT_ONE_SLOT ? 0 : step & 1;
    return (uint8_t)(owner * 8 + slot * 4 + kind);
}

static void store(model_rank_t *rank, uint8_t at, uint8_t value)
{
    rank->words[rank->num_pending] = at;
    rank->values[rank->num_pending++] = value;
}

/* The oldest pending store reaches memory. */
static void drain(state_t *state, int32_t r)
{
    model_rank_t *rank = &state->ranks[r];
    state->memory[rank->words[0]] = rank->values[0];
    rank->num_pending--;
    for (int32_t i = 0; i < MOST_PENDING - 1; i++) {
        rank->words[i] = i < rank->num_pending ? rank->words[i + 1] : 0;
        rank->values[i] = i < rank->num_pending ? rank->values[i + 1] : 0;
    }
    rank->words[MOST_PENDING - 1] = rank->values[MOST_PENDING - 1] = 0;
}

/* Wakes who sleeps on the flag of owner's slot. */
static void wake(const search_t *s, state_t *state, int32_t owner, uint8_t step)
{
    for (int32_t r = 0; r < s->size; r++) {
        model_rank_t *rank = &state->ranks[r];
        int32_t peer = (r + rank->peer) % s->size;
        if (rank->place == ASLEEP && peer == owner &&
            word(s, peer, rank->step, WORD_FLAG) == word(s, owner, step, WORD_FLAG)) {
            rank->place = COUNT_OFF;
        }
    }
}

/* ---------------------------------------------------------------- a rank's program */

static uint8_t after_looking(const search_t *s)
{
    return s->fault == FAULT_COUNTS_LATE ? LOOK_AGAIN : COUNT_ITSELF;
}

static void next_peer(const search_t *s, model_rank_t *rank)
{
    if (rank->peer + 1 < s->size && s->fault != FAULT_WAITS_FOR_ONE) {
        rank->peer++;
        rank->place = LOOK_AT_FLAG;
        return;
    }
    rank->peer = 1;
    rank->step++;
    rank->place = rank->step > s->num_steps      ? DONE
                  : s->fault == FAULT_FLAG_FIRST ? SET_FLAG
                                                 : FILL_FIRST;
}

/* Before and at the flag: the rank's own words. */
static void post(const search_t *s, state_t *state, int32_t r)
{
    model_rank_t *rank = &state->ranks[r];
    bool is_flag_first = s->fault == FAULT_FLAG_FIRST;
    switch (rank->place) {
    case FILL_FIRST:
        store(rank, word(s, r, rank->step, WORD_FIRST), rank->step);
        rank->place = FILL_SECOND;
        return;
    case FILL_SECOND:
        store(rank, word(s, r, rank->step, WORD_SECOND), rank->step);
        rank->place = is_flag_first ? FENCE : SET_FLAG;
        return;
    case SET_FLAG:
        store(rank, word(s, r, rank->step, WORD_FLAG), rank->step);
        rank->place = is_flag_first                ? FILL_FIRST
                      : s->fault == FAULT_NO_FENCE ? LOOK_FOR_SLEEPERS
                                                   : FENCE;
        return;
    case FENCE: /* the caller sees to it that nothing is pending */
        rank->place = LOOK_FOR_SLEEPERS;
        return;
    default:
        if (state->memory[word(s, r, rank->step, WORD_SLEEPERS)] != 0) {
            wake(s, state, r, rank->step);
        }
        rank->place = LOOK_AT_FLAG;
        return;
    }
}

/* The peer's words. False: a slot holds what it must not. */
static bool wait_and_read(const search_t *s, state_t *state, int32_t r)
{
    model_rank_t *rank = &state->ranks[r];
    int32_t peer = (r + rank->peer) % s->size;
    uint8_t flag = state->memory[word(s, peer, rank->step, WORD_FLAG)];
    uint8_t *sleepers = &state->memory[word(s, peer, rank->step, WORD_SLEEPERS)];
    switch (rank->place) {
    case LOOK_AT_FLAG:
        rank->place = flag >= rank->step ? (uint8_t)READ_FIRST : after_looking(s);
        return true;
    case COUNT_ITSELF:
        ++*sleepers;
        rank->place = s->fault == FAULT_COUNTS_LATE ? ASLEEP : LOOK_AGAIN;
        return true;
    case LOOK_AGAIN:
        rank->seen = flag;
        rank->place = flag < rank->step               ? SLEEP
                      : s->fault == FAULT_COUNTS_LATE ? LOOK_AT_FLAG
                                                      : COUNT_OFF;
        return true;
    case SLEEP: /* the kernel compares and lies down in one */
        if (s->fault == FAULT_COUNTS_LATE) {
            rank->place = flag == rank->seen ? COUNT_ITSELF : LOOK_AT_FLAG;
        } else {
            rank->place = flag == rank->seen ? ASLEEP : COUNT_OFF;
        }
        rank->seen = 0;
        return true;
    case COUNT_OFF:
        --*sleepers;
        rank->place = LOOK_AT_FLAG;
        return true;
    case READ_FIRST:
        rank->place = READ_SECOND;
        return state->memory[word(s, peer, rank->step, WORD_FIRST)] == rank->step;
    default: {
        bool is_right = state->memory[word(s, peer, rank->step, WORD_SECOND)] == rank->step;
        next_peer(s, rank);
        return is_right;
    }
    }
}

/* A locked instruction, a seq_cst store and the kernel find the buffer empty. */
static bool needs_empty_buffer(place_t place)
{
    return place == FENCE || place == COUNT_ITSELF || place == SLEEP || place == COUNT_OFF;
}

static bool can_go(const model_rank_t *rank)
{
    bool is_full = rank->num_pending == MOST_PENDING && rank->place <= SET_FLAG;
    return rank->place != ASLEEP && rank->place != DONE && !is_full &&
           (rank->num_pending == 0 || !needs_empty_buffer((place_t)rank->place));
}

/* ---------------------------------------------------------------- the search */

static uint32_t hash(const state_t *state)
{
    const uint8_t *bytes = (const uint8_t *)state;
    uint32_t value = 2166136261U;
    for (size_t i = 0; i < sizeof(*state); i++) {
        value = (value ^ bytes[i]) * 16777619U;
    }
    return value ^ value >> 15;
}

static void discover(search_t *s, const state_t *state)
{
    uint32_t mask = (1U << TABLE_BITS) - 1;
    for (uint32_t at = hash(state) & mask;; at = (at + 1) & mask) {
        if (s->table[at] == 0) {
            if (s->num_states == 1U << (TABLE_BITS - 1)) {
                s->outcome = OUTCOME_TOO_MANY;
                return;
            }
            s->states[s->num_states++] = *state;
            s->table[at] = s->num_states;
            return;
        }
        if (memcmp(&s->states[s->table[at] - 1], state, sizeof(*state)) == 0) {
            return;
        }
    }
}

static void expand(search_t *s, const state_t *state)
{
    int32_t num_done = 0, num_moves = 0;
    for (int32_t r = 0; r < s->size; r++) {
        const model_rank_t *rank = &state->ranks[r];
        num_done += rank->place == DONE;
        if (rank->num_pending > 0) {
            state_t next = *state;
            drain(&next, r);
            discover(s, &next);
            num_moves++;
        }
        if (!can_go(rank)) {
            continue;
        }
        state_t next = *state;
        if (rank->place <= LOOK_FOR_SLEEPERS) {
            post(s, &next, r);
        } else if (!wait_and_read(s, &next, r)) {
            s->outcome = OUTCOME_WRONG_SLOT;
        }
        discover(s, &next);
        num_moves++;
    }
    if (num_moves == 0 && num_done < s->size) {
        s->outcome = OUTCOME_STUCK;
    }
}

static outcome_t explore(int32_t size, int32_t num_steps, fault_t fault)
{
    search_t s = {.size = size, .num_steps = num_steps, .fault = fault};
    s.states = malloc(sizeof(state_t) << (TABLE_BITS - 1));
    s.table = calloc(1U << TABLE_BITS, sizeof(uint32_t));
    if (s.states == NULL || s.table == NULL) {
        perror("model");
        exit(1);
    }
    state_t first;
    memset(&first, 0, sizeof(first));
    for (int32_t r = 0; r < size; r++) {
        first.ranks[r].step = first.ranks[r].peer = 1;
        first.ranks[r].place = fault == FAULT_FLAG_FIRST ? SET_FLAG : FILL_FIRST;
    }
    discover(&s, &first);
    for (uint32_t i = 0; i < s.num_states && s.outcome == OUTCOME_FINE; i++) {
        state_t state = s.states[i];
        expand(&s, &state);
    }
    printf("%d ranks, %d steps, fault %d: %u states\n", size, num_steps, (int)fault, s.num_states);
    free(s.states);
    free(s.table);
    return s.outcome;
}

int main(void)
{
    CHECK_EQUAL_I64(explore(2, 4, FAULT_NONE), OUTCOME_FINE);
    CHECK_EQUAL_I64(explore(3, 3, FAULT_NONE), OUTCOME_FINE);
    CHECK_EQUAL_I64(explore(2, 3, FAULT_ONE_SLOT), OUTCOME_WRONG_SLOT);
    CHECK_EQUAL_I64(explore(2, 3, FAULT_NO_FENCE), OUTCOME_STUCK);
    CHECK_EQUAL_I64(explore(2, 3, FAULT_FLAG_FIRST), OUTCOME_WRONG_SLOT);
    CHECK_EQUAL_I64(explore(2, 3, FAULT_COUNTS_LATE), OUTCOME_STUCK);
    CHECK_EQUAL_I64(explore(3, 4, FAULT_WAITS_FOR_ONE), OUTCOME_WRONG_SLOT);
    return checks_finish("comm_model");
}
