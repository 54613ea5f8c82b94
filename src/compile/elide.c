/* Elide: removes copies, whatever made them.
 *
 * Requires     an indexed unit; the program verified
 * Establishes  every copy that is left carries the reason why no rule removes it, or was asked for
 * Breaks       positions and touches (re-indexed at the end)
 *
 * Words used below: the copy C moves source view S to destination view D. Forwarding a write: S's storage T is scratch,
 * and everything that is done to T is done to D's bytes instead. Forwarding a read: D's storage T is scratch, and readers
 * of T read S's bytes instead. `first` is the position of the first operation that touches T, `at` that of C.
 *
 *          first            at                      forward a write
 *      ------X=====T=====T==C--------T---->         ops at X..C work on D; w3, w4 guard the stretch =====
 *            |<- w3 w4 w6 ->|<-- w5 ------>         after C, T may be read until D is overwritten
 *
 *                           C====T=====T--->        forward a read
 *                           |<- source  ->|         S is not written until T's last reader is done
 *
 * Rules (each can be left out by -DELIDE_WITHOUT_<rule>, for the tests that show it is needed)
 *   w0  T is scratch and seen by no operation of unknown effects; same dtype
 *   w1  S is injective and covers every byte of T that is touched; D is injective
 *   w2  every view of T restates in D, and each operation takes the restated strides with the same bits
 *   w3  up to C, an operation on T has its other operands disjoint from D; only the first one may read exactly the bytes
 *       it writes, where its row allows that
 *   w4  up to C, no other operation touches D's bytes
 *   w5  after C nobody writes T, and readers of T come before the next write to D's bytes
 *   w6  if D is an argument's, nothing before C in the stretch may raise on data
 *   r   for reads: T is written by C alone, readers take S's strides and write nothing of S, S stays as it is
 *
 * Copies are tried largest first, then by position; each decision is committed before the next is tested, and rounds
 * repeat until nothing changes. An operation that stands in the stretch and only reads D's bytes is moved above the
 * stretch when nothing forbids it. Cost: for each copy, linear in the touches of T and of D within the stretch. */
#include <stdlib.h>

#include "base/status.h"
#include "compile/depend.h"
#include "compile/passes.h"

#ifdef ELIDE_WITHOUT_W0
#define HAS_W0 0
#else
#define HAS_W0 1
#endif
#ifdef ELIDE_WITHOUT_W1
#define HAS_W1 0
#else
#define HAS_W1 1
#endif
#ifdef ELIDE_WITHOUT_W2
#define HAS_W2 0
#else
#define HAS_W2 1
#endif
#ifdef ELIDE_WITHOUT_W3
#define HAS_W3 0
#else
#define HAS_W3 1
#endif
#ifdef ELIDE_WITHOUT_W4
#define HAS_W4 0
#else
#define HAS_W4 1
#endif
#ifdef ELIDE_WITHOUT_W5
#define HAS_W5 0
#else
#define HAS_W5 1
#endif
#ifdef ELIDE_WITHOUT_W6
#define HAS_W6 0
#else
#define HAS_W6 1
#endif
#ifdef ELIDE_WITHOUT_R
#define HAS_R 0
#else
#define HAS_R 1
#endif

enum { MAX_ROUNDS = 4, MAX_HOISTS = 8 };

static const char *const codes[REASON_COUNT] = {
#define REASON(name, code, rule, words) code,
#include "compile/reasons.def"
#undef REASON
};

const char *reason_code(reason_t reason)
{
    return codes[reason];
}

/* One copy under test, and what was found so far. */
typedef struct attempt {
    unit_t *unit;
    uint32_t copy;     /* C */
    uint32_t source;   /* S */
    uint32_t target;   /* D */
    uint32_t moved;    /* T: S's storage when a write is forwarded, D's when a read is */
    uint32_t anchor;   /* the view whose map T's views are restated through: S for writes, D for reads */
    uint32_t place;    /* the view that takes its place: D for writes, S for reads */
    uint32_t at;       /* position of C */
    uint32_t first;    /* position of T's first touch */
    uint32_t blocker;  /* operation that only order keeps in the way, UNCOPY_NONE */
    uint32_t hoist_to; /* the position to which it would have to move */
    reason_t reason;
    const char *words;
    bool is_legal;
} attempt_t;

