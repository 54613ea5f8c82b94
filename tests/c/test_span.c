/* Spans against brute force: relations against byte sets, restated views against copied bytes, and
 * the layouts that the compiler meets most.
 *
 * Usage: test_span. UNCOPY_TEST_SCALE=n multiplies the number of random cases, UNCOPY_TEST_SEED=n
 * changes them. */
#include <stdlib.h>

#include "check.h"
#include "span/span.h"

enum { ARENA_BYTES = 1 << 13 };

static uint64_t random_state;

static uint64_t random_bits(void)
{
    random_state += 0x9E3779B97F4A7C15U;
    uint64_t z = random_state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

/* Uniform in low..high. */
static int64_t pick(int64_t low, int64_t high)
{
    return low + (int64_t)(random_bits() % (uint64_t)(high - low + 1));
}

static int64_t pick_element_bytes(void)
{
    return (int64_t)1 << pick(0, 4);
}

static void print_span(const char *name, const span_t *span)
{
    printf("    %s: start %" PRId64 " element %" PRId64, name, span->start, span->element_bytes);
    for (int32_t d = 0; d < span->rank; d++) {
        printf(" [%" PRId64 " by %" PRId64 "]", span->sizes[d], span->strides[d]);
    }
    printf("\n");
}

/* Calls visit for the first byte of each element, in index order. */
static void each_element(const span_t *span, void (*visit)(void *state, int64_t byte), void *state)
{
    int64_t index[SPAN_MAX_RANK] = {0};
    int64_t byte = span->start;
    if (span_count(span) == 0) {
        return;
    }
    for (;;) {
        visit(state, byte);
        int32_t d = span->rank - 1;
        for (; d >= 0 && ++index[d] == span->sizes[d]; d--) {
            byte -= (span->sizes[d] - 1) * span->strides[d];
            index[d] = 0;
        }
        if (d < 0) {
            return;
        }
        byte += span->strides[d];
    }
}

/* Brute force: marks[byte - first] |= bit; has_repeat says that a byte was marked twice with the
 * same bit. */
typedef struct marks {
    unsigned char *bytes;
    int64_t first, element_bytes;
    unsigned char bit;
    bool has_repeat;
} marks_t;

static void mark_element(void *state, int64_t byte)
{
    marks_t *marks = state;
    for (int64_t b = 0; b < marks->element_bytes; b++) {
        unsigned char *mark = &marks->bytes[byte - marks->first + b];
        marks->has_repeat = marks->has_repeat || (*mark & marks->bit) != 0;
        *mark |= marks->bit;
    }
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The relation by marking the bytes of both in bytes, which has room for the joint hull. */
static span_relation_t brute_relation(const span_t *a, const span_t *b, unsigned char *bytes)
{
    int64_t first_a = 0;
    int64_t end_a = 0;
    int64_t first_b = 0;
    int64_t end_b = 0;
    if (span_count(a) == 0 || span_count(b) == 0) {
        return SPAN_DISJOINT;
    }
    if (a->start == b->start && a->element_bytes == b->element_bytes &&
        span_has_same_layout(a, b)) {
        return SPAN_SAME;
    }
    span_hull(a, &first_a, &end_a);
    span_hull(b, &first_b, &end_b);
    int64_t first = smaller(first_a, first_b);
    int64_t num_bytes = larger(end_a, end_b) - first;
    memset(bytes, 0, (size_t)num_bytes);
    marks_t marks = {bytes, first, a->element_bytes, 1, false};
    each_element(a, mark_element, &marks);
    marks = (marks_t){bytes, first, b->element_bytes, 2, false};
    each_element(b, mark_element, &marks);
    int64_t kinds[4] = {0};
    for (int64_t i = 0; i < num_bytes; i++) {
        kinds[bytes[i]]++;
    }
    if (kinds[3] == 0) {
        return SPAN_DISJOINT;
    }
    if (kinds[2] == 0) {
        return SPAN_CONTAINS;
    }
    return kinds[1] == 0 ? SPAN_WITHIN : SPAN_PARTIAL;
}

static bool brute_injective(const span_t *span, unsigned char *bytes)
{
    int64_t first = 0;
    int64_t end = 0;
    span_hull(span, &first, &end);
    memset(bytes, 0, (size_t)(end - first));
    marks_t marks = {bytes, first, span->element_bytes, 1, false};
    each_element(span, mark_element, &marks);
    return !marks.has_repeat;
}

/* Whether each element lies right behind the one before it. */
typedef struct queue {
    int64_t next, element_bytes;
    bool has_gap;
} queue_t;

static void queue_element(void *state, int64_t byte)
{
    queue_t *queue = state;
    queue->has_gap = queue->has_gap || byte != queue->next;
    queue->next += queue->element_bytes;
}

static bool brute_contiguous(const span_t *span)
{
    queue_t queue = {span->start, span->element_bytes, false};
    each_element(span, queue_element, &queue);
    return !queue.has_gap;
}

/* Any strides: zero, negative, overlapping. */
static span_t wild_span(int32_t max_rank, int64_t max_size, int64_t max_stride)
{
    span_t span = {.start = pick(-100, 100), .element_bytes = pick_element_bytes()};
    int64_t unit = pick(0, 1) == 0 ? 1 : span.element_bytes;
    span.rank = (int32_t)pick(0, max_rank);
    for (int32_t d = 0; d < span.rank; d++) {
        span.sizes[d] = pick(pick(0, 19) == 0 ? 0 : 1, max_size);
        span.strides[d] = pick(-max_stride, max_stride) * unit;
        if (pick(0, 9) == 0) {
            span.strides[d] = 0;
        }
    }
    return span;
}

static void swap_dims(span_t *span, int64_t d, int64_t e)
{
    int64_t size = span->sizes[d];
    int64_t stride = span->strides[d];
    span->sizes[d] = span->sizes[e];
    span->strides[d] = span->strides[e];
    span->sizes[e] = size;
    span->strides[e] = stride;
}

static span_t row_major(int64_t start, int64_t element_bytes, int32_t rank, const int64_t *sizes)
{
    span_t span = {.start = start, .element_bytes = element_bytes, .rank = rank};
    int64_t stride = element_bytes;
    for (int32_t d = rank - 1; d >= 0; d--) {
        span.sizes[d] = sizes[d];
        span.strides[d] = stride;
        stride *= sizes[d] > 0 ? sizes[d] : 1;
    }
    return span;
}

/* A row-major tensor of up to max_rank dims. */
static span_t dense_span(int64_t start, int64_t element_bytes, int32_t max_rank, int64_t max_size)
{
    int64_t sizes[SPAN_MAX_RANK];
    int32_t rank = (int32_t)pick(0, max_rank);
    for (int32_t d = 0; d < rank; d++) {
        sizes[d] = pick(1, max_size);
    }
    return row_major(start, element_bytes, rank, sizes);
}

/* first, last and step of one dim; an empty slice now and then. */
static void slice_dim(span_t *span, int64_t d)
{
    if (span->sizes[d] == 0) {
        return;
    }
    int64_t step = pick(0, 3) == 0 ? pick(1, 3) : 1;
    int64_t first = pick(0, span->sizes[d] - 1);
    int64_t length = pick(pick(0, 19) == 0 ? 0 : 1, span->sizes[d] - first);
    span->start += first * span->strides[d];
    span->sizes[d] = (length + step - 1) / step;
    span->strides[d] *= step;
    if (span->sizes[d] > 0 && pick(0, 7) == 0) {
        span->start += (span->sizes[d] - 1) * span->strides[d];
        span->strides[d] = -span->strides[d];
    }
}

/* Splits one dim in two, or joins two that lie one in the other. */
static void reshape_dim(span_t *span, int64_t d)
{
    int64_t factor = pick(2, 4);
    if (d + 1 < span->rank && span->strides[d] == span->strides[d + 1] * span->sizes[d + 1]) {
        span->sizes[d] *= span->sizes[d + 1];
        span->strides[d] = span->strides[d + 1];
        for (int64_t e = d + 1; e + 1 < span->rank; e++) {
            swap_dims(span, e, e + 1);
        }
        span->rank--;
    } else if (span->rank < 6 && span->sizes[d] % factor == 0) {
        int64_t last = span->rank++;
        span->sizes[last] = factor;
        span->strides[last] = span->strides[d];
        span->sizes[d] /= factor;
        span->strides[d] *= factor;
        for (int64_t e = last; e > d + 1; e--) {
            swap_dims(span, e, e - 1);
        }
    }
}

/* The same bytes as elements of half, or twice the size where the last dim allows. */
static void change_dtype(span_t *span)
{
    int64_t last = span->rank - 1;
    if (pick(0, 1) == 0 && span->element_bytes > 1 && span->rank < 6) {
        span->element_bytes /= 2;
        span->sizes[span->rank] = 2;
        span->strides[span->rank] = span->element_bytes;
        span->rank++;
    } else if (span->rank > 0 && span->element_bytes < 16 && span->sizes[last] % 2 == 0 &&
               span->strides[last] == span->element_bytes) {
        span->element_bytes *= 2;
        span->strides[last] *= 2;
        span->sizes[last] /= 2;
    }
}

/* A view by a few steps that tensor programs take. */
static span_t view_of(const span_t *base)
{
    span_t view = *base;
    for (int64_t step = pick(0, 4); step > 0; step--) {
        int64_t kind = pick(0, 9);
        if (kind == 9) {
            change_dtype(&view);
        } else if (view.rank > 0) {
            int64_t d = pick(0, view.rank - 1);
            if (kind < 5) {
                slice_dim(&view, d);
            } else if (kind < 7) {
                swap_dims(&view, d, pick(0, view.rank - 1));
            } else {
                reshape_dim(&view, d);
            }
        }
    }
    return view;
}

/* A span that is near to another one: the same with a few numbers changed. */
static span_t neighbour_of(const span_t *span)
{
    span_t other = *span;
    if (pick(0, 3) != 0) {
        other.start += pick(-24, 24);
    }
    if (pick(0, 4) == 0) {
        other.element_bytes = pick_element_bytes();
    }
    if (other.rank > 0 && pick(0, 1) == 0) {
        other.sizes[pick(0, other.rank - 1)] = pick(1, 5);
    }
    if (other.rank > 0 && pick(0, 3) == 0) {
        swap_dims(&other, pick(0, other.rank - 1), pick(0, other.rank - 1));
    }
    if (other.rank > 0 && pick(0, 3) == 0) {
        other.strides[pick(0, other.rank - 1)] += pick(-8, 8);
    }
    return other;
}

static void pick_pair(span_t *a, span_t *b)
{
    int64_t kind = pick(0, 9);
    if (kind < 3) {
        *a = wild_span(5, pick(0, 3) == 0 ? 5 : 3, pick(0, 1) == 0 ? 6 : 30);
        *b = wild_span(5, pick(0, 3) == 0 ? 5 : 3, pick(0, 1) == 0 ? 6 : 30);
    } else if (kind < 5) {
        *a = wild_span(5, 3, 20);
        *b = neighbour_of(a);
    } else if (kind < 6) {
        *a = wild_span(2, 30, 12);
        *b = wild_span(2, 30, 12);
    } else {
        span_t base = dense_span(pick(-8, 8), pick_element_bytes(), 4, pick(0, 3) == 0 ? 6 : 4);
        *a = view_of(&base);
        *b = pick(0, 4) == 0 ? neighbour_of(a) : view_of(&base);
    }
}

static bool fits_arena(const span_t *a, const span_t *b)
{
    int64_t first_a = 0;
    int64_t end_a = 0;
    int64_t first_b = 0;
    int64_t end_b = 0;
    span_hull(a, &first_a, &end_a);
    span_hull(b, &first_b, &end_b);
    return larger(end_a, end_b) - smaller(first_a, first_b) <= ARENA_BYTES;
}

/* Everything that two spans can be asked, against the byte sets. */
static bool check_pair(const span_t *a, const span_t *b, unsigned char *bytes)
{
    span_relation_t expected = brute_relation(a, b, bytes);
    span_relation_t found = span_relate(a, b);
    bool is_right = CHECK(found == expected);
    is_right = CHECK(span_overlaps(a, b) == (expected != SPAN_DISJOINT)) && is_right;
    is_right = CHECK(span_is_injective(a) == brute_injective(a, bytes)) && is_right;
    is_right = CHECK(span_is_contiguous(a) == brute_contiguous(a)) && is_right;
    if (!is_right) {
        print_span("a", a);
        print_span("b", b);
        printf("    is %s, expected %s\n", span_relation_name(found), span_relation_name(expected));
    }
    return is_right;
}

static void test_random_pairs(int64_t num_pairs)
{
    static unsigned char bytes[ARENA_BYTES];
    int64_t counts[6] = {0};
    printf("every relation of random views is that of their byte sets\n");
    for (int64_t i = 0; i < num_pairs && check_failures < 10;) {
        span_t a;
        span_t b;
        pick_pair(&a, &b);
        if (fits_arena(&a, &b)) {
            check_pair(&a, &b, bytes);
            counts[span_relate(&a, &b)]++;
            i++;
        }
    }
    for (int relation = 0; relation < 6; relation++) {
        printf("    %s %" PRId64, span_relation_name((span_relation_t)relation), counts[relation]);
    }
    printf("\n");
    CHECK_EQUAL_I64(counts[SPAN_UNKNOWN], 0);
}

/* Up to 4 dims and up to 10^5 elements, with strides that make the searches work. */
static span_t big_span(int64_t start)
{
    span_t span = {.start = start, .element_bytes = pick_element_bytes()};
    int64_t room = 100000;
    int64_t common = pick(0, 1) == 0 ? pick(1, 40) : 1;
    span.rank = (int32_t)pick(1, 4);
    for (int32_t d = 0; d < span.rank; d++) {
        int64_t most = smaller(room, d + 1 == span.rank ? room : pick(1, 100));
        span.sizes[d] = pick(larger(1, most / 2), most);
        room /= span.sizes[d];
        int64_t limit = larger(1, 4000000 / span.sizes[d] / common);
        span.strides[d] =
            common * (pick(0, 2) == 0 ? pick(-limit, limit) : pick(1, smaller(limit, 50)));
    }
    return span;
}

static void test_big_pairs(int64_t num_pairs)
{
    size_t room = (size_t)1 << 26;
    unsigned char *bytes = malloc(room);
    printf("no relation of views of up to 10^5 elements and 4 dims is unknown or wrong\n");
    if (!CHECK(bytes != NULL)) {
        return;
    }
    for (int64_t i = 0; i < num_pairs && check_failures < 10; i++) {
        span_t a = big_span(pick(0, 1000));
        span_t b = pick(0, 1) == 0 ? big_span(pick(0, 1000)) : a;
        if (b.rank == a.rank && pick(0, 1) == 0) {
            b = a;
            b.start += pick(-300, 300);
            b.sizes[pick(0, b.rank - 1)] += pick(-1, 1);
            b.strides[pick(0, b.rank - 1)] += pick(-1, 1);
        }
        check_pair(&a, &b, bytes);
    }
    free(bytes);
}

/* The sparse case, where a byte map has no room: 18^4 elements over 10^15 bytes. */
static void test_sparse_pair(void)
{
    span_t a = {0,
                4,
                4,
                {18, 18, 17, 18},
                {10000000000000, 10000000000100, 10000000004000, 10000000160000}};
    span_t b = a;
    printf("views without order that are spread over 10^15 bytes are told apart\n");
    b.start = 7;
    CHECK(span_relate(&a, &b) == SPAN_DISJOINT);
    CHECK(!span_overlaps(&a, &b));
    b.start = 3;
    CHECK(span_relate(&a, &b) == SPAN_PARTIAL);
    b.start = a.strides[1] + 2 * a.strides[3];
    b.sizes[1] -= 1;
    b.sizes[3] -= 2;
    CHECK(span_relate(&a, &b) == SPAN_CONTAINS);
    CHECK(span_relate(&b, &a) == SPAN_WITHIN);
    CHECK(span_is_injective(&a));
    b.strides[2] = b.strides[3] * 2 - b.strides[0];
    CHECK(!span_is_injective(&b));
}

/* Billions of elements in the least orderly strides: the searches end by their budgets. */
static void test_endless_pair(void)
{
    span_t a = {
        0,
        1,
        6,
        {97, 89, 83, 79, 73, 71},
        {999999999989, 1000000000039, 1000000000061, 1000000000063, 1000000000091, 1000000000121}};
    span_t b = {
        0,
        1,
        6,
        {97, 89, 83, 79, 73, 71},
        {1000000000163, 1000000000169, 1000000000177, 1000000000189, 1000000000193, 1000000000211}};
    span_t view = a;
    span_t shifted = a;
    span_t restated;
    printf("what the budgets do not settle is unknown, overlaps, and is not restated\n");
    b.start = 500000000000;
    CHECK(span_relate(&a, &b) == SPAN_UNKNOWN);
    CHECK(span_overlaps(&a, &b));
    shifted.start = 1;
    CHECK(!span_restate(&view, &a, &shifted, &restated) || span_is_injective(&a));
}

/* What tensor programs ask most, by hand. */
static void test_known_layouts(void)
{
    span_t matrix = {4096, 4, 2, {1000, 1024}, {4096, 4}};
    span_t rows = {4096 + 4096 * 10, 4, 2, {20, 1024}, {4096, 4}};
    span_t left = {4096, 4, 2, {1000, 512}, {4096, 4}};
    span_t right = {4096 + 2048, 4, 2, {1000, 512}, {4096, 4}};
    span_t column = {4096 + 4, 4, 1, {1000}, {4096}};
    span_t transposed = {4096, 4, 2, {1024, 1000}, {4, 4096}};
    span_t flat = {4096, 1, 1, {4096000}, {1}};
    span_t nothing = {4096, 4, 2, {0, 1024}, {4096, 4}};
    printf("slices, columns, row blocks and reinterpreted elements are related as named\n");
    CHECK(span_relate(&matrix, &matrix) == SPAN_SAME);
    CHECK(span_relate(&matrix, &rows) == SPAN_CONTAINS);
    CHECK(span_relate(&rows, &matrix) == SPAN_WITHIN);
    CHECK(span_relate(&left, &right) == SPAN_DISJOINT);
    CHECK(span_relate(&left, &column) == SPAN_CONTAINS);
    CHECK(span_relate(&right, &column) == SPAN_DISJOINT);
    CHECK(span_relate(&left, &rows) == SPAN_PARTIAL);
    CHECK(span_relate(&matrix, &transposed) == SPAN_CONTAINS);
    CHECK(span_relate(&transposed, &matrix) == SPAN_CONTAINS);
    CHECK(span_relate(&matrix, &flat) == SPAN_CONTAINS);
    CHECK(span_relate(&nothing, &matrix) == SPAN_DISJOINT);
    CHECK(span_relate(&nothing, &nothing) == SPAN_DISJOINT);
    CHECK(span_is_contiguous(&matrix) && span_is_contiguous(&nothing) && span_is_contiguous(&rows));
    CHECK(!span_is_contiguous(&left) && !span_is_contiguous(&transposed));
    CHECK(span_is_injective(&transposed) && span_is_injective(&left));
    CHECK_EQUAL_I64(span_count(&matrix), 1024000);
    CHECK_EQUAL_I64(span_count(&nothing), 0);
    CHECK_EQUAL_TEXT(span_relation_name(SPAN_DISJOINT), "disjoint");
    CHECK_EQUAL_TEXT(span_relation_name(SPAN_UNKNOWN), "unknown");
    CHECK(span_relation_flip(SPAN_CONTAINS) == SPAN_WITHIN);
    CHECK(span_relation_flip(SPAN_WITHIN) == SPAN_CONTAINS);
    CHECK(span_relation_flip(SPAN_PARTIAL) == SPAN_PARTIAL);
}

/* Numbers that no memory has, as a broken file may bring them. */
static void test_absurd_numbers(void)
{
    int64_t most = INT64_MAX;
    span_t spans[] = {
        {0, 4, 2, {most, most}, {most, -most}},
        {0, 4, 1, {2}, {INT64_MIN}},
        {most, 16, 1, {4}, {16}},
        {INT64_MIN, 1, 1, {most}, {-1}},
        {0, most, 2, {3, 3}, {1, most / 2}},
        {-5, 2, 3, {most, 2, most}, {1, 3, 1}},
        {0, 8, 2, {most / 4, 3}, {3, most / 2}},
        {0, 1, 1, {most}, {1}},
        {7, 4, 2, {1 << 30, 1 << 30}, {1 << 30, 1}},
    };
    int32_t num_spans = (int32_t)(sizeof(spans) / sizeof(spans[0]));
    span_t restated;
    printf("numbers beyond any memory give unknown, not a wrong or undefined answer\n");
    for (int32_t i = 0; i < num_spans; i++) {
        (void)span_is_injective(&spans[i]);
        (void)span_is_contiguous(&spans[i]);
        (void)span_restate(&spans[i], &spans[i], &spans[i], &restated);
        for (int32_t j = 0; j < num_spans; j++) {
            (void)span_relate(&spans[i], &spans[j]);
            (void)span_overlaps(&spans[i], &spans[j]);
        }
    }
    CHECK(span_overlaps(&spans[0], &spans[1]));
    CHECK(span_relate(&spans[0], &spans[5]) == SPAN_UNKNOWN);
}

/* Brute force of span_restate: where the copy moves each byte of the source. */
enum { NO_PLACE = INT32_MIN };

typedef struct places {
    int32_t *to; /* by source byte - first */
    int64_t first, num_bytes, num;
    int64_t listed[ARENA_BYTES];
} places_t;

static void list_place(void *state, int64_t byte)
{
    places_t *places = state;
    places->listed[places->num++] = byte;
}

/* Fills places->to; false where the source is not injective. */
static bool brute_copy(const span_t *source, const span_t *target, places_t *places)
{
    static places_t targets;
    int64_t end = 0;
    span_hull(source, &places->first, &end);
    places->num_bytes = end - places->first;
    for (int64_t i = 0; i < places->num_bytes; i++) {
        places->to[i] = NO_PLACE;
    }
    places->num = 0;
    targets.num = 0;
    each_element(source, list_place, places);
    each_element(target, list_place, &targets);
    for (int64_t i = 0; i < places->num; i++) {
        for (int64_t b = 0; b < source->element_bytes; b++) {
            int32_t *to = &places->to[places->listed[i] - places->first + b];
            if (*to != NO_PLACE) {
                return false;
            }
            *to = (int32_t)(targets.listed[i] + b);
        }
    }
    return true;
}

static int32_t place_of(const places_t *places, int64_t byte)
{
    bool is_inside = byte >= places->first && byte < places->first + places->num_bytes;
    return is_inside ? places->to[byte - places->first] : NO_PLACE;
}

/* Whether expected lists, in view's order, where the copy moves view's bytes. */
static bool brute_corresponds(const span_t *view, const span_t *expected, const places_t *places)
{
    static places_t from;
    static places_t to;
    from.num = 0;
    to.num = 0;
    each_element(view, list_place, &from);
    each_element(expected, list_place, &to);
    for (int64_t i = 0; i < from.num; i++) {
        for (int64_t b = 0; b < view->element_bytes; b++) {
            if (place_of(places, from.listed[i] + b) == NO_PLACE ||
                place_of(places, from.listed[i] + b) != to.listed[i] + b) {
                return false;
            }
        }
    }
    return true;
}

/* The only span that can be right, from the copied start and its neighbours; false where none
 * is. */
static bool brute_restate(const span_t *view, const places_t *places, span_t *out_restated)
{
    span_t restated = *view;
    if (span_count(view) == 0) {
        *out_restated = restated;
        return true;
    }
    restated.start = place_of(places, view->start);
    if (restated.start == NO_PLACE) {
        return false;
    }
    for (int32_t d = 0; d < view->rank; d++) {
        if (view->sizes[d] > 1) {
            restated.strides[d] = place_of(places, view->start + view->strides[d]) - restated.start;
        }
    }
    *out_restated = restated;
    return brute_corresponds(view, &restated, places);
}

/* The layouts a copy has on its two sides: dense, transposed, sliced with a pitch, or any. */
static void pick_copy(span_t *source, span_t *target)
{
    span_t sizes = dense_span(0, pick_element_bytes(), 4, 4);
    span_t *sides[2] = {source, target};
    for (int32_t side = 0; side < 2; side++) {
        int32_t order[SPAN_MAX_RANK];
        span_t *span = sides[side];
        *span = sizes;
        span->start = pick(-50, 50);
        for (int32_t d = 0; d < span->rank; d++) {
            order[d] = d;
        }
        for (int32_t d = 0; d < span->rank && pick(0, 1) == 0; d++) {
            int64_t e = pick(d, span->rank - 1);
            int32_t held = order[d];
            order[d] = order[e];
            order[e] = held;
        }
        int64_t stride = span->element_bytes;
        for (int32_t i = span->rank - 1; i >= 0; i--) {
            bool is_mirrored = pick(0, 9) == 0;
            span->strides[order[i]] = is_mirrored ? -stride : stride;
            stride *= span->sizes[order[i]];
            stride += pick(0, 2) == 0 ? pick(1, 3) * span->element_bytes : 0;
        }
        if (span->rank > 0 && pick(0, 19) == 0) {
            span->strides[pick(0, span->rank - 1)] = pick(-3, 9) * span->element_bytes;
        }
    }
    if (pick(0, 7) == 0) {
        *target = *source;
        target->start += pick(-40, 40);
    }
}

static void test_random_restatements(int64_t num_cases)
{
    static int32_t to[ARENA_BYTES];
    static places_t places = {.to = to};
    int64_t num_restated = 0;
    int64_t num_refused = 0;
    printf("a view is restated if and only if one span lists where the copy moves it\n");
    for (int64_t i = 0; i < num_cases && check_failures < 10; i++) {
        span_t source;
        span_t target;
        span_t expected;
        span_t found = {0};
        pick_copy(&source, &target);
        span_t view = view_of(&source);
        if (pick(0, 3) == 0) {
            view = neighbour_of(&view);
        } else if (pick(0, 3) == 0) {
            view = wild_span(3, 4, 12);
        }
        bool is_possible =
            brute_copy(&source, &target, &places) && brute_restate(&view, &places, &expected);
        bool is_restated = span_restate(&view, &source, &target, &found);
        bool is_right = CHECK(is_restated == is_possible);
        if (is_restated && is_possible && span_count(&view) > 0) {
            is_right =
                CHECK(found.start == expected.start && found.element_bytes == view.element_bytes &&
                      span_has_same_layout(&found, &expected)) &&
                is_right;
        }
        num_restated += is_possible;
        num_refused += !is_possible;
        if (!is_right) {
            print_span("view", &view);
            print_span("source", &source);
            print_span("target", &target);
            print_span("found", &found);
        }
    }
    printf("    restated %" PRId64 ", refused %" PRId64 "\n", num_restated, num_refused);
    CHECK(num_restated > num_cases / 20 && num_refused > num_cases / 20);
}

static void test_known_restatements(void)
{
    span_t scratch = {0, 4, 2, {8, 16}, {64, 4}};
    span_t slice = {1024, 4, 2, {8, 16}, {256, 4}};
    span_t transposed = {0, 4, 2, {8, 16}, {4, 32}};
    span_t halves = {64, 2, 3, {2, 4, 8}, {128, 16, 2}};
    span_t flat = {0, 4, 1, {128}, {4}};
    span_t restated = {0};
    printf("views of a scratch matrix are restated in a slice and in its transpose\n");
    CHECK(span_restate(&halves, &scratch, &slice, &restated));
    CHECK(restated.start == 1024 + 256 && restated.element_bytes == 2);
    CHECK(restated.strides[0] == 512 && restated.strides[1] == 16 && restated.strides[2] == 2);
    CHECK(!span_restate(&flat, &scratch, &slice, &restated));
    CHECK(!span_restate(&flat, &scratch, &transposed, &restated));
    flat.sizes[0] = 8;
    flat.strides[0] = 64;
    CHECK(span_restate(&flat, &scratch, &transposed, &restated));
    CHECK(restated.start == 0 && restated.strides[0] == 4);
    flat.sizes[0] = 0;
    CHECK(span_restate(&flat, &scratch, &slice, &restated));
    flat.sizes[0] = 9;
    CHECK(!span_restate(&flat, &scratch, &transposed, &restated));
}

/* A number from the environment, or the default. */
static double setting(const char *name, double absent)
{
    const char *value = getenv(name);
    return value != NULL ? strtod(value, NULL) : absent;
}

int main(void)
{
    double scale = setting("UNCOPY_TEST_SCALE", 1);
    random_state = (uint64_t)setting("UNCOPY_TEST_SEED", 20261);
    printf("seed %" PRIu64 ", scale %g\n", random_state, scale);
    test_known_layouts();
    test_absurd_numbers();
    test_sparse_pair();
    test_endless_pair();
    test_known_restatements();
    test_random_pairs((int64_t)(1000000 * scale));
    test_random_restatements((int64_t)(300000 * scale));
    test_big_pairs((int64_t)(60 * scale));
    return check_finish("test_span");
}
