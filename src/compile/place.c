/* Place: greedy by size. Items are taken largest first, ties by first use; each goes into the
 * smallest gap that the items alive at the same time leave, else above them (best fit; D. Johnson,
 * "Fast algorithms for bin packing", 1974, applied to intervals as register and buffer allocators
 * do). Cost: n log n + n * (items alive together). */
#include "compile/place.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/status.h"

static int64_t rounded(int64_t size)
{
    return (size + PLACE_ALIGNMENT - 1) / PLACE_ALIGNMENT * PLACE_ALIGNMENT;
}

static int compare_by_size(const void *a, const void *b)
{
    const place_item_t *x = *(place_item_t *const *)a;
    const place_item_t *y = *(place_item_t *const *)b;
    if (x->size_bytes != y->size_bytes) {
        return x->size_bytes > y->size_bytes ? -1 : 1;
    }
    if (x->first != y->first) {
        return x->first < y->first ? -1 : 1;
    }
    return (x > y) - (x < y);
}

static bool lives_with(const place_item_t *a, const place_item_t *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* Keeps placed sorted by offset. */
static void insert_placed(place_item_t **placed, size_t count, place_item_t *item)
{
    size_t at = count;
    while (at > 0 && placed[at - 1]->offset_bytes > item->offset_bytes) {
        placed[at] = placed[at - 1];
        at--;
    }
    placed[at] = item;
}

static int64_t best_offset(place_item_t *const *placed, size_t count, const place_item_t *item)
{
    int64_t need = rounded(item->size_bytes);
    int64_t end = 0;
    int64_t best = -1;
    int64_t best_gap = INT64_MAX;
    for (size_t i = 0; i < count; i++) {
        if (!lives_with(placed[i], item)) {
            continue;
        }
        int64_t gap = placed[i]->offset_bytes - end;
        if (gap >= need && gap < best_gap) {
            best = end;
            best_gap = gap;
        }
        int64_t other_end = placed[i]->offset_bytes + rounded(placed[i]->size_bytes);
        end = other_end > end ? other_end : end;
    }
    return best >= 0 ? best : end;
}

typedef struct event {
    uint32_t at;
    int64_t change;
} event_t;

static int compare_events(const void *a, const void *b)
{
    const event_t *x = a;
    const event_t *y = b;
    if (x->at != y->at) {
        return x->at < y->at ? -1 : 1;
    }
    return x->change < y->change ? -1 : x->change > y->change; /* ends before starts */
}

static int64_t lower_bound(const place_item_t *items, size_t count, event_t *events)
{
    for (size_t i = 0; i < count; i++) {
        events[2 * i] = (event_t){items[i].first, rounded(items[i].size_bytes)};
        events[2 * i + 1] = (event_t){items[i].last + 1, -rounded(items[i].size_bytes)};
    }
    qsort(events, 2 * count, sizeof(*events), compare_events);
    int64_t alive = 0;
    int64_t most = 0;
    for (size_t i = 0; i < 2 * count; i++) {
        alive += events[i].change;
        most = alive > most ? alive : most;
    }
    return most;
}

uncopy_status_t place_items(arena_t *arena, place_item_t *items, size_t count,
                            int64_t *out_peak_bytes, int64_t *out_lower_bound_bytes)
{
    place_item_t **order = arena_allocate(arena, count, sizeof(place_item_t *));
    place_item_t **placed = arena_allocate(arena, count, sizeof(place_item_t *));
    event_t *events = arena_allocate(arena, 2 * count, sizeof(event_t));
    if (order == NULL || placed == NULL || events == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    int64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        order[i] = &items[i];
        if (items[i].size_bytes > INT64_MAX - PLACE_ALIGNMENT ||
            !checked_add(sum, rounded(items[i].size_bytes), &sum)) {
            return status_fail(UNCOPY_ERROR_MEMORY,
                               "scratch storages exceed what can be addressed");
        }
    }
    qsort(order, count, sizeof(*order), compare_by_size);
    int64_t peak = 0;
    for (size_t i = 0; i < count; i++) {
        order[i]->offset_bytes = best_offset(placed, i, order[i]);
        insert_placed(placed, i, order[i]);
        int64_t end = order[i]->offset_bytes + rounded(order[i]->size_bytes);
        peak = end > peak ? end : peak;
    }
    *out_peak_bytes = peak;
    *out_lower_bound_bytes = lower_bound(items, count, events);
    return UNCOPY_OK;
}
