/* Elide: removes copies, whatever made them.
 *
 * Requires     an indexed unit; the program verified
 * Establishes  every copy that is left carries the reason why no rule removes it, or was asked for
 * Breaks       positions and touches (re-indexed at the end)
 *
 * Words used below: the copy C moves source view S to destination view D. Forwarding a write: S's
 * storage T is scratch, and everything that is done to T is done to D's bytes instead. Forwarding a
 * read: D's storage T is scratch, and readers of T read S's bytes instead. `first` is the position
 * of the first operation that touches T, `at` that of C.
 *
 *          first            at                      forward a write
 *      ------X=====T=====T==C--------T---->         ops X..C work on D instead
 *            |<- w3 w4 w6 ->|<-- w5 ------>         after C, T may be read until D is overwritten
 *
 *                           C====T=====T--->        forward a read
 *                           |<- source  ->|         S is not written until T's last reader is done
 *
 * Rules (each can be left out by -DELIDE_WITHOUT_<rule>, for the tests that show it is needed)
 *   w0  T is scratch and seen by no operation of unknown effects; same dtype
 *   w1  S is injective and covers every byte of T that is touched; D is injective
 *   w2  every view of T restates in D, and each operation takes the restated strides with the same
 *       bits
 *   w3  up to C, an operation on T has its other operands disjoint from D; only the first one may
 *       read exactly the bytes it writes, where its row allows that
 *   w4  up to C, no other operation touches D's bytes
 *   w5  after C nobody writes T, and readers of T come before the next write to D's bytes
 *   w6  if D is an argument's, nothing before C in the stretch may raise on data
 *   r   for reads: T is written by C alone, readers take S's strides and write nothing of S, and S
 *       stays as it is
 *
 * Copies are tried largest first, then by position; each decision is committed before the next is
 * tested, and rounds repeat until nothing changes (each removes a copy). An operation that stands
 * in the stretch and only reads D's bytes is moved above the stretch when nothing forbids it. Cost:
 * for each copy, linear in the touches of T and of D within the stretch. */
#include <stdlib.h>

#include "base/status.h"
#include "compile/elide_attempt.h"

/* Each takes an index of the unit. */
enum { MAX_HOISTS = 8 };

static const char *const codes[REASON_COUNT] = {
#define REASON(name, code, rule, words, example, remedy) code,
#include "compile/reasons.def"
#undef REASON
};

const char *reason_code(reason_t reason)
{
    return codes[reason];
}

/* ---- committing ---- */

static uncopy_status_t replace_view(attempt_t *attempt, uint32_t *view)
{
    if (elide_is_of(attempt->unit, *view, attempt->moved)) {
        unit_view_t restated = elide_restated(attempt, *view);
        TRY(unit_add_view(attempt->unit, &restated, view));
    }
    return UNCOPY_OK;
}

static uncopy_status_t replace_in_op(attempt_t *attempt, unit_op_t *op)
{
    for (size_t i = 0; i < op->num_reads; i++) {
        TRY(replace_view(attempt, &op->reads[i].view));
    }
    for (size_t i = 0; i < op->num_writes; i++) {
        TRY(replace_view(attempt, &op->writes[i]));
    }
    for (size_t i = 0; i < op->num_returns; i++) {
        TRY(replace_view(attempt, &op->returns[i]));
    }
    return UNCOPY_OK;
}

