/* Recording alias facts while planning.
 *
 * Inputs: the addresses and hulls of one call. Each question is looked up by a key before it is
 * computed: spans are interned with their base, a row is keyed by its two places, bases that are
 * apart by their numbers. Cost: about 0.1 us a question, 0.7 us if it is a new one about new spans.
 * Memory: 232 bytes for each distinct span, 12 for each row, 8 for each two bases apart.
 *
 * Finishing sorts what is keyed by bases, forms the clusters (facts_data.h) by one sweep over the
 * sorted hulls, and copies everything to the target. */
#include <assert.h>
#include <string.h>

#include "base/status.h"
#include "span/facts_data.h"
#include "span/set.h"

enum { INDEX_FIRST_SLOTS = 16 };

#define NO_NUMBER UINT32_MAX

/* Open addressing over the numbers of records; number_above is a number + 1, 0 for an empty
 * slot. */
typedef struct slot {
    uint32_t hash, number_above;
} slot_t;

typedef struct index {
    slot_t *slots;
    size_t num_slots, num_used; /* num_slots: 0 or a power of 2, above twice num_used */
} index_t;

struct facts_builder {
    arena_t *arena;
    uint32_t num_bases;
    bool has_failed;
    const int64_t *addresses;
    const facts_hull_t *hulls;
    facts_place_t *places;
    facts_row_t *rows;
    uint64_t *apart;
    size_t num_places, num_rows, num_apart;
    size_t places_room, rows_room, apart_room;
    index_t place_index, row_index, apart_index;
};

typedef bool (*is_record_t)(const facts_builder_t *builder, uint32_t number, const void *record);

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
    return hash ^ hash >> 29;
}

static uint32_t index_find(const facts_builder_t *builder, const index_t *index, uint32_t hash,
                           is_record_t is_record, const void *record)
{
    if (index->num_slots == 0) {
        return NO_NUMBER;
    }
    size_t mask = index->num_slots - 1;
    for (size_t at = hash & mask; index->slots[at].number_above != 0; at = (at + 1) & mask) {
        uint32_t number = index->slots[at].number_above - 1;
        if (index->slots[at].hash == hash && is_record(builder, number, record)) {
            return number;
        }
    }
    return NO_NUMBER;
}

static void index_place(index_t *index, slot_t slot)
{
    size_t at = slot.hash & (index->num_slots - 1);
    while (index->slots[at].number_above != 0) {
        at = (at + 1) & (index->num_slots - 1);
    }
    index->slots[at] = slot;
}

static uncopy_status_t index_add(arena_t *arena, index_t *index, uint32_t hash, uint32_t number)
{
    if (2 * (index->num_used + 1) >= index->num_slots) {
        index_t larger = {.num_used = index->num_used};
        larger.num_slots = index->num_slots == 0 ? INDEX_FIRST_SLOTS : 2 * index->num_slots;
        larger.slots = arena_allocate(arena, larger.num_slots, sizeof(slot_t));
        if (larger.slots == NULL) {
            return UNCOPY_ERROR_MEMORY;
        }
        for (size_t i = 0; i < index->num_slots; i++) {
            if (index->slots[i].number_above != 0) {
                index_place(&larger, index->slots[i]);
            }
        }
        *index = larger;
    }
    index_place(index, (slot_t){hash, number + 1});
    index->num_used++;
    return UNCOPY_OK;
}

