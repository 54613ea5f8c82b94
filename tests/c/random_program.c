/* The generator. It keeps a table of storages and views, and appends a line for each declaration
 * and operation, so that lines can be dropped one by one. It may write what is not defined;
 * random_defined.c finds that out. */
#include "random_program.h"

#include <stdio.h>
#include <string.h>

enum { MAX_STORAGES = 24, MAX_VIEWS = 96, MAX_DIMS = 3, NUM_SHAPES = 3, MAX_FLIGHTS = 4 };

typedef struct shape {
    int rank;
    int64_t sizes[MAX_DIMS];
} shape_t;

typedef struct storage {
    char kind; /* argument, scratch, fresh, constant: the word's first letter */
    int view;  /* the first one */
    int64_t bytes;
    bool is_written;
    bool is_locked; /* a collective in flight uses it */
} storage_t;

typedef struct view {
    int storage;
    int dtype;
    shape_t shape;
    bool is_broadcast;
} view_t;

typedef struct maker {
    random_source_t random;
    random_program_t *program;
    shape_t shapes[NUM_SHAPES];
    int main_dtype;
    bool is_exact; /* matmuls: one dtype, and nothing that grows fast */
    /* several dtypes over the same bytes: no arithmetic on floats, whose NaNs differ */
    bool is_mixed;
    storage_t storages[MAX_STORAGES];
    view_t views[MAX_VIEWS];
    int num_storages, num_arguments, num_views;
    int flights[MAX_FLIGHTS]; /* destinations */
    int flight_sources[MAX_FLIGHTS];
    int num_flights;
    int num_operations;
} maker_t;

static const struct {
    const char *name;
    int64_t bytes;
    bool is_float;
} dtypes[] = {
    {"f32", 4, true}, {"i32", 4, false}, {"u8", 1, false}, {"bf16", 2, true}, {"f64", 8, true}};

enum { NUM_DTYPES = sizeof(dtypes) / sizeof(dtypes[0]), DTYPE_F32 = 0, NO_VIEW = -1 };

/* ---- random numbers ---- */

static uint64_t next(random_source_t *source)
{
    uint64_t z = source->state += 0x9E3779B97F4A7C15U;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9U;
    z = (z ^ z >> 27) * 0x94D049BB133111EBU;
    return z ^ z >> 31;
}

int64_t random_below(random_source_t *source, int64_t count)
{
    return (int64_t)(next(source) % (uint64_t)count);
}

bool random_chance(random_source_t *source, int percent)
{
    return random_below(source, 100) < percent;
}

static int below(maker_t *maker, int count)
{
    return (int)random_below(&maker->random, count);
}

static bool chance(maker_t *maker, int percent)
{
    return random_chance(&maker->random, percent);
}

/* ---- lines ---- */

__attribute__((format(printf, 2, 3))) static void add_line(maker_t *maker, const char *format, ...);

#include <stdarg.h>

static void add_line(maker_t *maker, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (maker->program->num_lines < RANDOM_MAX_LINES) {
        (void)vsnprintf(maker->program->lines[maker->program->num_lines++], RANDOM_LINE_BYTES,
                        format, arguments);
    }
    va_end(arguments);
}

static void add_operation_line(maker_t *maker, const char *words)
{
    add_line(maker, "%s @ r.py:%d", words, ++maker->num_operations);
}

static void print_list(char *text, size_t size, char open, const int64_t *numbers, int count,
                       char close)
{
    size_t at = strlen(text);
    at += (size_t)snprintf(text + at, size - at, "%c", open);
    for (int i = 0; i < count; i++) {
        at += (size_t)snprintf(text + at, size - at, "%s%lld", i == 0 ? "" : ",",
                               (long long)numbers[i]);
    }
    (void)snprintf(text + at, size - at, "%c", close);
}

/* ---- shapes and layouts ---- */

static int64_t count_of(const shape_t *shape)
{
    int64_t count = 1;
    for (int d = 0; d < shape->rank; d++) {
        count *= shape->sizes[d];
    }
    return count;
}

static bool is_same_shape(const shape_t *a, const shape_t *b)
{
    return a->rank == b->rank &&
           memcmp(a->sizes, b->sizes, (size_t)a->rank * sizeof(*a->sizes)) == 0;
}