static uncopy_status_t refuse(attempt_t *attempt, reason_t reason, const char *words)
{
    attempt->is_legal = false;
    attempt->reason = reason;
    attempt->words = words;
    return words == NULL ? UNCOPY_ERROR_MEMORY : UNCOPY_OK;
}

static const char *op_words(attempt_t *attempt, uint32_t op)
{
    return unit_op_words(attempt->unit, &attempt->unit->ops[op]);
}

static const char *view_words(attempt_t *attempt, uint32_t view)
{
    return unit_view_words(attempt->unit, view);
}

/* Restates a view of T; false with no reason set when it has no equal. */
static bool restate(const attempt_t *attempt, uint32_t view, unit_view_t *out_view)
{
    const unit_t *unit = attempt->unit;
    const unit_view_t *from = &unit->views[view];
    const unit_view_t *place = &unit->views[attempt->place];
    *out_view = (unit_view_t){.storage = place->storage,
                              .is_from_storage = place->is_from_storage,
                              .dtype = from->dtype,
                              .name = place->name};
    return span_restate(&from->span, &unit->views[attempt->anchor].span, &place->span,
                        &out_view->span);
}

static uncopy_status_t refuse_layout(attempt_t *attempt, const unit_op_t *op, uint32_t view,
                                     reason_t reason)
{
    unit_t *unit = attempt->unit;
    span_relation_t relation =
        span_relate(&unit->views[attempt->anchor].span, &unit->views[view].span);
    bool is_covered = relation == SPAN_SAME || relation == SPAN_CONTAINS;
    if (!is_covered) {
        return refuse(attempt, REASON_NOT_COVERED,
                      unit_words(unit, "%s touches %s, of which the copy moves only %s",
                                 unit_op_words(unit, op), unit_view_words(unit, view),
                                 unit_view_words(unit, attempt->anchor)));
    }
    return refuse(attempt, reason,
                  unit_words(unit, "%s works on %s, and would have to work on %s with its strides",
                             unit_op_words(unit, op), unit_view_words(unit, view),
                             unit_view_words(unit, attempt->place)));
}

/* ---- w2: which operations take which strides ---- */

static bool has_native_kernel(const unit_t *unit, const unit_op_t *op)
{
    if (unit->options->kernels == UNCOPY_KERNELS_EXTERN && op->host_id >= 0) {
        return false;
    }
    uncopy_dtype_t result = unit->views[op->writes[0]].dtype;
    uncopy_dtype_t read = result;
    for (size_t i = 0; i < op->num_reads; i++) {
        read = op->reads[i].view != UNCOPY_NONE ? unit->views[op->reads[i].view].dtype : read;
    }
    return target_takes(unit->target, op->opcode, read, result);
}

/* Whether the operation takes view t as an operand it reads, with the strides of r, and the same bits. */
static bool takes_read(const unit_t *unit, const unit_op_t *op, const span_t *t, const span_t *r)
{
    switch (op_row(op->opcode)->class_) {
    case OP_CLASS_POINTWISE:
    case OP_CLASS_MOVE:
        return true; /* element by element: ours and the host's alike */
    case OP_CLASS_COLLECTIVE:
        return span_is_contiguous(r);
    case OP_CLASS_FENCE:
    case OP_CLASS_ORDER:
        return true;
    case OP_CLASS_MATMUL:
        return span_has_same_layout(t, r);
    case OP_CLASS_EXTERN:
        return (op->effects & UNCOPY_EFFECT_LAYOUT) == 0 || span_has_same_layout(t, r);
    }
    (void)unit;
    return false;
}

