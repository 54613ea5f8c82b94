/* Making byte sets of spans, and the bounded Diophantine search.
 *
 * Making a set: the element becomes the run of bytes, broadcast and size-1 dims vanish, negative
 * strides are mirrored, dims are sorted by stride. Two progressions of strides s and k*s, the first
 * of size n >= k, sum to one progression of stride s and size n + k * (m - 1); joining them makes
 * most layouts one or two dims. Cost: rank steps and an insertion sort, about 10 ns for what
 * tensors look like.
 *
 * The search: the equation is that of array dependence analysis (the GCD and Banerjee tests:
 * Banerjee, "Dependence Analysis for Supercomputing", 1988) solved exactly, as NumPy's
 * solve_diophantine does. Descend from the largest stride: the indices of a dim that leave a
 * remainder within the reach of the smaller ones are an interval (Banerjee's bound), which for
 * disjoint blocks holds one or two. A first try without gcds settles ordinary layouts. The second
 * prunes: with g the gcd of the strides left, above a run of w bytes, a remainder x has a solution
 * only if x mod g < w. Each try counts its steps and gives up at its budget. */
#include <assert.h>
#include <stddef.h>

#include "base/checked.h"
#include "span/set.h"

/* Steps of the search without and with gcds: about 0.3 us and 50 us. Beyond, the sweep is the
 * better way. */
enum { SEARCH_STEPS_PLAIN = 64, SEARCH_STEPS_GCD = 4096 };

int64_t span_gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static bool is_within_limit(int64_t value)
{
    return value < SPAN_SET_LIMIT && value > -SPAN_SET_LIMIT;
}

/* Sorts by insertion, smallest stride first; dims[0] is the run and stays. */
static void insert_dim(span_set_t *set, span_dim_t dim)
{
    int32_t place = set->num_dims++;
    while (place > 1 && set->dims[place - 1].stride > dim.stride) {
        set->dims[place] = set->dims[place - 1];
        place--;
    }
    set->dims[place] = dim;
}

/* Whether the sum of both progressions is one: *inner then is that one. outer's stride is not the
 * smaller one. */
static bool join_dims(span_dim_t *inner, span_dim_t outer)
{
    int64_t reach = 0;
    int64_t steps = 1;
    if (checked_multiply(inner->stride, inner->size, &reach) && outer.stride > reach) {
        return false;
    }
    if (inner->stride == 1) {
        steps = outer.stride;
    } else if (outer.stride == reach) {
        steps = inner->size;
    } else if (outer.stride != inner->stride) {
        if (outer.stride % inner->stride != 0) {
            return false;
        }
        steps = outer.stride / inner->stride;
    }
    int64_t growth = 0;
    int64_t size = 0;
    if (!checked_multiply(steps, outer.size - 1, &growth) ||
        !checked_add(inner->size, growth, &size)) {
        return false;
    }
    inner->size = size;
    return true;
}

/* Joins neighbours and fills extents and is_ordered. */
static bool settle_dims(span_set_t *set)
{
    int32_t last = 0;
    for (int32_t d = 1; d < set->num_dims; d++) {
        if (!join_dims(&set->dims[last], set->dims[d])) {
            set->dims[++last] = set->dims[d];
        }
    }
    set->num_dims = last + 1;
    set->is_ordered = true;
    set->extents[0] = set->dims[0].size;
    for (int32_t d = 1; d <= last; d++) {
        int64_t reach = 0;
        if (!checked_multiply(set->dims[d].size - 1, set->dims[d].stride, &reach) ||
            !is_within_limit(reach) || !is_within_limit(set->extents[d - 1])) {
            return false;
        }
        set->is_ordered = set->is_ordered && set->dims[d].stride >= set->extents[d - 1];
        set->extents[d] = set->extents[d - 1] + reach;
    }
    return is_within_limit(set->extents[last]);
}