typedef enum stride_kind {
    STRIDES_ROW_MAJOR,
    STRIDES_COLUMN_MAJOR,
    STRIDES_STEP,
    STRIDES_PADDED,
    STRIDES_BROADCAST,
    NUM_STRIDE_KINDS,
} stride_kind_t;

static void make_strides(stride_kind_t kind, const shape_t *shape, int64_t *strides)
{
    int64_t at = kind == STRIDES_STEP ? 2 : 1;
    for (int i = 0; i < shape->rank; i++) {
        int d = kind == STRIDES_COLUMN_MAJOR ? i : shape->rank - 1 - i;
        strides[d] = at;
        at = at * shape->sizes[d] + (kind == STRIDES_PADDED ? 1 : 0);
    }
    if (kind == STRIDES_BROADCAST && shape->rank > 0) {
        strides[0] = 0;
    }
}

/* In elements. */
static int64_t extent_of(const shape_t *shape, const int64_t *strides)
{
    int64_t last = 0;
    for (int d = 0; d < shape->rank; d++) {
        last += (shape->sizes[d] - 1) * strides[d];
    }
    return last + 1;
}

static void choose_shapes(maker_t *maker)
{
    static const shape_t families[][NUM_SHAPES] = {
        {{1, {8}}, {2, {2, 4}}, {1, {4}}},          {{2, {4, 4}}, {1, {16}}, {2, {2, 4}}},
        {{2, {3, 4}}, {2, {4, 3}}, {1, {12}}},      {{1, {6}}, {2, {2, 3}}, {1, {3}}},
        {{3, {2, 2, 3}}, {2, {4, 3}}, {2, {2, 3}}}, {{2, {2, 2}}, {1, {4}}, {1, {2}}},
    };
    int family = below(maker, (int)(sizeof(families) / sizeof(families[0])));
    memcpy(maker->shapes, families[maker->is_exact ? 5 * below(maker, 2) : family],
           sizeof(maker->shapes));
    if (maker->is_exact) {
        memcpy(maker->shapes, families[chance(maker, 50) ? 1 : 5], sizeof(maker->shapes));
    }
}

static const shape_t *choose_shape(maker_t *maker)
{
    return &maker->shapes[chance(maker, 60) ? 0 : below(maker, NUM_SHAPES)];
}

static int choose_dtype(maker_t *maker)
{
    return !maker->is_mixed || chance(maker, 60) ? maker->main_dtype : below(maker, NUM_DTYPES);
}

/* ---- storages and views ---- */

static int add_view(maker_t *maker, int storage, int dtype, const shape_t *shape, bool is_broadcast)
{
    maker->views[maker->num_views] = (view_t){storage, dtype, *shape, is_broadcast};
    return maker->num_views++;
}

/* The first view of a new storage, NO_VIEW when there is no room. */
static int add_storage(maker_t *maker, char kind, int dtype, const shape_t *shape)
{
    static const char *const words[] = {"argument", "scratch", "fresh", "constant"};
    if (maker->num_storages == MAX_STORAGES || maker->num_views + 8 > MAX_VIEWS) {
        return NO_VIEW;
    }
    int64_t strides[MAX_DIMS];
    stride_kind_t layout = kind != 'c' && chance(maker, 15)
                               ? (stride_kind_t)below(maker, STRIDES_BROADCAST)
                               : STRIDES_ROW_MAJOR;
    make_strides(layout, shape, strides);
    int s = maker->num_storages++;
    int v = add_view(maker, s, dtype, shape, false);
    maker->storages[s] = (storage_t){.kind = kind,
                                     .view = v,
                                     .bytes = extent_of(shape, strides) * dtypes[dtype].bytes,
                                     .is_written = kind == 'a' || kind == 'c'};
    char text[RANDOM_LINE_BYTES] = "";
    print_list(text, sizeof(text), '[', shape->sizes, shape->rank, ']');
    if (layout != STRIDES_ROW_MAJOR) {
        print_list(text, sizeof(text), '(', strides, shape->rank, ')');
    }
    for (size_t i = 0; i < 4; i++) {
        if (words[i][0] == kind && kind != 'c') {
            add_line(maker, "%s v%d %s%s", words[i], v, dtypes[dtype].name, text);
        }
    }
    if (kind == 'c') {
        size_t at = strlen(text);
        at += (size_t)snprintf(text + at, sizeof(text) - at, " =");
        for (int64_t i = 0; i < count_of(shape); i++) {
            at += (size_t)snprintf(text + at, sizeof(text) - at, "%s %d", i == 0 ? "" : ",",
                                   (int)(i * 5 % 4));
        }
        add_line(maker, "constant v%d %s%s", v, dtypes[dtype].name, text);
    }
    return v;
}

