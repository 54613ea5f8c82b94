/* Conflicts: which operations touch common bytes. The one place in compile that compares bytes of
 * two views.
 *
 * An effect is a view read or written at one operation. An asynchronous collective has its effects
 * from its start to its fence, so the fence has them too. ORDER marks have no effects;
 * depend_conflicts keeps their meaning.
 *
 * Threads: as the unit. */
#ifndef COMPILE_DEPEND_H
#define COMPILE_DEPEND_H

#include "compile/unit.h"

typedef struct depend_effect {
    uint32_t view;
    bool is_write;
} depend_effect_t;

enum { DEPEND_MAX_INLINE = 16 };

/* Effects of an operation, in arena memory or inline; valid until the list is reused. */
typedef struct depend_effects {
    depend_effect_t inline_effects[DEPEND_MAX_INLINE];
    depend_effect_t *effects;
    size_t count;
    bool is_unknown; /* also reads and writes any exposed storage */
} depend_effects_t;

UNCOPY_MUST_CHECK uncopy_status_t depend_effects(unit_t *unit, const unit_op_t *op,
                                                 depend_effects_t *out_effects);

/* Exact relation of the bytes of two views, which need not be in the unit's list. */
span_relation_t depend_relate(unit_t *unit, const unit_view_t *a, const unit_view_t *b);
/* Whether they have a common byte. */
bool depend_overlaps(unit_t *unit, uint32_t a, uint32_t b);

/* Whether the two operations may not swap; *out_a, *out_b are the views in conflict (UNCOPY_NONE
 * where it is not one of bytes). */
UNCOPY_MUST_CHECK uncopy_status_t depend_conflicts(unit_t *unit, const unit_op_t *a,
                                                   const unit_op_t *b, bool *out_conflicts,
                                                   uint32_t *out_a, uint32_t *out_b);

/* Whether op may end the call with an error: what is written outside before it must be written,
 * what is written after it must not. */
bool depend_may_raise(const unit_op_t *op);

typedef struct depend_hit {
    uint32_t op;   /* UNCOPY_NONE: nothing touches the bytes */
    uint32_t view; /* UNCOPY_NONE: the operation's effects are unknown */
    bool is_write;
} depend_hit_t;

/* Which bytes, by whom, and where: touches of view's bytes by operations at positions in [from,
 * to), collectives in flight anywhere in that range included. */
typedef struct depend_query {
    uint32_t view;
    bool writes_only;
    uint32_t from, to;
    /* operations that touch this storage are left out, UNCOPY_NONE for none */
    uint32_t skip_storage;
} depend_query_t;

/* The first hit by position. */
UNCOPY_MUST_CHECK uncopy_status_t depend_find(unit_t *unit, const depend_query_t *query,
                                              depend_hit_t *out_hit);

#endif