bool span_set_make(const span_t *span, int64_t origin, span_set_t *out_set)
{
    assert(!span_is_empty(span));
    int64_t first = 0;
    if (!checked_subtract(span->start, origin, &first)) {
        return false;
    }
    out_set->num_dims = 1;
    out_set->dims[0] = (span_dim_t){span->element_bytes, 1};
    for (int32_t d = span->rank - 1; d >= 0; d--) {
        int64_t stride = span->strides[d];
        int64_t size = span->sizes[d];
        if (size == 1 || stride == 0) {
            continue;
        }
        if (!is_within_limit(stride)) {
            return false;
        }
        if (stride < 0) {
            int64_t reach = 0;
            if (!checked_multiply(stride, size - 1, &reach) || !checked_add(first, reach, &first)) {
                return false;
            }
            stride = -stride;
        }
        if (!join_dims(&out_set->dims[0], (span_dim_t){size, stride})) {
            insert_dim(out_set, (span_dim_t){size, stride});
        }
    }
    out_set->first = first;
    return is_within_limit(first) && settle_dims(out_set);
}

void span_search_add(span_search_t *search, span_dim_t dim, bool may_join)
{
    span_dim_t *last = search->num_dims > 0 ? &search->dims[search->num_dims - 1] : NULL;
    assert(last == NULL || last->stride <= dim.stride);
    if (may_join && last != NULL && last->stride == dim.stride) {
        last->size += dim.size - 1;
        return;
    }
    search->dims[search->num_dims++] = dim;
}

static void fill_gcds(span_search_t *search)
{
    bool has_run = search->dims[0].stride == 1;
    search->has_gcds = true;
    search->window = has_run ? search->dims[0].size - 1 : 0;
    search->gcds[0] = has_run ? 0 : search->dims[0].stride;
    for (int32_t d = 1; d < search->num_dims; d++) {
        search->gcds[d] = span_gcd(search->dims[d].stride, search->gcds[d - 1]);
    }
}

static span_answer_t descend(span_search_t *search, int32_t d, int64_t wanted);

/* Tries the indices low..high of dim d, highest first. */
static span_answer_t try_indices(span_search_t *search, int32_t d, int64_t wanted, int64_t low,
                                 int64_t high)
{
    int64_t stride = search->dims[d].stride;
    int64_t gcd = search->has_gcds ? search->gcds[d - 1] : 0;
    for (int64_t index = high; index >= low; index--) {
        int64_t rest = wanted - index * stride;
        if (search->steps_left-- <= 0) {
            return SPAN_GAVE_UP;
        }
        if (gcd > 1 && rest % gcd > search->window) {
            continue;
        }
        span_answer_t answer = descend(search, d - 1, rest);
        if (answer != SPAN_NO) {
            search->indices[d] = index;
            return answer;
        }
    }
    return SPAN_NO;
}

/* Solves for dims 0..d. Requires 0 <= wanted <= extents[d]. */
static span_answer_t descend(span_search_t *search, int32_t d, int64_t wanted)
{
    int64_t stride = search->dims[d].stride;
    if (d == 0) {
        if (stride != 1 && wanted % stride != 0) {
            return SPAN_NO;
        }
        search->indices[0] = wanted / stride;
        return SPAN_YES;
    }
    int64_t reach = search->extents[d - 1];
    int64_t high = wanted / stride;
    int64_t low = wanted > reach ? (wanted - reach + stride - 1) / stride : 0;
    if (high > search->dims[d].size - 1) {
        high = search->dims[d].size - 1;
    }
    return try_indices(search, d, wanted, low, high);
}

span_answer_t span_search_solve(span_search_t *search, int64_t wanted)
{
    int64_t extent = 0;
    for (int32_t d = 0; d < search->num_dims; d++) {
        extent += (search->dims[d].size - 1) * search->dims[d].stride;
        search->extents[d] = extent;
    }
    if (wanted < 0 || wanted > extent) {
        return SPAN_NO;
    }
    search->has_gcds = false;
    search->steps_left = SEARCH_STEPS_PLAIN;
    span_answer_t answer = descend(search, search->num_dims - 1, wanted);
    if (answer == SPAN_GAVE_UP) {
        fill_gcds(search);
        search->steps_left = SEARCH_STEPS_GCD;
        int64_t gcd = search->gcds[search->num_dims - 1];
        bool is_reachable = gcd == 0 || wanted % gcd <= search->window;
        answer = is_reachable ? descend(search, search->num_dims - 1, wanted) : SPAN_NO;
    }
    return answer;
}