/* A view of storage with that dtype and shape, NO_VIEW where none was found. */
static int view_of(maker_t *maker, int storage, int dtype, const shape_t *shape, bool is_read)
{
    const storage_t *at = &maker->storages[storage];
    const view_t *first = &maker->views[at->view];
    if (first->dtype == dtype && is_same_shape(&first->shape, shape) && chance(maker, 65)) {
        return at->view;
    }
    for (int i = 0; i < 6 && maker->num_views < MAX_VIEWS - 8; i++) {
        int64_t strides[MAX_DIMS];
        stride_kind_t kind = (stride_kind_t)below(
            maker, is_read && chance(maker, 20) ? NUM_STRIDE_KINDS : STRIDES_BROADCAST);
        kind = chance(maker, 50) ? STRIDES_ROW_MAJOR : kind;
        make_strides(kind, shape, strides);
        int64_t room = at->bytes / dtypes[dtype].bytes - extent_of(shape, strides);
        if (room < 0) {
            continue;
        }
        char text[RANDOM_LINE_BYTES] = "";
        print_list(text, sizeof(text), '[', shape->sizes, shape->rank, ']');
        print_list(text, sizeof(text), '(', strides, shape->rank, ')');
        int64_t offset = random_below(&maker->random, room + 1) * dtypes[dtype].bytes;
        bool is_from_storage = at->kind == 'a' && chance(maker, 6);
        int v = add_view(maker, storage, dtype, shape, kind == STRIDES_BROADCAST);
        add_line(maker, "view v%d = v%d %s%s +%lld%s", v, at->view, dtypes[dtype].name, text,
                 (long long)offset, is_from_storage ? " from storage" : "");
        return v;
    }
    return NO_VIEW;
}

static bool is_free(const maker_t *maker, int storage, bool is_read)
{
    const storage_t *at = &maker->storages[storage];
    return !at->is_locked && (is_read ? at->is_written : at->kind != 'c' && at->is_written);
}

/* A storage that may be read, or written in part; recent ones more often. */
static int choose_storage(maker_t *maker, bool is_read)
{
    for (int i = 0; i < 12; i++) {
        int s = chance(maker, 40) ? maker->num_storages - 1 - below(maker, 2)
                                  : below(maker, maker->num_storages);
        if (s >= 0 && is_free(maker, s, is_read)) {
            return s;
        }
    }
    return 0;
}

/* Something to read. Any shape and dtype where shape is NULL; else exactly these. */
static int choose_source(maker_t *maker, const shape_t *shape, int dtype)
{
    for (int i = 0; i < 12; i++) {
        int s = choose_storage(maker, true);
        if (!is_free(maker, s, true)) {
            continue;
        }
        const view_t *first = &maker->views[maker->storages[s].view];
        if (shape == NULL && chance(maker, 60)) {
            return maker->storages[s].view;
        }
        int kept = !maker->is_mixed || chance(maker, 85) ? first->dtype : choose_dtype(maker);
        int v = view_of(maker, s, shape == NULL ? kept : dtype,
                        shape == NULL ? choose_shape(maker) : shape, true);
        if (v != NO_VIEW) {
            return v;
        }
    }
    return NO_VIEW;
}

/* Somewhere to write: a new storage, or part of one. */
static int choose_target(maker_t *maker, const shape_t *shape, int dtype, int new_percent)
{
    if (chance(maker, new_percent)) {
        char kind = chance(maker, 85) ? 's' : 'f';
        return add_storage(maker, kind, dtype, shape);
    }
    for (int i = 0; i < 12; i++) {
        int s =
            chance(maker, 65) ? below(maker, maker->num_arguments) : choose_storage(maker, false);
        if (is_free(maker, s, false)) {
            int v = view_of(maker, s, dtype, shape, false);
            if (v != NO_VIEW) {
                return v;
            }
        }
    }
    return NO_VIEW;
}

static void mark_written(maker_t *maker, int view)
{
    storage_t *storage = &maker->storages[maker->views[view].storage];
    storage->is_written |= storage->view == view;
}