/* Likewise for a view it writes. *out_reason says what is missing. */
static bool takes_write(const unit_t *unit, const unit_op_t *op, bool is_return, const span_t *t,
                        const span_t *r, reason_t *out_reason)
{
    op_class_t class_ = op_row(op->opcode)->class_;
    *out_reason = REASON_LAYOUT;
    if (class_ == OP_CLASS_COLLECTIVE) {
        return span_is_contiguous(r);
    }
    if (class_ == OP_CLASS_FENCE || class_ == OP_CLASS_MOVE) {
        return true;
    }
    bool needs_out = class_ == OP_CLASS_EXTERN ? is_return : !has_native_kernel(unit, op);
    if (needs_out && ((op->effects & UNCOPY_EFFECT_OUT) == 0 || op->num_returns > 1)) {
        *out_reason = REASON_NO_OUT_FORM;
        return false;
    }
    if (class_ == OP_CLASS_POINTWISE && !needs_out) {
        return true;
    }
    return (needs_out && (op->effects & UNCOPY_EFFECT_OUT_LAYOUT) != 0) || span_has_same_layout(t, r);
}

static uncopy_status_t check_read(attempt_t *attempt, const unit_op_t *op, uint32_t view,
                                  reason_t reason)
{
    unit_view_t restated;
    if (!restate(attempt, view, &restated)) {
        return refuse_layout(attempt, op, view, reason);
    }
    if (HAS_W2 && !takes_read(attempt->unit, op, &attempt->unit->views[view].span, &restated.span)) {
        return refuse_layout(attempt, op, view, reason);
    }
    return UNCOPY_OK;
}

static uncopy_status_t check_write(attempt_t *attempt, const unit_op_t *op, uint32_t view,
                                   bool is_return)
{
    unit_view_t restated;
    if (!restate(attempt, view, &restated)) {
        return refuse_layout(attempt, op, view, REASON_LAYOUT);
    }
    reason_t reason = REASON_NONE;
    if (HAS_W2 && !takes_write(attempt->unit, op, is_return, &attempt->unit->views[view].span,
                               &restated.span, &reason)) {
        if (reason == REASON_NO_OUT_FORM) {
            return refuse(attempt, reason,
                          unit_words(attempt->unit, "%s makes its result itself and cannot write %s",
                                     unit_op_words(attempt->unit, op),
                                     unit_view_words(attempt->unit, attempt->place)));
        }
        return refuse_layout(attempt, op, view, reason);
    }
    return UNCOPY_OK;
}

static bool is_of(const unit_t *unit, uint32_t view, uint32_t storage)
{
    return view != UNCOPY_NONE && unit->views[view].storage == storage;
}

/* w1, w2 for every view of T that op uses. */
static uncopy_status_t check_views(attempt_t *attempt, const unit_op_t *op, reason_t read_reason)
{
    const unit_t *unit = attempt->unit;
    for (size_t i = 0; i < op->num_reads && attempt->is_legal; i++) {
        if (is_of(unit, op->reads[i].view, attempt->moved)) {
            TRY(check_read(attempt, op, op->reads[i].view, read_reason));
        }
    }
    for (size_t i = 0; i < op->num_writes && attempt->is_legal; i++) {
        if (is_of(unit, op->writes[i], attempt->moved)) {
            TRY(check_write(attempt, op, op->writes[i], false));
        }
    }
    for (size_t i = 0; i < op->num_returns && attempt->is_legal; i++) {
        if (is_of(unit, op->returns[i], attempt->moved)) {
            TRY(check_write(attempt, op, op->returns[i], true));
        }
    }
    return UNCOPY_OK;
}

/* ---- w3: operands of one operation ---- */

/* A gather may read its own slot of the destination: the bytes it would write there are those it reads. */
static bool is_own_slot(attempt_t *attempt, const unit_op_t *op, const unit_view_t *written, uint32_t other)
{
    unit_t *unit = attempt->unit;
    if (op->opcode != OPCODE_ALL_GATHER || !span_is_contiguous(&written->span)) {
        return false;
    }
    const span_t *source = &unit->views[other].span;
    int64_t bytes = span_count(source) * source->element_bytes;
    unit_view_t slot = *written;
    slot.span.rank = source->rank;
    slot.span.start += bytes * unit->program->groups[op->group].rank;
    for (int32_t d = 0; d < source->rank; d++) {
        slot.span.sizes[d] = source->sizes[d];
        slot.span.strides[d] = source->strides[d];
    }
    uint32_t number = 0;
    return span_is_contiguous(source) && unit_add_view(unit, &slot, &number) == UNCOPY_OK &&
           depend_relate(unit, number, other) == SPAN_SAME;
}

