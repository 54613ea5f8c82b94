/* Checking alias facts against the addresses of a call.
 *
 * Facts depend on differences of addresses alone, so they hold (clusters: facts_data.h) if
 *   H1  each base is as far from its cluster's leader as at planning, and
 *   H2  in order of first bytes, each base begins at or above the end of all bases before it, or is
 *       in the cluster of the one that reaches furthest. By H1 a cluster still is one interval, so
 *       that clusters do not meet.
 * Both are one pass over the bases, about 4 ns each, given the order of the last call; sorting what
 * has moved is a Shell sort.
 *
 * Otherwise the facts are looked at one by one:
 *   each row of two bases whose distance has changed is asked again;
 *   each two bases that overlap now and were apart must not have been asked about.
 * That costs a relation (relate.c) for each such row, and a binary search for each such two bases.
 */
#include "span/facts_data.h"

static int64_t first_byte(uint32_t base, const int64_t *addresses, const facts_hull_t *hulls)
{
    return addresses[base] + hulls[base].first;
}

void facts_sort_bases(uint32_t *order, uint32_t num_bases, const int64_t *addresses,
                      const facts_hull_t *hulls)
{
    uint32_t gap = 1;
    while (gap < num_bases / 3) {
        gap = 3 * gap + 1;
    }
    for (; gap > 0; gap /= 3) {
        for (uint32_t i = gap; i < num_bases; i++) {
            uint32_t base = order[i];
            int64_t first = first_byte(base, addresses, hulls);
            uint32_t place = i;
            for (; place >= gap && first_byte(order[place - gap], addresses, hulls) > first;
                 place -= gap) {
                order[place] = order[place - gap];
            }
            order[place] = base;
        }
    }
}

bool facts_each_pair(const uint32_t *order, uint32_t num_bases, const int64_t *addresses,
                     const facts_hull_t *hulls, bool (*visit)(void *state, uint32_t a, uint32_t b),
                     void *state)
{
    for (uint32_t i = 0; i < num_bases; i++) {
        uint32_t a = order[i];
        int64_t end = addresses[a] + hulls[a].end;
        if (hulls[a].first == hulls[a].end) {
            continue;
        }
        for (uint32_t j = i + 1; j < num_bases; j++) {
            uint32_t b = order[j];
            if (first_byte(b, addresses, hulls) >= end) {
                break;
            }
            if (hulls[b].first != hulls[b].end && !visit(state, a, b)) {
                return false;
            }
        }
    }
    return true;
}

span_relation_t facts_relate(const span_t *a, const span_t *b, int64_t distance)
{
    span_t moved = *b;
    moved.start += distance;
    return span_relate(a, &moved);
}

bool facts_overlap(const span_t *a, const span_t *b, int64_t distance)
{
    span_t moved = *b;
    moved.start += distance;
    return span_overlaps(a, &moved);
}

/* H1. */
static bool has_kept_distances(const facts_t *facts, const int64_t *addresses)
{
    for (size_t i = 0; i < facts->num_followers; i++) {
        uint32_t base = facts->followers[i];
        if (addresses[base] - addresses[facts->leaders[base]] != facts->offsets[base]) {
            return false;
        }
    }
    return true;
}

/* H2, given H1. False also where the order is not that of the addresses. */
static bool are_clusters_apart(const facts_t *facts, const int64_t *addresses,
                               const uint32_t *order)
{
    int64_t last_first = INT64_MIN;
    int64_t reach = INT64_MIN;
    uint32_t cluster = 0;
    for (uint32_t i = 0; i < facts->num_bases; i++) {
        uint32_t base = order[i];
        facts_hull_t hull = facts->hulls[base];
        int64_t first = addresses[base] + hull.first;
        int64_t end = addresses[base] + hull.end;
        if (first < last_first) {
            return false;
        }
        last_first = first;
        if (first == end) {
            continue;
        }
        if (first >= reach) {
            cluster = facts->leaders[base];
        } else if (cluster != facts->leaders[base]) {
            return false;
        }
        reach = end > reach ? end : reach;
    }
    return true;
}