/* ---- operations ---- */

static void add_copy(maker_t *maker, int source, int target)
{
    char words[RANDOM_LINE_BYTES];
    if (source == NO_VIEW || target == NO_VIEW) {
        return;
    }
    (void)snprintf(words, sizeof(words), "copy v%d -> v%d", source, target);
    add_operation_line(maker, words);
    mark_written(maker, target);
}

static void make_copy(maker_t *maker)
{
    int source = choose_source(maker, NULL, 0);
    if (source == NO_VIEW) {
        return;
    }
    view_t from = maker->views[source];
    add_copy(maker, source, choose_target(maker, &from.shape, from.dtype, 45));
}

/* A storage filled by two copies, each to one half. */
static void make_cat(maker_t *maker)
{
    int dtype = choose_dtype(maker);
    shape_t whole = maker->shapes[0];
    shape_t half = whole;
    if (whole.sizes[0] % 2 != 0) {
        return;
    }
    half.sizes[0] /= 2;
    int first = choose_source(maker, &half, dtype);
    int second = choose_source(maker, &half, dtype);
    if (first == NO_VIEW || second == NO_VIEW || maker->num_views + 12 > MAX_VIEWS) {
        return;
    }
    int all = add_storage(maker, 's', dtype, &whole);
    if (all == NO_VIEW) {
        return;
    }
    storage_t *storage = &maker->storages[maker->views[all].storage];
    if (storage->bytes != count_of(&whole) * dtypes[dtype].bytes) {
        return;
    }
    char text[RANDOM_LINE_BYTES] = "";
    print_list(text, sizeof(text), '[', half.sizes, half.rank, ']');
    for (int i = 0; i < 2; i++) {
        int v = add_view(maker, maker->views[all].storage, dtype, &half, false);
        add_line(maker, "view v%d = v%d %s%s +%lld", v, all, dtypes[dtype].name, text,
                 (long long)(i * storage->bytes / 2));
        add_copy(maker, i == 0 ? first : second, v);
    }
    storage->is_written = true;
}

/* clone, change a part, write back. */
static void make_scatter(maker_t *maker)
{
    int s = choose_storage(maker, false);
    if (!is_free(maker, s, false)) {
        return;
    }
    view_t first = maker->views[maker->storages[s].view];
    int clone = add_storage(maker, 's', first.dtype, &first.shape);
    if (clone == NO_VIEW) {
        return;
    }
    add_copy(maker, maker->storages[s].view, clone);
    int part = view_of(maker, maker->views[clone].storage, first.dtype,
                       &maker->shapes[below(maker, NUM_SHAPES)], false);
    if (part != NO_VIEW) {
        view_t to = maker->views[part];
        add_copy(maker, choose_source(maker, &to.shape, to.dtype), part);
    }
    if (chance(maker, 70)) {
        add_copy(maker, clone, maker->storages[s].view);
    }
}

static bool takes_arithmetic(const maker_t *maker, int view)
{
    return view != NO_VIEW && !(maker->is_mixed && dtypes[maker->views[view].dtype].is_float);
}

static const char *choose_host(maker_t *maker)
{
    static const char *const effects[] = {"", " effects out", " effects out outlayout"};
    return effects[below(maker, 3)];
}

static void make_pointwise(maker_t *maker)
{
    static const char *const binary[] = {"add", "sub", "maximum", "minimum", "mul"};
    static const char *const unary[] = {"neg", "abs", "relu"};
    char words[RANDOM_LINE_BYTES];
    char host[64] = "";
    int a = choose_source(maker, NULL, 0);
    if (!takes_arithmetic(maker, a)) {
        return;
    }
    view_t from = maker->views[a];
    bool is_binary = chance(maker, 80);
    bool has_number = is_binary && chance(maker, 30);
    const char *name = is_binary ? binary[below(maker, maker->is_exact ? 4 : 5)]
                                 : unary[below(maker, dtypes[from.dtype].is_float ? 2 : 3)];
    int b = is_binary && !has_number ? choose_source(maker, &from.shape, from.dtype) : NO_VIEW;
    int to = chance(maker, 25) && !from.is_broadcast && is_free(maker, from.storage, false)
                 ? a
                 : choose_target(maker, &from.shape, from.dtype, 50);
    if (to == NO_VIEW || (is_binary && !has_number && b == NO_VIEW)) {
        return;
    }
    if (!has_number && chance(maker, 70)) {
        (void)snprintf(host, sizeof(host), " target \"aten.%s.Tensor\" id 1%s", name,
                       choose_host(maker));
    }
    if (has_number) {
        (void)snprintf(words, sizeof(words), "%s v%d, %d -> v%d", name, a, 1 + below(maker, 3), to);
    } else if (is_binary) {
        (void)snprintf(words, sizeof(words), "%s v%d, v%d -> v%d%s", name, a, b, to, host);
    } else {
        (void)snprintf(words, sizeof(words), "%s v%d -> v%d%s", name, a, to, host);
    }
    add_operation_line(maker, words);
    mark_written(maker, to);
}