/* Whether operand `other`, read by the first operation on T, may lie on the bytes of D: exactly those it writes. */
static bool may_be_in_place(attempt_t *attempt, const unit_op_t *op, uint32_t other)
{
    unit_t *unit = attempt->unit;
    unit_view_t restated;
    if (op->position != attempt->first || op->num_writes != 1 || op->num_returns != 0 ||
        !restate(attempt, op->writes[0], &restated)) {
        return false;
    }
    if (is_own_slot(attempt, op, &restated, other)) {
        return true;
    }
    uint32_t number = 0;
    return (op_row(op->opcode)->flags & OP_FLAG_IN_PLACE) != 0 &&
           unit_add_view(unit, &restated, &number) == UNCOPY_OK &&
           depend_relate(unit, number, other) == SPAN_SAME;
}

static uncopy_status_t check_other(attempt_t *attempt, const unit_op_t *op, uint32_t other, bool is_read)
{
    unit_t *unit = attempt->unit;
    if (other == UNCOPY_NONE || is_of(unit, other, attempt->moved) ||
        !depend_overlaps(unit, attempt->place, other) ||
        (is_read && may_be_in_place(attempt, op, other))) {
        return UNCOPY_OK;
    }
    return refuse(attempt, REASON_OPERAND_OVERLAP,
                  unit_words(unit, "%s %s %s, which overlaps the destination %s", unit_op_words(unit, op),
                             is_read ? "reads" : "writes", unit_view_words(unit, other),
                             unit_view_words(unit, attempt->place)));
}

static uncopy_status_t check_operands(attempt_t *attempt, const unit_op_t *op)
{
    for (size_t i = 0; HAS_W3 && i < op->num_reads && attempt->is_legal; i++) {
        TRY(check_other(attempt, op, op->reads[i].view, true));
    }
    for (size_t i = 0; HAS_W3 && i < op->num_writes && attempt->is_legal; i++) {
        TRY(check_other(attempt, op, op->writes[i], false));
    }
    return UNCOPY_OK;
}

/* ---- forwarding a write ---- */

static bool is_seen_outside(const unit_t *unit, uint32_t storage)
{
    const unit_storage_t *at = &unit->storages[storage];
    return at->kind != IR_STORAGE_SCRATCH || at->is_exposed;
}

/* w0 and the parts of w1 that need no other operation. */
static uncopy_status_t check_ends(attempt_t *attempt)
{
    unit_t *unit = attempt->unit;
    if (HAS_W0 && is_seen_outside(unit, attempt->moved)) {
        return refuse(attempt, REASON_RESULT_KEPT,
                      unit_words(unit, "%s is seen outside this function, and so is %s",
                                 view_words(attempt, attempt->source),
                                 view_words(attempt, attempt->target)));
    }
    uint32_t bad = !span_is_injective(&unit->views[attempt->target].span)   ? attempt->target
                   : !span_is_injective(&unit->views[attempt->source].span) ? attempt->source
                                                                            : UNCOPY_NONE;
    if (HAS_W1 && bad != UNCOPY_NONE) {
        return refuse(attempt, REASON_NOT_INJECTIVE,
                      unit_words(unit, "%s lists a byte more than once", view_words(attempt, bad)));
    }
    return UNCOPY_OK;
}

static bool writes_storage(const unit_t *unit, const unit_op_t *op, uint32_t storage)
{
    if (op->opcode == OPCODE_FENCE) {
        return false;
    }
    for (size_t i = 0; i < op->num_writes; i++) {
        if (unit->views[op->writes[i]].storage == storage) {
            return true;
        }
    }
    for (size_t i = 0; i < op->num_returns; i++) {
        if (unit->views[op->returns[i]].storage == storage && !op->return_is_alias[i]) {
            return true;
        }
    }
    return false;
}