uncopy_status_t facts_builder_create(arena_t *arena, uint32_t num_bases, const int64_t *addresses,
                                     const facts_hull_t *hulls, facts_builder_t **out_builder)
{
    facts_builder_t *builder = arena_allocate(arena, 1, sizeof(*builder));
    if (builder == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    builder->arena = arena;
    builder->num_bases = num_bases;
    builder->addresses = arena_copy(arena, addresses, num_bases, sizeof(*addresses));
    builder->hulls = arena_copy(arena, hulls, num_bases, sizeof(*hulls));
    if (builder->addresses == NULL || builder->hulls == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    *out_builder = builder;
    return UNCOPY_OK;
}

static bool is_place(const facts_builder_t *builder, uint32_t number, const void *record)
{
    const facts_place_t *known = &builder->places[number];
    const facts_place_t *wanted = record;
    size_t list_bytes = (size_t)wanted->span.rank * sizeof(int64_t);
    return known->base == wanted->base && known->span.start == wanted->span.start &&
           known->span.element_bytes == wanted->span.element_bytes &&
           known->span.rank == wanted->span.rank &&
           memcmp(known->span.sizes, wanted->span.sizes, list_bytes) == 0 &&
           memcmp(known->span.strides, wanted->span.strides, list_bytes) == 0;
}

static uncopy_status_t intern_place(facts_builder_t *builder, uint32_t base, const span_t *span,
                                    uint32_t *out_number)
{
    facts_place_t place = {base, *span};
    uint64_t hash = mix(mix(base, (uint64_t)span->start), (uint64_t)span->element_bytes);
    for (int32_t d = 0; d < span->rank; d++) {
        hash = mix(mix(hash, (uint64_t)span->sizes[d]), (uint64_t)span->strides[d]);
    }
    *out_number =
        index_find(builder, &builder->place_index, (uint32_t)(hash >> 16), is_place, &place);
    if (*out_number == NO_NUMBER) {
        *out_number = (uint32_t)builder->num_places;
        ARENA_PUSH(builder->arena, builder->places, builder->num_places, builder->places_room,
                   place);
        TRY(index_add(builder->arena, &builder->place_index, (uint32_t)(hash >> 16), *out_number));
    }
    return UNCOPY_OK;
}

static bool is_apart_key(const facts_builder_t *builder, uint32_t number, const void *record)
{
    return builder->apart[number] == *(const uint64_t *)record;
}

static uncopy_status_t record_apart(facts_builder_t *builder, uint32_t base_a, uint32_t base_b)
{
    uint64_t key = facts_key(base_a, base_b);
    uint32_t hash = (uint32_t)(mix(0, key) >> 16);
    if (index_find(builder, &builder->apart_index, hash, is_apart_key, &key) == NO_NUMBER) {
        uint32_t number = (uint32_t)builder->num_apart;
        ARENA_PUSH(builder->arena, builder->apart, builder->num_apart, builder->apart_room, key);
        TRY(index_add(builder->arena, &builder->apart_index, hash, number));
    }
    return UNCOPY_OK;
}

static bool is_row(const facts_builder_t *builder, uint32_t number, const void *record)
{
    const facts_row_t *known = &builder->rows[number];
    const facts_row_t *wanted = record;
    return known->place_a == wanted->place_a && known->place_b == wanted->place_b &&
           known->is_overlap_only == wanted->is_overlap_only;
}

static uint32_t row_hash(const facts_row_t *row)
{
    uint64_t key = (uint64_t)row->place_a << 32 | row->place_b;
    return (uint32_t)(mix(row->is_overlap_only, key) >> 16);
}

static const facts_row_t *find_row(const facts_builder_t *builder, const facts_row_t *row)
{
    uint32_t number = index_find(builder, &builder->row_index, row_hash(row), is_row, row);
    return number == NO_NUMBER ? NULL : &builder->rows[number];
}

/* Puts the answer to row's question in row->answer, and records the row if it is new. */
static uncopy_status_t answer_row(facts_builder_t *builder, facts_row_t *row)
{
    const facts_row_t *known = find_row(builder, row);
    if (known != NULL) {
        row->answer = known->answer;
        return UNCOPY_OK;
    }
    const facts_place_t *a = &builder->places[row->place_a];
    const facts_place_t *b = &builder->places[row->place_b];
    int64_t distance = builder->addresses[b->base] - builder->addresses[a->base];
    row->answer = row->is_overlap_only ? facts_overlap(&a->span, &b->span, distance)
                                       : (uint8_t)facts_relate(&a->span, &b->span, distance);
    uint32_t number = (uint32_t)builder->num_rows;
    ARENA_PUSH(builder->arena, builder->rows, builder->num_rows, builder->rows_room, *row);
    return index_add(builder->arena, &builder->row_index, row_hash(row), number);
}

/* For asserts. */
__attribute__((unused)) static bool is_within_hull(const span_t *span, facts_hull_t hull)
{
    int64_t first = 0;
    int64_t end = 0;
    span_hull(span, &first, &end);
    return first >= hull.first && end <= hull.end;
}

/* Whether the answer is disjoint at any addresses, or by the hulls; in the latter case it is
 * recorded. */
static uncopy_status_t is_apart(facts_builder_t *builder, uint32_t base_a, const span_t *a,
                                uint32_t base_b, const span_t *b, bool *out_is_apart)
{
    assert(base_a < builder->num_bases && base_b < builder->num_bases);
    *out_is_apart = true;
    if (span_is_empty(a) || span_is_empty(b)) {
        return UNCOPY_OK;
    }
    assert(is_within_hull(a, builder->hulls[base_a]) && is_within_hull(b, builder->hulls[base_b]));
    int64_t distance = builder->addresses[base_b] - builder->addresses[base_a];
    if (!facts_hulls_overlap(builder->hulls[base_a], builder->hulls[base_b], distance)) {
        return record_apart(builder, base_a, base_b);
    }
    *out_is_apart = false;
    return UNCOPY_OK;
}

static uncopy_status_t ask_relation(facts_builder_t *builder, uint32_t base_a, const span_t *a,
                                    uint32_t base_b, const span_t *b, span_relation_t *out_relation)
{
    bool has_no_row = false;
    facts_row_t row = {.is_overlap_only = false};
    TRY(is_apart(builder, base_a, a, base_b, b, &has_no_row));
    if (has_no_row) {
        *out_relation = SPAN_DISJOINT;
        return UNCOPY_OK;
    }
    TRY(intern_place(builder, base_a, a, &row.place_a));
    TRY(intern_place(builder, base_b, b, &row.place_b));
    TRY(answer_row(builder, &row));
    *out_relation = (span_relation_t)row.answer;
    return UNCOPY_OK;
}

static uncopy_status_t ask_overlap(facts_builder_t *builder, uint32_t base_a, const span_t *a,
                                   uint32_t base_b, const span_t *b, bool *out_overlaps)
{
    bool has_no_row = false;
    facts_row_t row = {.is_overlap_only = false};
    TRY(is_apart(builder, base_a, a, base_b, b, &has_no_row));
    if (has_no_row) {
        *out_overlaps = false;
        return UNCOPY_OK;
    }
    TRY(intern_place(builder, base_a, a, &row.place_a));
    TRY(intern_place(builder, base_b, b, &row.place_b));
    const facts_row_t *relation = find_row(builder, &row);
    if (relation != NULL) {
        *out_overlaps = relation->answer != SPAN_DISJOINT;
        return UNCOPY_OK;
    }
    if (row.place_a > row.place_b) {
        row = (facts_row_t){.place_a = row.place_b, .place_b = row.place_a};
    }
    row.is_overlap_only = true;
    TRY(answer_row(builder, &row));
    *out_overlaps = row.answer != 0;
    return UNCOPY_OK;
}

span_relation_t facts_ask(facts_builder_t *builder, uint32_t base_a, const span_t *a,
                          uint32_t base_b, const span_t *b)
{
    span_relation_t relation = SPAN_UNKNOWN;
    if (base_a == base_b) {
        return span_relate(a, b);
    }
    if (ask_relation(builder, base_a, a, base_b, b, &relation) != UNCOPY_OK) {
        builder->has_failed = true;
        return SPAN_UNKNOWN;
    }
    return relation;
}

bool facts_ask_overlap(facts_builder_t *builder, uint32_t base_a, const span_t *a, uint32_t base_b,
                       const span_t *b)
{
    bool overlaps = true;
    if (base_a == base_b) {
        return span_overlaps(a, b);
    }
    if (ask_overlap(builder, base_a, a, base_b, b, &overlaps) != UNCOPY_OK) {
        builder->has_failed = true;
        return true;
    }
    return overlaps;
}

/* Shell sort: in place, about n^1.3. */
static void sort_keys(uint64_t *keys, size_t num_keys)
{
    size_t gap = 1;
    while (gap < num_keys / 3) {
        gap = 3 * gap + 1;
    }
    for (; gap > 0; gap /= 3) {
        for (size_t i = gap; i < num_keys; i++) {
            uint64_t key = keys[i];
            size_t place = i;
            for (; place >= gap && keys[place - gap] > key; place -= gap) {
                keys[place] = keys[place - gap];
            }
            keys[place] = key;
        }
    }
}

/* Pairs in an arena, while the sweep finds them. */
typedef struct pair_list {
    arena_t *arena;
    uint32_t *leaders;
    uint64_t *keys;
    size_t num_keys, room;
} pair_list_t;

static uint32_t find_leader(uint32_t *leaders, uint32_t base)
{
    while (leaders[base] != base) {
        leaders[base] = leaders[leaders[base]];
        base = leaders[base];
    }
    return base;
}

static uncopy_status_t push_pair(pair_list_t *list, uint32_t a, uint32_t b)
{
    uint32_t leader_a = find_leader(list->leaders, a);
    uint32_t leader_b = find_leader(list->leaders, b);
    list->leaders[leader_a > leader_b ? leader_a : leader_b] =
        leader_a > leader_b ? leader_b : leader_a;
    ARENA_PUSH(list->arena, list->keys, list->num_keys, list->room, facts_key(a, b));
    return UNCOPY_OK;
}

static bool visit_pair(void *state, uint32_t a, uint32_t b)
{
    return push_pair(state, a, b) == UNCOPY_OK;
}

/* Fills pairs, leaders, offsets and followers of facts. */
static uncopy_status_t form_clusters(const facts_builder_t *builder, arena_t *target,
                                     facts_t *facts)
{
    uint32_t num_bases = builder->num_bases;
    uint32_t *order = arena_allocate(target, num_bases, sizeof(*order));
    uint32_t *followers = arena_allocate(target, num_bases, sizeof(*followers));
    int64_t *offsets = arena_allocate(target, num_bases, sizeof(*offsets));
    pair_list_t list = {.arena = target};
    list.leaders = arena_allocate(target, num_bases, sizeof(*list.leaders));
    if (order == NULL || followers == NULL || offsets == NULL || list.leaders == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    for (uint32_t base = 0; base < num_bases; base++) {
        order[base] = base;
        list.leaders[base] = base;
    }
    facts_sort_bases(order, num_bases, builder->addresses, builder->hulls);
    if (!facts_each_pair(order, num_bases, builder->addresses, builder->hulls, visit_pair, &list)) {
        return UNCOPY_ERROR_MEMORY;
    }
    for (uint32_t base = 0; base < num_bases; base++) {
        uint32_t leader = find_leader(list.leaders, base);
        list.leaders[base] = leader;
        offsets[base] = builder->addresses[base] - builder->addresses[leader];
        if (leader != base) {
            followers[facts->num_followers++] = base;
        }
    }
    sort_keys(list.keys, list.num_keys);
    facts->leaders = list.leaders;
    facts->offsets = offsets;
    facts->followers = followers;
    facts->pairs = list.keys;
    facts->num_pairs = list.num_keys;
    return UNCOPY_OK;
}

uncopy_status_t facts_finish(const facts_builder_t *builder, arena_t *target, facts_t **out_facts)
{
    if (builder->has_failed) {
        return UNCOPY_ERROR_MEMORY;
    }
    facts_t *facts = arena_allocate(target, 1, sizeof(*facts));
    uint64_t *apart = arena_copy(target, builder->apart, builder->num_apart, sizeof(*apart));
    if (facts == NULL || apart == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    sort_keys(apart, builder->num_apart);
    facts->num_bases = builder->num_bases;
    facts->num_rows = builder->num_rows;
    facts->num_apart = builder->num_apart;
    facts->apart = apart;
    facts->hulls = arena_copy(target, builder->hulls, builder->num_bases, sizeof(*facts->hulls));
    facts->rows = arena_copy(target, builder->rows, builder->num_rows, sizeof(*facts->rows));
    facts->places =
        arena_copy(target, builder->places, builder->num_places, sizeof(*facts->places));
    if (facts->hulls == NULL || facts->rows == NULL || facts->places == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    TRY(form_clusters(builder, target, facts));
    *out_facts = facts;
    return UNCOPY_OK;
}

facts_hull_t facts_hull(const facts_builder_t *builder, uint32_t base)
{
    return builder->hulls[base];
}

const int64_t *facts_addresses(const facts_builder_t *builder)
{
    return builder->addresses;
}