static void make_fill(maker_t *maker)
{
    char words[RANDOM_LINE_BYTES];
    int to = choose_target(maker, choose_shape(maker), choose_dtype(maker), 40);
    if (to != NO_VIEW) {
        (void)snprintf(words, sizeof(words), "fill %d -> v%d", below(maker, 5), to);
        add_operation_line(maker, words);
        mark_written(maker, to);
    }
}

static void make_convert(maker_t *maker)
{
    char words[RANDOM_LINE_BYTES];
    int from = choose_source(maker, NULL, 0);
    if (!takes_arithmetic(maker, from) || !maker->is_mixed) {
        return;
    }
    view_t view = maker->views[from];
    int dtype = below(maker, NUM_DTYPES);
    int to = choose_target(maker, &view.shape, dtype, 50);
    if (to != NO_VIEW && dtype != view.dtype) {
        (void)snprintf(words, sizeof(words), "convert v%d -> v%d", from, to);
        add_operation_line(maker, words);
        mark_written(maker, to);
    }
}

static void make_matmul(maker_t *maker)
{
    char words[RANDOM_LINE_BYTES];
    if (maker->shapes[0].rank != 2) {
        return;
    }
    int a = choose_source(maker, &maker->shapes[0], DTYPE_F32);
    int b = choose_source(maker, &maker->shapes[0], DTYPE_F32);
    int to = choose_target(maker, &maker->shapes[0], DTYPE_F32, 60);
    if (a != NO_VIEW && b != NO_VIEW && to != NO_VIEW) {
        (void)snprintf(words, sizeof(words), "matmul v%d, v%d -> v%d target \"aten.mm\" id 1%s", a,
                       b, to, choose_host(maker));
        add_operation_line(maker, words);
        mark_written(maker, to);
    }
}

/* ---- operations of the host ---- */

static const char *choose_effects(maker_t *maker)
{
    static const char *const effects[] = {
        "audited",
        "audited out",
        "audited out outlayout",
        "audited layout",
        "audited random",
        "audited raises",
        "audited raises out outlayout",
        "audited out",
        "audited out outlayout",
    };
    if (maker->num_flights == 0 && chance(maker, 8)) {
        return "random"; /* and unknown */
    }
    return effects[below(maker, (int)(sizeof(effects) / sizeof(effects[0])))];
}

/* A result that the host makes. */
static int made(maker_t *maker, const view_t *like)
{
    return add_storage(maker, chance(maker, 85) ? 's' : 'f', like->dtype, &like->shape);
}

static void make_pure_extern(maker_t *maker)
{
    char words[RANDOM_LINE_BYTES];
    int from = choose_source(maker, NULL, 0);
    if (!takes_arithmetic(maker, from)) {
        return;
    }
    view_t view = maker->views[from];
    int other = chance(maker, 40) ? choose_source(maker, &view.shape, view.dtype) : NO_VIEW;
    int to = made(maker, &view);
    if (to == NO_VIEW) {
        return;
    }
    if (other != NO_VIEW) {
        (void)snprintf(words, sizeof(words),
                       "extern \"aten.add.Tensor\" reads v%d, v%d returns v%d effects %s", from,
                       other, to, choose_effects(maker));
    } else {
        (void)snprintf(words, sizeof(words),
                       "extern \"test.double.default\" reads v%d returns v%d effects %s", from, to,
                       choose_effects(maker));
    }
    add_operation_line(maker, words);
    mark_written(maker, to);
}

