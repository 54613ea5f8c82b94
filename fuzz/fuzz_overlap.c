/* Fuzz target: two spans from the input's bytes, everything asked of them, against brute force
 * where their bytes fit a map. Traps on a wrong answer.
 *
 * Input: for each span rank, element bytes and start, then a size and a stride for each dim, one
 * byte each; an input whose first byte is odd has 8 bytes for each number, and only runs the
 * questions. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "span/span.h"

enum { MAP_BYTES = 1 << 14, MAX_ELEMENTS = 1 << 14 };

typedef struct input {
    const uint8_t *bytes;
    size_t left;
    bool is_wide;
} input_t;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int64_t take(input_t *input)
{
    size_t width = input->is_wide ? sizeof(int64_t) : 1;
    int64_t value = 0;
    if (input->left < width) {
        return 0;
    }
    if (input->is_wide) {
        memcpy(&value, input->bytes, width);
    } else {
        value = (int8_t)input->bytes[0];
    }
    input->bytes += width;
    input->left -= width;
    return value;
}

/* value modulo limit, never negative. */
static int64_t below(int64_t value, int64_t limit)
{
    return (int64_t)((uint64_t)value % (uint64_t)limit);
}

static span_t take_span(input_t *input)
{
    span_t span = {0};
    span.rank = (int32_t)below(take(input), 6);
    span.element_bytes = (int64_t)1 << below(take(input), 5);
    span.start = take(input);
    for (int32_t d = 0; d < span.rank; d++) {
        int64_t size = take(input);
        span.sizes[d] = input->is_wide ? below(size, INT64_MAX) : below(size, 9);
        span.strides[d] = take(input);
    }
    return span;
}

static bool fits_map(const span_t *span)
{
    int64_t first = 0;
    int64_t end = 0;
    span_hull(span, &first, &end);
    return first >= -MAP_BYTES / 2 && end <= MAP_BYTES / 2 && span_count(span) <= MAX_ELEMENTS;
}

/* Marks the bytes of a span; whether one was marked before with the same bit. */
static bool mark(const span_t *span, uint8_t *map, uint8_t bit)
{
    bool has_repeat = false;
    int64_t count = span_count(span);
    for (int64_t i = 0; i < count; i++) {
        int64_t byte = span->start + MAP_BYTES / 2;
        int64_t rest = i;
        for (int32_t d = span->rank - 1; d >= 0; d--) {
            byte += rest % span->sizes[d] * span->strides[d];
            rest /= span->sizes[d];
        }
        for (int64_t b = 0; b < span->element_bytes; b++) {
            has_repeat = has_repeat || (map[byte + b] & bit) != 0;
            map[byte + b] |= bit;
        }
    }
    return has_repeat;
}

static span_relation_t relation_of_map(const uint8_t *map)
{
    bool has_kind[4] = {false};
    for (size_t i = 0; i < MAP_BYTES; i++) {
        has_kind[map[i]] = true;
    }
    if (!has_kind[3]) {
        return SPAN_DISJOINT;
    }
    if (!has_kind[2]) {
        return SPAN_CONTAINS;
    }
    return has_kind[1] ? SPAN_PARTIAL : SPAN_WITHIN;
}

static void require(bool holds)
{
    if (!holds) {
        __builtin_trap();
    }
}

static void compare(const span_t *a, const span_t *b)
{
    static uint8_t map[MAP_BYTES];
    memset(map, 0, sizeof(map));
    require(span_is_injective(a) == !mark(a, map, 1));
    require(span_is_injective(b) == !mark(b, map, 2));
    span_relation_t expected = relation_of_map(map);
    bool is_same = a->start == b->start && a->element_bytes == b->element_bytes &&
                   span_has_same_layout(a, b) && span_count(a) > 0;
    require(span_relate(a, b) == (is_same ? SPAN_SAME : expected));
    require(span_overlaps(a, b) == (expected != SPAN_DISJOINT));
}

/* A span restated through a copy onto itself, moved, is itself, moved. */
static void restate(const span_t *view, const span_t *source)
{
    span_t target = *source;
    span_t restated;
    target.start += 24;
    bool is_restated = span_restate(view, source, &target, &restated);
    span_relation_t relation = span_relate(source, view);
    bool is_covered = relation == SPAN_SAME || relation == SPAN_CONTAINS || span_count(view) == 0;
    require(is_restated == (is_covered && span_is_injective(source)));
    require(!is_restated || span_count(view) == 0 ||
            (restated.start == view->start + 24 && span_has_same_layout(&restated, view)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    input_t input = {data + 1, size - 1, (data[0] & 1) != 0};
    span_t a = take_span(&input);
    span_t b = take_span(&input);
    if (!input.is_wide && fits_map(&a) && fits_map(&b)) {
        compare(&a, &b);
        restate(&b, &a);
        return 0;
    }
    span_t restated;
    (void)span_relate(&a, &b);
    (void)span_overlaps(&a, &b);
    (void)span_is_injective(&a);
    (void)span_restate(&a, &b, &b, &restated);
    return 0;
}
