/* One copy under test: what elide.c, elide_write.c and elide_read.c share. The rules are stated in
 * elide.c. */
#ifndef COMPILE_ELIDE_ATTEMPT_H
#define COMPILE_ELIDE_ATTEMPT_H

#include "compile/depend.h"
#include "compile/passes.h"

/* Rules can be left out one by one, for the tests that show each is needed. */
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

/* One copy under test, and what was found so far. */
typedef struct attempt {
    unit_t *unit;
    uint32_t copy;   /* C */
    uint32_t source; /* S */
    uint32_t target; /* D */
    uint32_t moved;  /* T: S's storage when a write is forwarded, D's when a read is */
    /* the view whose map T's views are restated through: S for writes, D for reads */
    uint32_t anchor;
    uint32_t place;    /* the view that takes its place: D for writes, S for reads */
    uint32_t at;       /* position of C */
    uint32_t first;    /* position of T's first touch */
    uint32_t blocker;  /* operation that only order keeps in the way, UNCOPY_NONE */
    uint32_t hoist_to; /* the position to which it would have to move */
    reason_t reason;
    const char *words;
    bool is_legal;
} attempt_t;

/* Tests whether the copy goes away by forwarding the write, or the read; sets is_legal, else reason
 * and words. */
UNCOPY_MUST_CHECK uncopy_status_t elide_try_write(attempt_t *attempt);
UNCOPY_MUST_CHECK uncopy_status_t elide_try_read(attempt_t *attempt);

/* Notes why the attempt fails; words NULL means no memory. */
uncopy_status_t elide_refuse(attempt_t *attempt, reason_t reason, const char *words);

const char *elide_op_words(attempt_t *attempt, uint32_t op);
const char *elide_view_words(attempt_t *attempt, uint32_t view);

/* Restates a view of T; false when it has no equal. */
bool elide_restate(const attempt_t *attempt, uint32_t view, unit_view_t *out_view);

/* The same for a view that is known to have one: elide_check_views has passed it. */
unit_view_t elide_restated(const attempt_t *attempt, uint32_t view);

/* w1, w2 for every view of T that op uses; read_reason is the code for a view that is read. */
UNCOPY_MUST_CHECK uncopy_status_t elide_check_views(attempt_t *attempt, const unit_op_t *op,
                                                    reason_t read_reason);

/* Whether view is one, and of that storage. */
bool elide_is_of(const unit_t *unit, uint32_t view, uint32_t storage);

/* Whether others than the unit's known operations may see the storage's bytes. */
bool elide_is_seen_outside(const unit_t *unit, uint32_t storage);

/* Whether op writes bytes of storage; a fence counts with its collective. */
bool elide_writes_storage(const unit_t *unit, const unit_op_t *op, uint32_t storage);

#endif