static void make_mutating_extern(maker_t *maker)
{
    char words[RANDOM_LINE_BYTES];
    int from = choose_source(maker, NULL, 0);
    if (from == NO_VIEW) {
        return;
    }
    view_t view = maker->views[from];
    int kind = takes_arithmetic(maker, from) ? below(maker, 3) : 1 + below(maker, 2);
    int to = choose_target(maker, &view.shape, view.dtype, kind == 0 ? 0 : 40);
    if (to == NO_VIEW) {
        return;
    }
    if (kind == 0) {
        (void)snprintf(words, sizeof(words),
                       "extern \"test.increment_.default\" writes v%d effects %s", to,
                       choose_effects(maker));
    } else if (kind == 1) {
        (void)snprintf(words, sizeof(words),
                       "extern \"test.rotate_into.default\" reads v%d writes v%d effects %s", from,
                       to, choose_effects(maker));
    } else {
        (void)snprintf(words, sizeof(words),
                       "extern \"test.ramp_.default\" writes v%d effects audited random layout",
                       to);
    }
    add_operation_line(maker, words);
    mark_written(maker, to);
}

/* The result is the operand: a further view of it. */
static void make_alias_extern(maker_t *maker)
{
    char words[RANDOM_LINE_BYTES];
    int s = choose_storage(maker, true);
    const storage_t *at = &maker->storages[s];
    if (!is_free(maker, s, true) || at->kind == 'c' || maker->num_views + 8 > MAX_VIEWS) {
        return;
    }
    const view_t *first = &maker->views[at->view];
    size_t declared = 0;
    char name[16];
    (void)snprintf(name, sizeof(name), " v%d ", at->view);
    while (declared < maker->program->num_lines &&
           strstr(maker->program->lines[declared], name) == NULL) {
        declared++;
    }
    if (declared == maker->program->num_lines) {
        return;
    }
    const char *layout = strstr(maker->program->lines[declared], name) + strlen(name);
    int v = add_view(maker, s, first->dtype, &first->shape, false);
    add_line(maker, "view v%d = v%d %.80s", v, at->view, layout);
    (void)snprintf(words, sizeof(words),
                   "extern \"test.same.default\" reads v%d returns v%d effects audited%s", at->view,
                   v, chance(maker, 30) ? " out outlayout" : "");
    add_operation_line(maker, words);
}

static void make_knowing_extern(maker_t *maker)
{
    char words[RANDOM_LINE_BYTES];
    view_t first = maker->views[maker->storages[0].view];
    if (maker->num_flights > 0) {
        return;
    }
    int to = made(maker, &first);
    if (to != NO_VIEW) {
        (void)snprintf(words, sizeof(words), "extern \"test.kept.default\" returns v%d", to);
        add_operation_line(maker, words);
        mark_written(maker, to);
    }
}

static void make_raising_extern(maker_t *maker)
{
    char words[RANDOM_LINE_BYTES];
    int from = choose_source(maker, NULL, 0);
    bool fails = chance(maker, 25) && maker->num_flights == 0;
    if (from != NO_VIEW) {
        (void)snprintf(words, sizeof(words),
                       "extern \"test.%s.default\" reads v%d effects audited raises",
                       fails ? "fail" : "check", from);
        add_operation_line(maker, words);
    }
}

static void make_extern(maker_t *maker)
{
    static void (*const makes[])(maker_t *) = {
        make_pure_extern,     make_pure_extern,  make_pure_extern,    make_mutating_extern,
        make_mutating_extern, make_alias_extern, make_knowing_extern, make_raising_extern,
    };
    makes[below(maker, (int)(sizeof(makes) / sizeof(makes[0])))](maker);
}

/* ---- collectives ---- */

static void end_flight(maker_t *maker, int index)
{
    char words[RANDOM_LINE_BYTES];
    int to = maker->flights[index];
    (void)snprintf(words, sizeof(words), "fence v%d", to);
    add_operation_line(maker, words);
    maker->storages[maker->views[to].storage].is_locked = false;
    maker->storages[maker->views[maker->flight_sources[index]].storage].is_locked = false;
    maker->num_flights--;
    maker->flights[index] = maker->flights[maker->num_flights];
    maker->flight_sources[index] = maker->flight_sources[maker->num_flights];
    mark_written(maker, to);
}