/* w6 for one operation of the stretch. */
static uncopy_status_t check_raises(attempt_t *attempt)
{
    unit_t *unit = attempt->unit;
    uint32_t place = unit->views[attempt->place].storage;
    if (!HAS_W6 || unit->storages[place].kind != IR_STORAGE_ARGUMENT) {
        return UNCOPY_OK;
    }
    for (uint32_t p = attempt->first; p < attempt->at; p++) {
        const unit_op_t *op = &unit->ops[unit->order[p]];
        bool may_raise = (op->effects & UNCOPY_EFFECT_RAISES) != 0 ||
                         (op->effects & UNCOPY_EFFECT_AUDITED) == 0;
        if (!op->is_removed && may_raise) {
            return refuse(attempt, REASON_MAY_RAISE,
                          unit_words(unit, "%s may raise before the copy, when %s must still be as it was",
                                     unit_op_words(unit, op), unit_view_words(unit, attempt->place)));
        }
    }
    return UNCOPY_OK;
}

/* w4. */
static uncopy_status_t check_between(attempt_t *attempt)
{
    unit_t *unit = attempt->unit;
    depend_query_t query = {.view = attempt->place,
                            .from = attempt->first,
                            .to = attempt->at,
                            .skip = attempt->copy,
                            .skip_storage = attempt->moved};
    depend_hit_t hit;
    TRY(depend_find(unit, &query, &hit));
    if (!HAS_W4 || hit.op == UNCOPY_NONE) {
        return UNCOPY_OK;
    }
    attempt->blocker = hit.is_write ? UNCOPY_NONE : hit.op;
    attempt->hoist_to = attempt->first;
    return refuse(attempt, REASON_TOUCHED_BETWEEN,
                  unit_words(unit, "%s %s %s between %s, which first writes the copied bytes, and the copy",
                             op_words(attempt, hit.op), hit.is_write ? "writes" : "reads",
                             hit.view == UNCOPY_NONE ? "what nobody knows of"
                                                     : view_words(attempt, hit.view),
                             op_words(attempt, unit->order[attempt->first])));
}

/* w5. */
static uncopy_status_t check_after(attempt_t *attempt)
{
    unit_t *unit = attempt->unit;
    depend_query_t query = {.view = attempt->place,
                            .writes_only = true,
                            .from = attempt->at + 1,
                            .to = (uint32_t)unit->num_order,
                            .skip = UNCOPY_NONE,
                            .skip_storage = UNCOPY_NONE};
    depend_hit_t hit;
    TRY(depend_find(unit, &query, &hit));
    uint32_t overwritten = hit.op == UNCOPY_NONE ? UINT32_MAX : unit->ops[hit.op].position;
    const unit_storage_t *storage = &unit->storages[attempt->moved];
    for (size_t i = 0; HAS_W5 && i < storage->num_touches; i++) {
        const unit_op_t *op = &unit->ops[storage->touches[i]];
        if (op->is_removed || op->position <= attempt->at) {
            continue;
        }
        if (writes_storage(unit, op, attempt->moved)) {
            return refuse(attempt, REASON_WRITTEN_AFTER,
                          unit_words(unit, "%s writes %s after the copy", unit_op_words(unit, op),
                                     view_words(attempt, attempt->source)));
        }
        if (op->position >= overwritten) {
            attempt->blocker = storage->touches[i];
            attempt->hoist_to = attempt->at + 1;
            return refuse(attempt, REASON_READ_AFTER_OVERWRITE,
                          unit_words(unit, "%s reads %s after %s has overwritten %s",
                                     unit_op_words(unit, op), view_words(attempt, attempt->source),
                                     op_words(attempt, hit.op), view_words(attempt, attempt->place)));
        }
    }
    return UNCOPY_OK;
}

static uncopy_status_t check_touches(attempt_t *attempt)
{
    unit_t *unit = attempt->unit;
    const unit_storage_t *storage = &unit->storages[attempt->moved];
    for (size_t i = 0; i < storage->num_touches && attempt->is_legal; i++) {
        uint32_t number = storage->touches[i];
        const unit_op_t *op = &unit->ops[number];
        if (op->is_removed || number == attempt->copy) {
            continue;
        }
        TRY(check_views(attempt, op, REASON_LAYOUT));
        if (attempt->is_legal && op->position < attempt->at && op->opcode != OPCODE_FENCE) {
            TRY(check_operands(attempt, op));
        }
    }
    return UNCOPY_OK;
}