/* T's touches join those of the storage that took its place, by position. */
static uncopy_status_t merge_touches(attempt_t *attempt)
{
    unit_t *unit = attempt->unit;
    unit_storage_t *from = &unit->storages[attempt->moved];
    unit_storage_t *to = &unit->storages[unit->views[attempt->place].storage];
    uint32_t *merged =
        arena_allocate(&unit->arena, from->num_touches + to->num_touches, sizeof(*merged));
    if (merged == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    size_t count = 0;
    size_t i = 0;
    size_t j = 0;
    while (i < from->num_touches || j < to->num_touches) {
        bool takes_from = j == to->num_touches ||
                          (i < from->num_touches && unit->ops[from->touches[i]].position <
                                                        unit->ops[to->touches[j]].position);
        uint32_t op = takes_from ? from->touches[i++] : to->touches[j++];
        if (!unit->ops[op].is_removed && (count == 0 || merged[count - 1] != op)) {
            merged[count++] = op;
        }
    }
    to->touches = merged;
    to->num_touches = count;
    from->num_touches = 0;
    return UNCOPY_OK;
}

static uncopy_status_t note(attempt_t *attempt, const char *words)
{
    unit_t *unit = attempt->unit;
    if (words == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    ARENA_PUSH(&unit->arena, unit->removed, unit->num_removed, unit->removed_capacity, words);
    return UNCOPY_OK;
}

static uncopy_status_t commit(attempt_t *attempt, const char *how)
{
    unit_t *unit = attempt->unit;
    TRY(note(attempt, unit_words(unit, "%s, %s to %s: %s", elide_op_words(attempt, attempt->copy),
                                 elide_view_words(attempt, attempt->source),
                                 elide_view_words(attempt, attempt->target), how)));
    unit->ops[attempt->copy].is_removed = true;
    const unit_storage_t *storage = &unit->storages[attempt->moved];
    for (size_t i = 0; i < storage->num_touches; i++) {
        unit_op_t *op = &unit->ops[storage->touches[i]];
        if (op->is_removed) {
            continue;
        }
        TRY(replace_in_op(attempt, op));
        op->is_removed = unit_is_copy_to_itself(unit, op);
        if (op->is_removed) {
            TRY(note(attempt, unit_words(unit, "%s: the bytes are where they were to go",
                                         unit_op_words(unit, op))));
        }
    }
    return merge_touches(attempt);
}

/* ---- moving what only order keeps in the way ---- */

/* Moves op from its position up to `to`; positions between shift by one. */
static void move_up(unit_t *unit, uint32_t op, uint32_t to)
{
    for (uint32_t p = unit->ops[op].position; p > to; p--) {
        unit->order[p] = unit->order[p - 1];
        unit->ops[unit->order[p]].position = p;
    }
    unit->order[to] = op;
    unit->ops[op].position = to;
}

/* Moves the blocker up if it conflicts with nothing that it would pass. */
static uncopy_status_t hoist(attempt_t *attempt, bool *out_moved)
{
    unit_t *unit = attempt->unit;
    *out_moved = false;
    if (attempt->blocker == UNCOPY_NONE || unit->ops[attempt->blocker].partner != UNCOPY_NONE) {
        return UNCOPY_OK;
    }
    const unit_op_t *op = &unit->ops[attempt->blocker];
    for (uint32_t p = attempt->hoist_to; p < op->position; p++) {
        const unit_op_t *other = &unit->ops[unit->order[p]];
        bool has_conflict = false;
        uint32_t a = 0;
        uint32_t b = 0;
        if (!other->is_removed) {
            TRY(depend_conflicts(unit, other, op, &has_conflict, &a, &b));
        }
        if (has_conflict) {
            return UNCOPY_OK;
        }
    }
    move_up(unit, attempt->blocker, attempt->hoist_to);
    *out_moved = true;
    return unit_index(unit);
}

/* ---- the pass ---- */

static uncopy_status_t forward_write(attempt_t *attempt)
{
    unit_t *unit = attempt->unit;
    bool is_settled = false;
    for (int hoists = 0; !is_settled; hoists++) {
        bool has_moved = false;
        attempt->at = unit->ops[attempt->copy].position;
        attempt->blocker = UNCOPY_NONE;
        TRY(elide_try_write(attempt));
        if (!attempt->is_legal && hoists < MAX_HOISTS) {
            TRY(hoist(attempt, &has_moved));
        }
        is_settled = !has_moved;
    }
    return UNCOPY_OK;
}

static uncopy_status_t try_copy(unit_t *unit, uint32_t number, bool *out_removed)
{
    unit_op_t *op = &unit->ops[number];
    attempt_t attempt = {.unit = unit,
                         .copy = number,
                         .source = op->reads[0].view,
                         .target = op->writes[0],
                         .at = op->position,
                         .blocker = UNCOPY_NONE};
    uint32_t from = unit->views[attempt.source].storage;
    uint32_t to = unit->views[attempt.target].storage;
    *out_removed = false;
    if (from == to) {
        op->reason = (unit_reason_t){REASON_ONE_STORAGE,
                                     unit_words(unit, "%s and %s are parts of one storage",
                                                elide_view_words(&attempt, attempt.source),
                                                elide_view_words(&attempt, attempt.target))};
        return op->reason.words == NULL ? UNCOPY_ERROR_MEMORY : UNCOPY_OK;
    }
    TRY(forward_write(&attempt));
    if (attempt.is_legal) {
        *out_removed = true;
        return commit(&attempt, "the maker of the source writes the destination instead");
    }
    reason_t reason = attempt.reason;
    const char *words = attempt.words;
    TRY(elide_try_read(&attempt));
    if (attempt.is_legal) {
        *out_removed = true;
        return commit(&attempt, "readers of the copy read the source instead");
    }
    bool has_scratch_source = unit->storages[from].kind == IR_STORAGE_SCRATCH;
    op->reason = has_scratch_source ? (unit_reason_t){(int)reason, words}
                                    : (unit_reason_t){(int)attempt.reason, attempt.words};
    return UNCOPY_OK;
}

/* A conversion of scratch into the caller's memory: the bytes are made once and written again in
 * another dtype. */
static uncopy_status_t explain_conversion(unit_t *unit, unit_op_t *op)
{
    if (op->opcode != OPCODE_CONVERT) {
        return UNCOPY_OK;
    }
    uint32_t from = op->reads[0].view;
    uint32_t to = op->writes[0];
    if (unit->storages[unit->views[from].storage].kind != IR_STORAGE_SCRATCH ||
        unit->storages[unit->views[to].storage].kind != IR_STORAGE_ARGUMENT) {
        return UNCOPY_OK;
    }
    op->reason = (unit_reason_t){REASON_CONVERTED,
                                 unit_words(unit, "%s is %s, %s is %s", unit_view_words(unit, from),
                                            uncopy_dtype_name(unit->views[from].dtype),
                                            unit_view_words(unit, to),
                                            uncopy_dtype_name(unit->views[to].dtype))};
    return op->reason.words == NULL ? UNCOPY_ERROR_MEMORY : UNCOPY_OK;
}

typedef struct candidate {
    int64_t bytes;
    uint32_t op, position;
} candidate_t;

static int compare_candidates(const void *a, const void *b)
{
    const candidate_t *x = a;
    const candidate_t *y = b;
    int by_bytes = (x->bytes < y->bytes) - (x->bytes > y->bytes);
    return by_bytes != 0 ? by_bytes : (x->position > y->position) - (x->position < y->position);
}

static uncopy_status_t list_candidates(unit_t *unit, candidate_t **out_list, size_t *out_count)
{
    candidate_t *list = arena_allocate(&unit->arena, unit->num_order, sizeof(*list));
    if (list == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    size_t count = 0;
    for (size_t i = 0; i < unit->num_order; i++) {
        const unit_op_t *op = &unit->ops[unit->order[i]];
        if (op->opcode == OPCODE_COPY) {
            const span_t *span = &unit->views[op->writes[0]].span;
            list[count++] =
                (candidate_t){span_count(span) * span->element_bytes, unit->order[i], op->position};
        }
    }
    qsort(list, count, sizeof(*list), compare_candidates);
    *out_list = list;
    *out_count = count;
    return UNCOPY_OK;
}

uncopy_status_t elide_run(unit_t *unit)
{
    candidate_t *list = NULL;
    size_t count = 0;
    TRY(list_candidates(unit, &list, &count));
    for (size_t i = 0; i < unit->num_order; i++) {
        TRY(explain_conversion(unit, &unit->ops[unit->order[i]]));
    }
    bool has_changed = true;
    while (has_changed) {
        has_changed = false;
        for (size_t i = 0; i < count; i++) {
            bool is_removed = false;
            if (!unit->ops[list[i].op].is_removed) {
                TRY(try_copy(unit, list[i].op, &is_removed));
            }
            has_changed |= is_removed;
        }
    }
    return unit_index(unit);
}