/* A row-major view; a storage's first one where that is what is found. */
static int row_major_view(maker_t *maker, int storage, int dtype, const shape_t *shape)
{
    const storage_t *at = &maker->storages[storage];
    int64_t bytes = count_of(shape) * dtypes[dtype].bytes;
    if (bytes > at->bytes || maker->num_views + 8 > MAX_VIEWS) {
        return NO_VIEW;
    }
    char text[RANDOM_LINE_BYTES] = "";
    print_list(text, sizeof(text), '[', shape->sizes, shape->rank, ']');
    int64_t places = (at->bytes - bytes) / bytes + 1;
    int64_t offset = random_below(&maker->random, places) * bytes;
    int v = add_view(maker, storage, dtype, shape, false);
    add_line(maker, "view v%d = v%d %s%s +%lld", v, at->view, dtypes[dtype].name, text,
             (long long)offset);
    return v;
}

static void make_collective(maker_t *maker)
{
    static const char *const names[] = {"all_gather",     "all_gather", "all_reduce",
                                        "reduce_scatter", "all_to_all", "broadcast"};
    char words[RANDOM_LINE_BYTES];
    if (maker->num_flights == MAX_FLIGHTS) {
        return;
    }
    const char *name = names[below(maker, 6)];
    int dtype = choose_dtype(maker);
    if (maker->is_mixed && dtypes[dtype].is_float) {
        return;
    }
    int alone = chance(maker, 20);
    shape_t large = maker->shapes[0];
    shape_t small = large;
    if (large.sizes[0] % 2 != 0) {
        return;
    }
    small.sizes[0] /= alone ? 1 : 2;
    int s = choose_storage(maker, true);
    int t = below(maker, maker->num_arguments);
    const shape_t *from = strcmp(name, "all_gather") == 0 ? &small : &large;
    const shape_t *into = strcmp(name, "reduce_scatter") == 0 ? &small : &large;
    int source = is_free(maker, s, true) ? row_major_view(maker, s, dtype, from) : NO_VIEW;
    int target = chance(maker, 55)          ? add_storage(maker, 's', dtype, into)
                 : is_free(maker, t, false) ? row_major_view(maker, t, dtype, into)
                                            : NO_VIEW;
    if (source == NO_VIEW || target == NO_VIEW) {
        return;
    }
    (void)snprintf(words, sizeof(words), "%s v%d -> v%d group %s", name, source, target,
                   alone ? "alone" : "g");
    add_operation_line(maker, words);
    maker->storages[maker->views[source].storage].is_locked = true;
    maker->storages[maker->views[target].storage].is_locked = true;
    maker->flights[maker->num_flights] = target;
    maker->flight_sources[maker->num_flights++] = source;
    if (chance(maker, 35)) {
        end_flight(maker, maker->num_flights - 1);
    }
}

static void make_mark(maker_t *maker)
{
    char words[RANDOM_LINE_BYTES];
    int a = choose_source(maker, NULL, 0);
    int b = choose_source(maker, NULL, 0);
    if (a != NO_VIEW && b != NO_VIEW) {
        (void)snprintf(words, sizeof(words), "order v%d after v%d", a, b);
        add_operation_line(maker, words);
    }
}

/* ---- the whole ---- */

static void add_arguments(maker_t *maker)
{
    maker->num_arguments = 1 + below(maker, 5);
    for (int a = 0; a < maker->num_arguments; a++) {
        (void)add_storage(maker, 'a', choose_dtype(maker), choose_shape(maker));
    }
    add_line(maker, "group g \"0\" size 2 rank %d", below(maker, 2));
    add_line(maker, "group alone \"1\" size 1 rank 0");
    if (chance(maker, 15)) {
        (void)add_storage(maker, 'c', choose_dtype(maker), choose_shape(maker));
    }
}

static void add_one_operation(maker_t *maker)
{
    static const struct {
        int percent;
        void (*make)(maker_t *maker);
    } makes[] = {{34, make_copy},      {4, make_cat},        {8, make_scatter},
                 {22, make_pointwise}, {4, make_fill},       {4, make_convert},
                 {12, make_extern},    {8, make_collective}, {4, make_mark}};
    if (maker->is_exact && chance(maker, 20)) {
        make_matmul(maker);
        return;
    }
    int at = below(maker, 100);
    for (size_t i = 0; i < sizeof(makes) / sizeof(makes[0]); i++) {
        if (at < makes[i].percent) {
            makes[i].make(maker);
            return;
        }
        at -= makes[i].percent;
    }
}