static uint32_t first_touch(const unit_t *unit, uint32_t storage)
{
    const unit_storage_t *at = &unit->storages[storage];
    for (size_t i = 0; i < at->num_touches; i++) {
        if (!unit->ops[at->touches[i]].is_removed) {
            return unit->ops[at->touches[i]].position;
        }
    }
    return 0;
}

static uncopy_status_t try_forward_write(attempt_t *attempt)
{
    unit_t *unit = attempt->unit;
    attempt->moved = unit->views[attempt->source].storage;
    attempt->anchor = attempt->source;
    attempt->place = attempt->target;
    attempt->first = first_touch(unit, attempt->moved);
    attempt->is_legal = true;
    uncopy_status_t (*const checks[])(attempt_t *) = {check_ends, check_touches, check_after,
                                                      check_between, check_raises};
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]) && attempt->is_legal; i++) {
        TRY(checks[i](attempt));
    }
    return UNCOPY_OK;
}

/* ---- forwarding a read ---- */

/* The last position at which T is read, or that of C. */
static uint32_t last_touch(const unit_t *unit, uint32_t storage, uint32_t at)
{
    const unit_storage_t *s = &unit->storages[storage];
    for (size_t i = s->num_touches; i-- > 0;) {
        const unit_op_t *op = &unit->ops[s->touches[i]];
        if (!op->is_removed) {
            return op->position > at ? op->position : at;
        }
    }
    return at;
}

/* The last reader may itself overwrite S, where it writes exactly what it reads and its row allows that. */
static bool reader_is_in_place(attempt_t *attempt, const unit_op_t *op, const depend_hit_t *hit)
{
    unit_t *unit = attempt->unit;
    if ((op_row(op->opcode)->flags & OP_FLAG_IN_PLACE) == 0 || hit->view == UNCOPY_NONE) {
        return false;
    }
    for (size_t i = 0; i < op->num_reads; i++) {
        unit_view_t restated;
        uint32_t number = 0;
        if (is_of(unit, op->reads[i].view, attempt->moved) &&
            (!restate(attempt, op->reads[i].view, &restated) ||
             unit_add_view(unit, &restated, &number) != UNCOPY_OK ||
             depend_relate(unit, number, hit->view) != SPAN_SAME)) {
            return false;
        }
    }
    return true;
}

static uncopy_status_t check_source_stays(attempt_t *attempt)
{
    unit_t *unit = attempt->unit;
    uint32_t last = last_touch(unit, attempt->moved, attempt->at);
    depend_query_t query = {.view = attempt->place,
                            .writes_only = true,
                            .from = attempt->at + 1,
                            .to = last + 1,
                            .skip = UNCOPY_NONE,
                            .skip_storage = UNCOPY_NONE};
    depend_hit_t hit;
    TRY(depend_find(unit, &query, &hit));
    if (!HAS_R || hit.op == UNCOPY_NONE) {
        return UNCOPY_OK;
    }
    const unit_op_t *op = &unit->ops[hit.op];
    if (op->position < last || unit->order[last] != hit.op) {
        return refuse(attempt, REASON_SOURCE_OVERWRITTEN,
                      unit_words(unit, "%s overwrites %s before %s reads the copy", op_words(attempt, hit.op),
                                 view_words(attempt, attempt->source),
                                 op_words(attempt, unit->order[last])));
    }
    if (!reader_is_in_place(attempt, op, &hit)) {
        return refuse(attempt, REASON_READER_OVERLAP,
                      unit_words(unit, "%s reads the copy and writes bytes of %s", op_words(attempt, hit.op),
                                 view_words(attempt, attempt->source)));
    }
    return UNCOPY_OK;
}

static uncopy_status_t check_readers(attempt_t *attempt)
{
    unit_t *unit = attempt->unit;
    const unit_storage_t *storage = &unit->storages[attempt->moved];
    for (size_t i = 0; i < storage->num_touches && attempt->is_legal; i++) {
        uint32_t number = storage->touches[i];
        const unit_op_t *op = &unit->ops[number];
        if (op->is_removed || number == attempt->copy) {
            continue;
        }
        if (HAS_R && (op->position < attempt->at || writes_storage(unit, op, attempt->moved))) {
            return refuse(attempt, REASON_COPY_WRITTEN,
                          unit_words(unit, "%s %s the copy %s", unit_op_words(unit, op),
                                     op->position < attempt->at ? "touches" : "writes",
                                     view_words(attempt, attempt->target)));
        }
        TRY(check_views(attempt, op, REASON_READER_LAYOUT));
    }
    return UNCOPY_OK;
}