/* Asks a row again if its bases' distance has changed. */
static bool does_row_hold(const facts_t *facts, const facts_row_t *row, const int64_t *addresses,
                          facts_failure_t *out_failure)
{
    const facts_place_t *a = &facts->places[row->place_a];
    const facts_place_t *b = &facts->places[row->place_b];
    int64_t planned = facts->offsets[b->base] - facts->offsets[a->base];
    int64_t distance = addresses[b->base] - addresses[a->base];
    if (distance == planned ||
        (row->is_overlap_only
             ? facts_overlap(&a->span, &b->span, distance)
             : (uint8_t)facts_relate(&a->span, &b->span, distance)) == row->answer) {
        return true;
    }
    *out_failure = (facts_failure_t){a->base, b->base, facts_relate(&a->span, &b->span, planned),
                                     facts_relate(&a->span, &b->span, distance)};
    return false;
}

/* For facts_each_pair. */
typedef struct pair_check {
    const facts_t *facts;
    const int64_t *addresses;
    facts_failure_t failure;
} pair_check_t;

static bool was_asked_apart(const facts_t *facts, uint64_t key)
{
    size_t low = 0;
    size_t high = facts->num_apart;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (facts->apart[middle] == key) {
            return true;
        }
        if (facts->apart[middle] < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return false;
}

/* A hull as one element. */
static span_t hull_span(facts_hull_t hull)
{
    return (span_t){.start = hull.first, .element_bytes = hull.end - hull.first};
}

/* Whether two bases that overlap now may do so. Those that did at planning are answered by their
 * rows: they have no key in apart. */
static bool may_overlap(void *state, uint32_t a, uint32_t b)
{
    pair_check_t *check = state;
    if (!was_asked_apart(check->facts, facts_key(a, b))) {
        return true;
    }
    span_t span_a = hull_span(check->facts->hulls[a]);
    span_t span_b = hull_span(check->facts->hulls[b]);
    int64_t distance = check->addresses[b] - check->addresses[a];
    check->failure =
        (facts_failure_t){a, b, SPAN_DISJOINT, facts_relate(&span_a, &span_b, distance)};
    return false;
}

static bool does_each_fact_hold(const facts_t *facts, const int64_t *addresses,
                                const uint32_t *order, facts_failure_t *out_failure)
{
    for (size_t i = 0; i < facts->num_rows; i++) {
        if (!does_row_hold(facts, &facts->rows[i], addresses, out_failure)) {
            return false;
        }
    }
    pair_check_t check = {.facts = facts, .addresses = addresses};
    if (facts->num_apart > 0 &&
        !facts_each_pair(order, facts->num_bases, addresses, facts->hulls, may_overlap, &check)) {
        *out_failure = check.failure;
        return false;
    }
    return true;
}

bool facts_hold(const facts_t *facts, const int64_t *addresses, uint32_t *scratch,
                facts_failure_t *out_failure)
{
    bool has_kept = has_kept_distances(facts, addresses);
    if (has_kept && are_clusters_apart(facts, addresses, scratch)) {
        return true;
    }
    facts_sort_bases(scratch, facts->num_bases, addresses, facts->hulls);
    if (has_kept && are_clusters_apart(facts, addresses, scratch)) {
        return true;
    }
    facts_failure_t failure;
    bool holds = does_each_fact_hold(facts, addresses, scratch, &failure);
    if (!holds && out_failure != NULL) {
        *out_failure = failure;
    }
    return holds;
}

uint32_t facts_num_bases(const facts_t *facts)
{
    return facts->num_bases;
}

size_t facts_num_pairs(const facts_t *facts)
{
    return facts->num_pairs;
}

void facts_pair(const facts_t *facts, size_t index, uint32_t *out_a, uint32_t *out_b,
                int64_t *out_distance)
{
    *out_a = (uint32_t)(facts->pairs[index] >> 32);
    *out_b = (uint32_t)facts->pairs[index];
    *out_distance = facts->offsets[*out_b] - facts->offsets[*out_a];
}
