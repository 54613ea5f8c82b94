/* Restating a view through a copy.
 *
 * Definitions. The copy maps the byte at source(i) + b to target(i) + b. Source and target are
 * taken together as one list of axes (size, distance in the source, distance in the target), the
 * element being an axis of its bytes; axes of negative source distance are mirrored, axes are
 * sorted by source distance, and neighbours that continue each other on both sides are one axis.
 * The digits of a source byte are its indices on the axes; since the source is injective, a byte
 * has one list of digits at most.
 *
 *   R1  The restated span, if it exists, is known from a few bytes: its start is the image of the
 *       view's start, its stride in a dim is the distance of the images of the view's start and of
 *       the start's neighbour in that dim. The bytes of an element must stay neighbours: their
 *       dim's restated stride is 1.
 *   R2  If the neighbours' digits differ from the start's by c[e][d], and the digits start +
 *       sum(j[e] * c[e][d]) stay within every axis over the whole box of view indices (no carry),
 *       these are the digits of each byte of the view, so each byte is in the source and the map is
 *       the span of R1. Bounds are reached at corners.
 *   R3  With carries the span of R1 may still be right. If every axis has equal distances on both
 *       sides the map is a shift, and the view needs only be covered by the source. Else each piece
 *       of each element is looked up.
 *
 * Cost: R1 and R2 about 15 ns and a quotient for each view dim and axis. R3: a relation (relate.c),
 * or 30 ns an element up to LOOKUP_PIECES; beyond, the answer is false. */
#include <assert.h>
#include <stddef.h>

#include "base/checked.h"
#include "span/set.h"

enum { LOOKUP_PIECES = 1 << 18 };

typedef struct axis {
    int64_t size, from, to;
} axis_t;

typedef struct copy_map {
    int32_t num_axes;
    bool is_ordered; /* each axis steps over all of the smaller ones */
    bool is_shift;
    int64_t from_first, to_first; /* places of the byte whose digits are all 0 */
    axis_t axes[SPAN_SET_MAX_DIMS];
} copy_map_t;

typedef struct digits {
    int64_t at[SPAN_SET_MAX_DIMS];
} digits_t;

static void insert_axis(copy_map_t *map, axis_t axis)
{
    int32_t place = map->num_axes++;
    while (place > 0 && map->axes[place - 1].from > axis.from) {
        map->axes[place] = map->axes[place - 1];
        place--;
    }
    map->axes[place] = axis;
}

static void join_axes(copy_map_t *map)
{
    int32_t last = 0;
    for (int32_t d = 1; d < map->num_axes; d++) {
        axis_t *inner = &map->axes[last];
        const axis_t *outer = &map->axes[d];
        if (outer->from == inner->from * inner->size && outer->to == inner->to * inner->size) {
            inner->size *= outer->size;
        } else {
            map->axes[++last] = *outer;
        }
    }
    map->num_axes = map->num_axes > 0 ? last + 1 : 0;
}

/* Whether the hull is small enough that no sum of distances overflows. */
static bool is_small(const span_t *span)
{
    int64_t first = 0;
    int64_t end = 0;
    int64_t extent = 0;
    span_hull(span, &first, &end);
    return checked_subtract(end, first, &extent) && extent < SPAN_SET_LIMIT &&
           first > -SPAN_SET_LIMIT && end < SPAN_SET_LIMIT;
}

/* False where the source is not injective. Requires spans that cover something, and are small. */
static bool make_map(const span_t *source, const span_t *target, copy_map_t *out_map)
{
    out_map->num_axes = 0;
    out_map->from_first = source->start;
    out_map->to_first = target->start;
    if (source->element_bytes > 1) {
        insert_axis(out_map, (axis_t){source->element_bytes, 1, 1});
    }
    for (int32_t d = source->rank - 1; d >= 0; d--) {
        axis_t axis = {source->sizes[d], source->strides[d], target->strides[d]};
        if (axis.size == 1) {
            continue;
        }
        if (axis.from == 0) {
            return false;
        }
        if (axis.from < 0) {
            out_map->from_first += axis.from * (axis.size - 1);
            out_map->to_first += axis.to * (axis.size - 1);
            axis.from = -axis.from;
            axis.to = -axis.to;
        }
        insert_axis(out_map, axis);
    }
    join_axes(out_map);
    out_map->is_ordered = true;
    out_map->is_shift = true;
    int64_t extent = 1;
    for (int32_t d = 0; d < out_map->num_axes; d++) {
        const axis_t *axis = &out_map->axes[d];
        out_map->is_ordered = out_map->is_ordered && axis->from >= extent;
        out_map->is_shift = out_map->is_shift && axis->from == axis->to;
        extent += (axis->size - 1) * axis->from;
    }
    return out_map->is_ordered || span_is_injective(source);
}

/* The digits of a source byte, or false for another byte (and where a search gives up). */
static bool find_digits(const copy_map_t *map, int64_t byte, digits_t *out_digits)
{
    int64_t rest = byte - map->from_first;
    if (rest < 0) {
        return false;
    }
    if (!map->is_ordered) {
        span_search_t search;
        search.num_dims = 0;
        for (int32_t d = 0; d < map->num_axes; d++) {
            span_search_add(&search, (span_dim_t){map->axes[d].size, map->axes[d].from}, false);
        }
        if (span_search_solve(&search, rest) != SPAN_YES) {
            return false;
        }
        for (int32_t d = 0; d < map->num_axes; d++) {
            out_digits->at[d] = search.indices[d];
        }
        return true;
    }
    for (int32_t d = map->num_axes - 1; d >= 0; d--) {
        const axis_t *axis = &map->axes[d];
        int64_t digit = axis->from == 1 ? rest : rest / axis->from;
        if (digit >= axis->size) {
            return false;
        }
        out_digits->at[d] = digit;
        rest -= digit * axis->from;
    }
    return rest == 0;
}

