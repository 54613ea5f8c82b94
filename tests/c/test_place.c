/* place_items on records made by hand, with the exact offsets, and on random ones against its
 * invariants. */
#include "check.h"
#include "compile/place.h"

#include <stdlib.h>

static void places_items_that_never_meet_at_the_same_bytes(arena_t *arena)
{
    place_item_t items[] = {{.size_bytes = 100, .first = 0, .last = 1},
                            {.size_bytes = 100, .first = 2, .last = 3}};
    int64_t peak = 0;
    int64_t bound = 0;
    CHECK(place_items(arena, items, 2, &peak, &bound) == UNCOPY_OK);
    CHECK_EQUAL_I64(items[0].offset_bytes, 0);
    CHECK_EQUAL_I64(items[1].offset_bytes, 0);
    CHECK_EQUAL_I64(peak, 128);
    CHECK_EQUAL_I64(bound, 128);
}

static void fills_the_smallest_gap_that_fits(arena_t *arena)
{
    /* 0: 256 always; 1: 128 early; 2: 192 always, above both; 3: 128 late, into the gap of 1. */
    place_item_t items[] = {{.size_bytes = 256, .first = 0, .last = 9},
                            {.size_bytes = 200, .first = 0, .last = 3},
                            {.size_bytes = 192, .first = 0, .last = 9},
                            {.size_bytes = 128, .first = 5, .last = 9}};
    int64_t peak = 0;
    int64_t bound = 0;
    CHECK(place_items(arena, items, 4, &peak, &bound) == UNCOPY_OK);
    CHECK_EQUAL_I64(items[0].offset_bytes, 0);
    CHECK_EQUAL_I64(items[1].offset_bytes, 256);
    CHECK_EQUAL_I64(items[2].offset_bytes, 512);
    CHECK_EQUAL_I64(items[3].offset_bytes, 256);
    CHECK_EQUAL_I64(peak, 704);
    CHECK_EQUAL_I64(bound, 704);
}

static void takes_nothing_for_nothing(arena_t *arena)
{
    place_item_t item = {.size_bytes = 0, .first = 0, .last = 0};
    int64_t peak = -1;
    int64_t bound = -1;
    CHECK(place_items(arena, &item, 1, &peak, &bound) == UNCOPY_OK);
    CHECK_EQUAL_I64(peak, 0);
    CHECK(place_items(arena, &item, 0, &peak, &bound) == UNCOPY_OK);
    CHECK_EQUAL_I64(bound, 0);
}

static void refuses_sizes_beyond_addresses(arena_t *arena)
{
    place_item_t items[] = {{.size_bytes = INT64_MAX / 2, .first = 0, .last = 0},
                            {.size_bytes = INT64_MAX / 2 + 64, .first = 0, .last = 0}};
    int64_t peak = 0;
    int64_t bound = 0;
    CHECK(place_items(arena, items, 2, &peak, &bound) == UNCOPY_ERROR_MEMORY);
}

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static bool meets(const place_item_t *a, const place_item_t *b)
{
    bool in_time = a->first <= b->last && b->first <= a->last;
    bool in_bytes = a->offset_bytes < b->offset_bytes + b->size_bytes &&
                    b->offset_bytes < a->offset_bytes + a->size_bytes;
    return in_time && in_bytes;
}

static void never_overlaps_what_lives_together(arena_t *arena)
{
    uint64_t state = 7;
    for (int round = 0; round < 200; round++) {
        place_item_t items[60];
        size_t count = 1 + next_random(&state) % 60;
        for (size_t i = 0; i < count; i++) {
            uint32_t first = (uint32_t)(next_random(&state) % 40);
            items[i] = (place_item_t){.size_bytes = (int64_t)(next_random(&state) % 1000) + 1,
                                      .first = first,
                                      .last = first + (uint32_t)(next_random(&state) % 10)};
        }
        int64_t peak = 0;
        int64_t bound = 0;
        CHECK(place_items(arena, items, count, &peak, &bound) == UNCOPY_OK);
        CHECK(peak >= bound);
        for (size_t i = 0; i < count; i++) {
            CHECK(items[i].offset_bytes % PLACE_ALIGNMENT == 0);
            CHECK(items[i].offset_bytes + items[i].size_bytes <= peak);
            for (size_t j = 0; j < i; j++) {
                CHECK(!meets(&items[i], &items[j]));
            }
        }
    }
}

int main(void)
{
    arena_t arena;
    arena_init(&arena, &memory_system_allocator);
    places_items_that_never_meet_at_the_same_bytes(&arena);
    fills_the_smallest_gap_that_fits(&arena);
    takes_nothing_for_nothing(&arena);
    refuses_sizes_beyond_addresses(&arena);
    never_overlaps_what_lives_together(&arena);
    arena_release(&arena);
    return check_finish("place");
}
