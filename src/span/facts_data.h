/* Finished facts as data: what facts.c records and facts_hold.c checks. Used inside this room only.
 *
 * Bases of which something is taken and whose hulls overlap at planning form pairs; bases linked by
 * pairs form a cluster, led by its smallest base. The hulls of a cluster together are one interval
 * without a gap. A base without pairs is its own cluster.
 *
 * A question about a pair is a row. A question about two bases that are apart is a key in apart. */
#ifndef SPAN_FACTS_DATA_H
#define SPAN_FACTS_DATA_H

#include "span/facts.h"

/* A span with the base that it belongs to. */
typedef struct facts_place {
    uint32_t base;
    span_t span;
} facts_place_t;

typedef struct facts_row {
    uint32_t place_a, place_b;
    bool is_overlap_only;
    uint8_t answer; /* a span_relation_t; for is_overlap_only whether they overlap */
} facts_row_t;

struct facts {
    uint32_t num_bases;
    size_t num_followers, num_pairs, num_rows, num_apart;
    const facts_hull_t *hulls;
    const uint32_t *leaders;   /* of each base's cluster */
    const int64_t *offsets;    /* of each base at planning: its address - its leader's */
    const uint32_t *followers; /* the bases that are not their own leaders */
    const uint64_t *pairs;     /* facts_key of bases with overlapping hulls, ascending */
    const facts_row_t *rows;   /* in order of asking */
    const facts_place_t *places;
    const uint64_t *apart; /* facts_key of bases that were asked about while apart, ascending */
};

/* The two bases, smaller first, in ascending order of the smaller. */
static inline uint64_t facts_key(uint32_t a, uint32_t b)
{
    return a < b ? (uint64_t)a << 32 | b : (uint64_t)b << 32 | a;
}

/* Whether two hulls have a common byte; distance: address of b - address of a. */
static inline bool facts_hulls_overlap(facts_hull_t a, facts_hull_t b, int64_t distance)
{
    return a.first < a.end && b.first < b.end && a.first < distance + b.end &&
           distance + b.first < a.end;
}

span_relation_t facts_relate(const span_t *a, const span_t *b, int64_t distance);
bool facts_overlap(const span_t *a, const span_t *b, int64_t distance);

/* Sorts the bases in order by the first byte of their hulls. Cheap for a nearly sorted order. */
void facts_sort_bases(uint32_t *order, uint32_t num_bases, const int64_t *addresses,
                      const facts_hull_t *hulls);

/* Calls visit for each two bases whose hulls overlap, until it returns false. order is sorted.
 * False if a visit did. Cost: num_bases and the number of calls. */
bool facts_each_pair(const uint32_t *order, uint32_t num_bases, const int64_t *addresses,
                     const facts_hull_t *hulls, bool (*visit)(void *state, uint32_t a, uint32_t b),
                     void *state);

#endif