/* What a functional graph does at its end: scratch is copied to arguments. */
static void write_back(maker_t *maker)
{
    for (int s = maker->num_arguments; s < maker->num_storages; s++) {
        int a = below(maker, maker->num_arguments);
        if (maker->storages[s].kind == 's' && is_free(maker, s, true) && is_free(maker, a, false) &&
            chance(maker, 35)) {
            view_t first = maker->views[maker->storages[s].view];
            add_copy(maker, maker->storages[s].view,
                     view_of(maker, a, first.dtype, &first.shape, false));
        }
    }
}

static void add_outputs(maker_t *maker)
{
    int count = below(maker, 4);
    for (int i = 0; i < count; i++) {
        int s = choose_storage(maker, true);
        bool is_wanted = maker->storages[s].kind == 's' ? chance(maker, 25) : true;
        int v = maker->storages[s].view;
        if (is_wanted && is_free(maker, s, true)) {
            if (chance(maker, 30)) {
                v = view_of(maker, s, maker->views[v].dtype, choose_shape(maker), true);
            }
            if (v != NO_VIEW) {
                add_line(maker, "output v%d", v);
            }
        }
    }
}

/* Where arguments lie: most within or near another one. */
static void add_scene(maker_t *maker)
{
    random_program_t *program = maker->program;
    char *text = program->scenes[program->num_scenes++];
    int64_t unit = 1;
    for (int a = 0; a < maker->num_arguments; a++) {
        int64_t bytes = dtypes[maker->views[a].dtype].bytes;
        unit = bytes > unit ? bytes : unit;
    }
    for (int i = 0; i < maker->num_views; i++) {
        int64_t bytes = dtypes[maker->views[i].dtype].bytes;
        unit = bytes > unit ? bytes : unit;
    }
    text[0] = '\0';
    int ties = 40 + below(maker, 60);
    for (int a = 1; a < maker->num_arguments; a++) {
        int b = below(maker, a);
        int64_t room = maker->storages[b].bytes / unit + 1;
        int64_t units = chance(maker, 40) ? 0 : random_below(&maker->random, room);
        units = chance(maker, 15) ? -units : units;
        if (chance(maker, ties)) {
            size_t at = strlen(text);
            (void)snprintf(text + at, RANDOM_SCENE_BYTES - at, "assume v%d = v%d %c%lld\n", a, b,
                           units < 0 ? '-' : '+', (long long)(units < 0 ? -units : units) * unit);
        }
    }
}

void random_program_make(random_program_t *program, uint64_t seed)
{
    maker_t maker = {.random = {seed * 0x632BE59BD9B4E019U}, .program = program};
    program->num_lines = 0;
    program->num_scenes = 0;
    maker.is_exact = chance(&maker, 20);
    maker.is_mixed = !maker.is_exact && chance(&maker, 60);
    maker.main_dtype = maker.is_exact || chance(&maker, 50) ? DTYPE_F32 : below(&maker, NUM_DTYPES);
    choose_shapes(&maker);
    add_line(&maker, "program r");
    add_arguments(&maker);
    int wanted = 2 + below(&maker, 9);
    for (int i = 0; i < wanted; i++) {
        add_one_operation(&maker);
        if (maker.num_flights > 0 && chance(&maker, 35)) {
            end_flight(&maker, below(&maker, maker.num_flights));
        }
    }
    while (maker.num_flights > 0) {
        end_flight(&maker, 0);
    }
    write_back(&maker);
    add_outputs(&maker);
    int scenes = 2 + below(&maker, RANDOM_MAX_SCENES - 2);
    for (int i = 0; i < scenes; i++) {
        add_scene(&maker);
    }
    if (program->num_scenes < RANDOM_MAX_SCENES) {
        memcpy(program->scenes[program->num_scenes++], program->scenes[0], RANDOM_SCENE_BYTES);
    }
}

void random_program_text(const random_program_t *program, size_t scene, char *out_text)
{
    size_t at = 0;
    for (size_t i = 0; i < program->num_lines; i++) {
        at += (size_t)snprintf(out_text + at, RANDOM_TEXT_BYTES - at, "%s\n", program->lines[i]);
    }
    (void)snprintf(out_text + at, RANDOM_TEXT_BYTES - at, "%s", program->scenes[scene]);
}