static int64_t image_of(const copy_map_t *map, const digits_t *digits)
{
    int64_t image = map->to_first;
    for (int32_t d = 0; d < map->num_axes; d++) {
        image += digits->at[d] * map->axes[d].to;
    }
    return image;
}

/* The state of R2: the smallest and largest digit of each axis over the box so far. */
typedef struct box {
    digits_t start, low, high;
    bool has_carry;
} box_t;

/* R1 for one dim of the view: its restated stride; widens the box by size steps. False if the
 *    neighbour is no source
 * byte. */
static bool add_dim(const copy_map_t *map, const span_t *view, int64_t size, int64_t stride,
                    box_t *box, int64_t *out_stride)
{
    digits_t next;
    if (!find_digits(map, view->start + stride, &next)) {
        return false;
    }
    *out_stride = 0;
    for (int32_t d = 0; d < map->num_axes; d++) {
        int64_t step = next.at[d] - box->start.at[d];
        digits_t *side = step < 0 ? &box->low : &box->high;
        int64_t reach = 0;
        *out_stride += step * map->axes[d].to;
        if (step == 0 || box->has_carry) {
            continue;
        }
        box->has_carry = !checked_multiply(step, size - 1, &reach) ||
                         !checked_add(side->at[d], reach, &side->at[d]) || side->at[d] < 0 ||
                         side->at[d] >= map->axes[d].size;
    }
    return true;
}

/* Whether the bytes of the element at byte map, in order, to the bytes from image on. Takes pieces
 * off the budget. */
static bool maps_element(const copy_map_t *map, int64_t byte, int64_t element_bytes, int64_t image,
                         int64_t *pieces_left)
{
    bool has_runs = map->num_axes > 0 && map->axes[0].from == 1 && map->axes[0].to == 1;
    for (int64_t done = 0; done < element_bytes;) {
        digits_t digits;
        if ((*pieces_left)-- <= 0 || !find_digits(map, byte + done, &digits) ||
            image_of(map, &digits) != image + done) {
            return false;
        }
        done += has_runs ? map->axes[0].size - digits.at[0] : 1;
    }
    return true;
}

/* R3: looks every element up. Both spans have the same sizes; what they list must correspond. */
static bool maps_every_element(const copy_map_t *map, const span_t *view, const span_t *restated)
{
    int64_t index[SPAN_MAX_RANK] = {0};
    int64_t pieces_left = LOOKUP_PIECES;
    int64_t byte = view->start;
    int64_t image = restated->start;
    for (;;) {
        if (!maps_element(map, byte, view->element_bytes, image, &pieces_left)) {
            return false;
        }
        int32_t d = view->rank - 1;
        for (; d >= 0 && index[d] == view->sizes[d] - 1; d--) {
            byte -= index[d] * view->strides[d];
            image -= index[d] * restated->strides[d];
            index[d] = 0;
        }
        if (d < 0) {
            return true;
        }
        index[d]++;
        byte += view->strides[d];
        image += restated->strides[d];
    }
}

static span_t move_span(const span_t *view, int64_t start)
{
    span_t moved = *view;
    moved.start = start;
    return moved;
}

static bool is_covered(const span_t *view, const span_t *source)
{
    span_relation_t relation = span_relate(source, view);
    return relation == SPAN_SAME || relation == SPAN_CONTAINS;
}

/* R1 to R3 for a view that covers something. */
static bool restate_bytes(const copy_map_t *map, const span_t *view, const span_t *source,
                          span_t *out_restated)
{
    box_t box;
    if (!find_digits(map, view->start, &box.start)) {
        return false;
    }
    box.low = box.start;
    box.high = box.start;
    box.has_carry = false;
    span_t restated = move_span(view, image_of(map, &box.start));
    for (int32_t d = 0; d < view->rank; d++) {
        bool is_free = view->sizes[d] == 1 || view->strides[d] == 0;
        if (!is_free &&
            !add_dim(map, view, view->sizes[d], view->strides[d], &box, &restated.strides[d])) {
            return false;
        }
    }
    int64_t byte_stride = 1;
    if (view->element_bytes > 1 &&
        !add_dim(map, view, view->element_bytes, 1, &box, &byte_stride)) {
        return false;
    }
    if (byte_stride != 1) {
        return false;
    }
    if (box.has_carry &&
        !(map->is_shift ? is_covered(view, source) : maps_every_element(map, view, &restated))) {
        return false;
    }
    *out_restated = restated;
    return true;
}

bool span_restate(const span_t *view, const span_t *source, const span_t *target,
                  span_t *out_restated)
{
    assert(source->rank == target->rank && source->element_bytes == target->element_bytes);
    if (span_is_empty(view)) {
        if (!span_is_injective(source)) {
            return false;
        }
        *out_restated = move_span(view, target->start);
        return true;
    }
    if (span_is_empty(source) || !is_small(source) || !is_small(target) || !is_small(view)) {
        return false;
    }
    copy_map_t map;
    return make_map(source, target, &map) && restate_bytes(&map, view, source, out_restated);
}
