/* Whether one ordered set holds every byte of another set, without listing either.
 *
 * Definitions. The top dim of the cover cuts addresses into cells of its stride S; a byte's cell is
 * the quotient by S and its place in the cell the remainder (S4 of set.h). The dims below are the
 * pattern of every cell.
 *
 *   C1  A set whose hull is not inside the cover's is not covered: the ends of a hull are bytes of
 *       the set.
 *   C2  Inside the hull every cell number is one of the cover's, so only remainders matter: dims of
 *       the set whose stride is a multiple of S are dropped, other strides count modulo S, and a
 *       progression repeats after S / gcd(stride, S) steps.
 *   C3  A set within one cell is covered if and only if the pattern covers it: one dim less.
 *   C4  Any other set is halved along its longest dim, and both halves must be covered.
 *
 * Slices of one tensor meet C2 and C3 alone and take about 10 ns a dim; what is not covered mostly
 * fails C1 early. Budget: COVER_STEPS, about 30 us; then the answer is "gave up" and the caller
 * sweeps. */
#include "span/set.h"

enum { COVER_STEPS = 2048 };

typedef struct walk {
    const span_set_t *cover;
    int64_t steps_left;
} walk_t;

/* A part of the set that is to be covered: dims above a first byte. */
typedef struct part {
    int32_t num_dims;
    span_dim_t dims[SPAN_SET_MAX_DIMS];
} part_t;

static int64_t part_extent(const part_t *part)
{
    int64_t extent = 1;
    for (int32_t d = 0; d < part->num_dims; d++) {
        extent += (part->dims[d].size - 1) * part->dims[d].stride;
    }
    return extent;
}

/* C2. Mirrors a stride that is nearer to S than to 0, which keeps the reduced part short. */
static void reduce_part(const part_t *part, int64_t cell, int64_t *first, part_t *out_reduced)
{
    out_reduced->num_dims = 0;
    for (int32_t d = 0; d < part->num_dims; d++) {
        int64_t size = part->dims[d].size;
        int64_t stride = part->dims[d].stride % cell;
        if (stride == 0) {
            continue;
        }
        if (size > cell / stride) {
            int64_t period = cell / span_gcd(cell, stride);
            size = size < period ? size : period;
        }
        if (stride > cell - stride) {
            stride = cell - stride;
            *first -= (size - 1) * stride;
        }
        out_reduced->dims[out_reduced->num_dims++] = (span_dim_t){size, stride};
    }
}

static int32_t longest_dim(const part_t *part)
{
    int32_t longest = 0;
    int64_t reach = 0;
    for (int32_t d = 0; d < part->num_dims; d++) {
        int64_t other = (part->dims[d].size - 1) * part->dims[d].stride;
        if (other > reach) {
            reach = other;
            longest = d;
        }
    }
    return longest;
}

static span_answer_t covers_part(walk_t *walk, int32_t level, int64_t first, const part_t *part);

/* C3 and C4: whether the remainders of the part are in the pattern below level. */
static span_answer_t covers_remainders(walk_t *walk, int32_t level, int64_t first,
                                       const part_t *part)
{
    int64_t cell = walk->cover->dims[level].stride;
    if (walk->steps_left-- <= 0) {
        return SPAN_GAVE_UP;
    }
    first %= cell;
    first += first < 0 ? cell : 0;
    if (first + part_extent(part) <= cell) {
        return covers_part(walk, level - 1, first, part);
    }
    part_t half = *part;
    int32_t d = longest_dim(part);
    int64_t middle = part->dims[d].size / 2;
    half.dims[d].size = middle;
    span_answer_t answer = covers_remainders(walk, level, first, &half);
    if (answer != SPAN_YES) {
        return answer;
    }
    half.dims[d].size = part->dims[d].size - middle;
    return covers_remainders(walk, level, first + middle * part->dims[d].stride, &half);
}

static span_answer_t covers_part(walk_t *walk, int32_t level, int64_t first, const part_t *part)
{
    int64_t extent = walk->cover->extents[level];
    if (first < 0 || first + part_extent(part) > extent) {
        return SPAN_NO;
    }
    if (level == 0) {
        return SPAN_YES;
    }
    part_t reduced;
    reduce_part(part, walk->cover->dims[level].stride, &first, &reduced);
    return covers_remainders(walk, level, first, &reduced);
}

span_answer_t span_set_covers(const span_set_t *a, const span_set_t *b)
{
    int64_t first = b->first - a->first;
    if (first < 0 || first + b->extents[b->num_dims - 1] > a->extents[a->num_dims - 1]) {
        return SPAN_NO;
    }
    if (a->num_dims == 1) {
        return SPAN_YES;
    }
    if (!a->is_ordered) {
        return SPAN_GAVE_UP;
    }
    part_t part;
    part.num_dims = b->num_dims;
    for (int32_t d = 0; d < b->num_dims; d++) {
        part.dims[d] = b->dims[d];
    }
    walk_t walk = {a, COVER_STEPS};
    return covers_part(&walk, a->num_dims - 1, first, &part);
}
