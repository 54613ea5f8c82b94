/* Alias facts: the questions that planning asked about two arguments' bytes, and the answers that a
 * plan relies on.
 *
 * Arguments are named by base numbers 0..num_bases-1; spans of a base count from its address
 * (span.start is an offset). While planning, a builder answers questions for one call's addresses
 * and records each question with its answer. The finished facts are immutable; facts_hold says
 * whether they hold for other addresses. Facts depend on differences of addresses alone.
 *
 * Two bases whose hulls are apart record one fact for the whole pair ("apart"); others record each
 * pair of spans.
 *
 * Threads: a builder is confined; finished facts are immutable. */
#ifndef SPAN_FACTS_H
#define SPAN_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "span/span.h"

/* Smallest [first, end) relative to the base's address that holds every byte the program takes of
 * it. first == end for a base of which nothing is taken. */
typedef struct facts_hull {
    int64_t first, end;
} facts_hull_t;

typedef struct facts_builder facts_builder_t;
typedef struct facts facts_t;

/* Which fact failed: the two bases, what was known and what is now. */
typedef struct facts_failure {
    uint32_t base_a, base_b;
    span_relation_t planned, found;
} facts_failure_t;

/* Builder and facts live in arena. addresses and hulls (num_bases each) are copied. */
UNCOPY_MUST_CHECK uncopy_status_t facts_builder_create(arena_t *arena, uint32_t num_bases,
                                                       const int64_t *addresses,
                                                       const facts_hull_t *hulls,
                                                       facts_builder_t **out_builder);

/* Answers and records: the relation of span a of base_a to span b of base_b, at the builder's
 * addresses. Questions within one base are answered and not recorded. On no memory the answer is
 * SPAN_UNKNOWN and facts_finish fails. */
span_relation_t facts_ask(facts_builder_t *builder, uint32_t base_a, const span_t *a,
                          uint32_t base_b, const span_t *b);

/* As facts_ask where only overlap or not matters: records just that, which holds in more calls. */
bool facts_ask_overlap(facts_builder_t *builder, uint32_t base_a, const span_t *a, uint32_t base_b,
                       const span_t *b);

/* What the builder was created with. */
facts_hull_t facts_hull(const facts_builder_t *builder, uint32_t base);
const int64_t *facts_addresses(const facts_builder_t *builder);

/* The facts in memory of arena target (a plan's), independent of the builder's arena. */
UNCOPY_MUST_CHECK uncopy_status_t facts_finish(const facts_builder_t *builder, arena_t *target,
                                               facts_t **out_facts);

/* Whether every fact holds at these addresses (num_bases of them). On false *out_failure, if not
 * NULL, names the first that does not. scratch: num_bases uint32_t, contents kept between calls
 * make re-sorting cheap (start with 0,1,2,...).
 * Cost: one pass where the pairs of overlapping hulls and their distances are those of planning,
 * else each fact of the pairs that changed. */
bool facts_hold(const facts_t *facts, const int64_t *addresses, uint32_t *scratch,
                facts_failure_t *out_failure);

uint32_t facts_num_bases(const facts_t *facts);
/* For printing: pairs of bases with overlapping hulls at planning, in order (a < b), with the byte
 * distance address[b] - address[a]. */
size_t facts_num_pairs(const facts_t *facts);
void facts_pair(const facts_t *facts, size_t index, uint32_t *out_a, uint32_t *out_b,
                int64_t *out_distance);

#endif