static uncopy_status_t try_forward_read(attempt_t *attempt)
{
    unit_t *unit = attempt->unit;
    attempt->moved = unit->views[attempt->target].storage;
    attempt->anchor = attempt->target;
    attempt->place = attempt->source;
    attempt->is_legal = true;
    if (HAS_W0 && is_seen_outside(unit, attempt->moved)) {
        return refuse(attempt, REASON_RESULT_KEPT,
                      unit_words(unit, "%s is a result of its own", view_words(attempt, attempt->target)));
    }
    TRY(check_readers(attempt));
    return attempt->is_legal ? check_source_stays(attempt) : UNCOPY_OK;
}

/* ---- committing ---- */

static uncopy_status_t replace_view(attempt_t *attempt, uint32_t *view)
{
    if (is_of(attempt->unit, *view, attempt->moved)) {
        unit_view_t restated;
        if (!restate(attempt, *view, &restated)) {
            return status_fail(UNCOPY_ERROR_PROGRAM, "a view that restated no longer does");
        }
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
    uint32_t *merged = arena_allocate(&unit->arena, from->num_touches + to->num_touches, sizeof(*merged));
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
    TRY(note(attempt, unit_words(unit, "%s, %s to %s: %s", op_words(attempt, attempt->copy),
                                 view_words(attempt, attempt->source),
                                 view_words(attempt, attempt->target), how)));
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
    for (int i = 0; i < MAX_HOISTS; i++) {
        attempt->at = unit->ops[attempt->copy].position;
        attempt->blocker = UNCOPY_NONE;
        TRY(try_forward_write(attempt));
        bool has_moved = false;
        if (!attempt->is_legal) {
            TRY(hoist(attempt, &has_moved));
        }
        if (!has_moved) {
            break;
        }
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
        return refuse(&attempt, REASON_NONE, "");
    }
    TRY(forward_write(&attempt));
    if (attempt.is_legal) {
        *out_removed = true;
        return commit(&attempt, "the maker of the source writes the destination instead");
    }
    reason_t reason = attempt.reason;
    const char *words = attempt.words;
    TRY(try_forward_read(&attempt));
    if (attempt.is_legal) {
        *out_removed = true;
        return commit(&attempt, "readers of the copy read the source instead");
    }
    bool has_scratch_source = unit->storages[from].kind == IR_STORAGE_SCRATCH;
    op->reason = has_scratch_source ? (unit_reason_t){(int)reason, words}
                                    : (unit_reason_t){(int)attempt.reason, attempt.words};
    return UNCOPY_OK;
}

/* A conversion of scratch into the caller's memory: the bytes are made once and written again in another dtype. */
static uncopy_status_t explain_conversion(unit_t *unit, unit_op_t *op)
{
    if (op->opcode != OPCODE_CONVERT || op->reads[0].view == UNCOPY_NONE) {
        return UNCOPY_OK;
    }
    uint32_t from = op->reads[0].view;
    uint32_t to = op->writes[0];
    if (unit->storages[unit->views[from].storage].kind != IR_STORAGE_SCRATCH ||
        unit->storages[unit->views[to].storage].kind != IR_STORAGE_ARGUMENT) {
        return UNCOPY_OK;
    }
    op->reason = (unit_reason_t){
        REASON_CONVERTED, unit_words(unit, "%s is %s, %s is %s", unit_view_words(unit, from),
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
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return x->position < y->position ? -1 : x->position > y->position;
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
        if (!op->is_removed && op->opcode == OPCODE_COPY) {
            const span_t *span = &unit->views[op->writes[0]].span;
            list[count++] = (candidate_t){span_count(span) * span->element_bytes, unit->order[i],
                                          op->position};
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
    for (int round = 0; round < MAX_ROUNDS && has_changed; round++) {
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
