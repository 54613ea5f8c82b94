/* Alias facts: what is recorded, and that facts_hold is right at any addresses.
 *
 * Usage: test_facts. UNCOPY_TEST_SCALE=n multiplies the number of random cases, UNCOPY_TEST_SEED=n
 * changes them. */
#include <stdlib.h>

#include "check.h"
#include "span/facts.h"

enum { MAX_BASES = 12, MAX_QUESTIONS = 24 };

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

/* One question as the test remembers it. */
typedef struct question {
    uint32_t base_a, base_b;
    span_t a, b;
    bool is_overlap_only, was_apart;
    span_relation_t answer; /* is_overlap_only: disjoint or partial */
} question_t;

typedef struct scene {
    uint32_t num_bases, num_questions;
    int64_t addresses[MAX_BASES];
    facts_hull_t hulls[MAX_BASES];
    question_t questions[MAX_QUESTIONS];
} scene_t;

static bool do_hulls_overlap(const scene_t *scene, const int64_t *addresses, uint32_t a, uint32_t b)
{
    facts_hull_t hull_a = scene->hulls[a];
    facts_hull_t hull_b = scene->hulls[b];
    return hull_a.first != hull_a.end && hull_b.first != hull_b.end &&
           addresses[a] + hull_a.first < addresses[b] + hull_b.end &&
           addresses[b] + hull_b.first < addresses[a] + hull_a.end;
}

static span_relation_t answer_at(const question_t *question, const int64_t *addresses)
{
    span_t a = question->a;
    span_t b = question->b;
    a.start += addresses[question->base_a];
    b.start += addresses[question->base_b];
    if (question->is_overlap_only) {
        return span_overlaps(&a, &b) ? SPAN_PARTIAL : SPAN_DISJOINT;
    }
    return span_relate(&a, &b);
}

/* The recorded question: whether the bases are apart, if they were; else that of the spans. */
static bool has_same_answer(const scene_t *scene, const question_t *question,
                            const int64_t *addresses)
{
    bool is_empty = span_count(&question->a) == 0 || span_count(&question->b) == 0;
    if (question->base_a == question->base_b || is_empty) {
        return true;
    }
    if (question->was_apart) {
        return !do_hulls_overlap(scene, addresses, question->base_a, question->base_b);
    }
    return answer_at(question, addresses) == question->answer;
}

static span_t span_within(facts_hull_t hull)
{
    for (;;) {
        span_t span = {.element_bytes = (int64_t)1 << pick(0, 2), .rank = (int32_t)pick(0, 3)};
        int64_t first = 0;
        int64_t end = 0;
        span.start = pick(hull.first, hull.end);
        for (int32_t d = 0; d < span.rank; d++) {
            span.sizes[d] = pick(pick(0, 9) == 0 ? 0 : 1, 4);
            span.strides[d] = pick(-4, 8) * pick(1, 4);
        }
        span_hull(&span, &first, &end);
        if (first >= hull.first && end <= hull.end) {
            return span;
        }
        if (hull.end - hull.first < 4) {
            return (span_t){.start = hull.first,
                            .element_bytes = 1,
                            .rank = 1,
                            .sizes = {hull.end - hull.first},
                            .strides = {1}};
        }
    }
}

static void pick_scene(scene_t *scene)
{
    int64_t room = pick(0, 2) == 0 ? 2000 : 200;
    scene->num_bases = (uint32_t)pick(1, MAX_BASES);
    for (uint32_t base = 0; base < scene->num_bases; base++) {
        int64_t first = pick(0, 3) == 0 ? pick(-20, 20) : 0;
        scene->hulls[base] = (facts_hull_t){first, first + pick(pick(0, 5) == 0 ? 0 : 1, 60)};
        scene->addresses[base] = 1000 + 4 * pick(0, room / 4);
    }
}

/* Asks random questions and checks that the answers are those of the spans. */
static void ask_questions(scene_t *scene, facts_builder_t *builder)
{
    scene->num_questions = (uint32_t)pick(0, MAX_QUESTIONS);
    for (uint32_t i = 0; i < scene->num_questions; i++) {
        question_t *question = &scene->questions[i];
        if (i > 0 && pick(0, 5) == 0) {
            *question = scene->questions[pick(0, i - 1)];
        } else {
            question->base_a = (uint32_t)pick(0, scene->num_bases - 1);
            question->base_b = (uint32_t)pick(0, scene->num_bases - 1);
            question->a = span_within(scene->hulls[question->base_a]);
            question->b = span_within(scene->hulls[question->base_b]);
        }
        question->is_overlap_only = pick(0, 1) == 0;
        question->was_apart =
            !do_hulls_overlap(scene, scene->addresses, question->base_a, question->base_b);
        question->answer = answer_at(question, scene->addresses);
        if (question->is_overlap_only) {
            CHECK(facts_ask_overlap(builder, question->base_a, &question->a, question->base_b,
                                    &question->b) == (question->answer != SPAN_DISJOINT));
        } else {
            CHECK(facts_ask(builder, question->base_a, &question->a, question->base_b,
                            &question->b) == question->answer);
        }
    }
}

/* Addresses of another call: all moved, some moved, or others. */
static void move_addresses(const scene_t *scene, int64_t *addresses)
{
    int64_t kind = pick(0, 3);
    int64_t shift = pick(-40, 40) * 16;
    for (uint32_t base = 0; base < scene->num_bases; base++) {
        addresses[base] = scene->addresses[base] + shift;
        if (kind == 1 && pick(0, 3) == 0) {
            addresses[base] += pick(-2, 2) * 4;
        } else if (kind == 2) {
            addresses[base] = 1000 + 4 * pick(0, 60);
        } else if (kind == 3 && pick(0, 5) == 0) {
            addresses[base] = 100000 + 100 * (int64_t)base;
        }
    }
}

/* The pairs that facts list are those of the hulls, in order, with their distances. */
static void check_pairs(const scene_t *scene, const facts_t *facts)
{
    size_t index = 0;
    for (uint32_t a = 0; a < scene->num_bases; a++) {
        for (uint32_t b = a + 1; b < scene->num_bases; b++) {
            if (!do_hulls_overlap(scene, scene->addresses, a, b)) {
                continue;
            }
            uint32_t found_a = 0;
            uint32_t found_b = 0;
            int64_t distance = 0;
            if (CHECK(index < facts_num_pairs(facts))) {
                facts_pair(facts, index++, &found_a, &found_b, &distance);
                CHECK(found_a == a && found_b == b);
                CHECK_EQUAL_I64(distance, scene->addresses[b] - scene->addresses[a]);
            }
        }
    }
    CHECK_EQUAL_I64((int64_t)facts_num_pairs(facts), (int64_t)index);
}

static bool do_answers_hold(const scene_t *scene, const int64_t *addresses)
{
    for (uint32_t i = 0; i < scene->num_questions; i++) {
        if (!has_same_answer(scene, &scene->questions[i], addresses)) {
            return false;
        }
    }
    return true;
}

static void check_failure(const scene_t *scene, const facts_failure_t *failure)
{
    bool is_asked = false;
    for (uint32_t i = 0; i < scene->num_questions; i++) {
        const question_t *question = &scene->questions[i];
        is_asked = is_asked ||
                   (question->base_a == failure->base_a && question->base_b == failure->base_b) ||
                   (question->base_a == failure->base_b && question->base_b == failure->base_a);
    }
    CHECK(is_asked);
    CHECK(failure->planned != failure->found);
}

static void check_scene(const scene_t *scene, const facts_t *facts, int64_t counts[2])
{
    uint32_t scratch[MAX_BASES];
    for (uint32_t base = 0; base < scene->num_bases; base++) {
        scratch[base] = base;
    }
    CHECK(facts_hold(facts, scene->addresses, scratch, NULL));
    for (int call = 0; call < 8; call++) {
        int64_t addresses[MAX_BASES];
        facts_failure_t failure = {0};
        move_addresses(scene, addresses);
        bool holds = facts_hold(facts, addresses, scratch, &failure);
        CHECK(holds == do_answers_hold(scene, addresses));
        counts[holds]++;
        if (!holds) {
            check_failure(scene, &failure);
        }
    }
}

static void test_random_scenes(int64_t num_scenes)
{
    int64_t counts[2] = {0};
    printf(
        "facts hold if and only if each recorded question has its answer at the new addresses\n");
    for (int64_t i = 0; i < num_scenes && check_failures < 10; i++) {
        static scene_t scene;
        arena_t planning;
        arena_t plan;
        facts_builder_t *builder = NULL;
        facts_t *facts = NULL;
        arena_init(&planning, &memory_system_allocator);
        arena_init(&plan, &memory_system_allocator);
        pick_scene(&scene);
        CHECK(facts_builder_create(&planning, scene.num_bases, scene.addresses, scene.hulls,
                                   &builder) == UNCOPY_OK);
        ask_questions(&scene, builder);
        CHECK(facts_finish(builder, &plan, &facts) == UNCOPY_OK);
        arena_release(&planning);
        CHECK_EQUAL_I64(facts_num_bases(facts), scene.num_bases);
        check_pairs(&scene, facts);
        check_scene(&scene, facts, counts);
        arena_release(&plan);
    }
    printf("    held %" PRId64 ", failed %" PRId64 "\n", counts[true], counts[false]);
    CHECK(counts[true] > num_scenes / 2 && counts[false] > num_scenes / 2);
}

/* A flat buffer with 999 views made outside the program, called again at addresses in another
 * order. */
static void test_many_bases(void)
{
    enum { NUM_BASES = 1000, VIEW_BYTES = 64 };
    static int64_t addresses[NUM_BASES];
    static facts_hull_t hulls[NUM_BASES];
    static uint32_t scratch[NUM_BASES];
    span_t whole = {
        .element_bytes = 4, .rank = 1, .sizes = {VIEW_BYTES / 4 * NUM_BASES}, .strides = {4}};
    span_t part = {.element_bytes = 4, .rank = 1, .sizes = {VIEW_BYTES / 4}, .strides = {4}};
    arena_t arena;
    facts_builder_t *builder = NULL;
    facts_t *facts = NULL;
    facts_failure_t failure = {0};
    printf("a flat buffer with 999 views holds as a whole, and a view that leaves is named\n");
    arena_init(&arena, &memory_system_allocator);
    for (uint32_t base = 0; base < NUM_BASES; base++) {
        bool is_buffer = base == 0;
        addresses[base] = 1 << 20;
        addresses[base] += is_buffer ? 0 : (int64_t)(base * 7 % 999) * VIEW_BYTES;
        hulls[base] = (facts_hull_t){0, is_buffer ? VIEW_BYTES * NUM_BASES : VIEW_BYTES};
        scratch[base] = base;
    }
    CHECK(facts_builder_create(&arena, NUM_BASES, addresses, hulls, &builder) == UNCOPY_OK);
    for (uint32_t base = 1; base < NUM_BASES; base++) {
        CHECK(facts_ask(builder, 0, &whole, base, &part) == SPAN_CONTAINS);
        /* 7 * 571 is 1 modulo 999. */
        uint32_t next = (base + 571 - 1) % 999 + 1;
        CHECK(!facts_ask_overlap(builder, base, &part, next, &part));
    }
    CHECK(facts_finish(builder, &arena, &facts) == UNCOPY_OK);
    CHECK_EQUAL_I64((int64_t)facts_num_pairs(facts), NUM_BASES - 1);
    for (uint32_t base = 0; base < NUM_BASES; base++) {
        addresses[base] += 1 << 22;
    }
    CHECK(facts_hold(facts, addresses, scratch, &failure));
    addresses[500] += 4;
    CHECK(!facts_hold(facts, addresses, scratch, &failure));
    CHECK(failure.base_a == 500 || failure.base_b == 500);
    CHECK(failure.planned == SPAN_DISJOINT && failure.found == SPAN_PARTIAL);
    addresses[500] += 1 << 24;
    CHECK(!facts_hold(facts, addresses, scratch, &failure));
    CHECK(failure.base_a == 0 && failure.base_b == 500);
    CHECK(failure.planned == SPAN_CONTAINS && failure.found == SPAN_DISJOINT);
    arena_release(&arena);
}

/* An allocator that fails from the n-th call on. */
typedef struct failing {
    int64_t calls_left, num_blocks;
} failing_t;

static void *failing_allocate(void *self, size_t size)
{
    failing_t *failing = self;
    if (failing->calls_left-- <= 0) {
        return NULL;
    }
    failing->num_blocks++;
    return memory_system_allocator.allocate(NULL, size);
}

static void failing_release(void *self, void *pointer, size_t size)
{
    failing_t *failing = self;
    failing->num_blocks--;
    memory_system_allocator.release(NULL, pointer, size);
}

/* Plans 40 bases, half of them over each other, with every question twice. */
static uncopy_status_t plan_with(const uncopy_allocator_t *allocator)
{
    enum { NUM_BASES = 40 };
    int64_t addresses[NUM_BASES];
    facts_hull_t hulls[NUM_BASES];
    arena_t arena;
    facts_builder_t *builder = NULL;
    facts_t *facts = NULL;
    arena_init(&arena, allocator);
    for (int64_t base = 0; base < NUM_BASES; base++) {
        addresses[base] = base < NUM_BASES / 2 ? 4 * base : 10000 * base;
        hulls[base] = (facts_hull_t){0, 256};
    }
    uncopy_status_t status = facts_builder_create(&arena, NUM_BASES, addresses, hulls, &builder);
    for (uint32_t i = 0; status == UNCOPY_OK && i < 2 * NUM_BASES * NUM_BASES; i++) {
        uint32_t base_a = i % NUM_BASES;
        uint32_t base_b = i / NUM_BASES % NUM_BASES;
        span_t a = {
            .start = base_b % 4 * 4, .element_bytes = 4, .rank = 1, .sizes = {8}, .strides = {8}};
        span_t b = {
            .start = base_a % 8 * 4, .element_bytes = 4, .rank = 1, .sizes = {8}, .strides = {12}};
        bool overlaps = facts_ask_overlap(builder, base_a, &a, base_b, &b);
        bool is_related = facts_ask(builder, base_a, &a, base_b, &b) != SPAN_DISJOINT;
        CHECK(overlaps || !is_related || status != UNCOPY_OK);
    }
    if (status == UNCOPY_OK) {
        status = facts_finish(builder, &arena, &facts);
        CHECK(status == UNCOPY_ERROR_MEMORY || facts_num_bases(facts) == NUM_BASES);
    }
    arena_release(&arena);
    return status;
}

static void test_no_memory(void)
{
    printf("lack of memory at any allocation is an error of finishing, and nothing leaks\n");
    for (int64_t num_calls = 0;; num_calls++) {
        failing_t failing = {.calls_left = num_calls};
        uncopy_allocator_t allocator = {&failing, failing_allocate, failing_release};
        uncopy_status_t status = plan_with(&allocator);
        CHECK_EQUAL_I64(failing.num_blocks, 0);
        if (status == UNCOPY_OK) {
            printf("    %" PRId64 " allocations\n", num_calls);
            CHECK(num_calls > 3);
            return;
        }
        if (!CHECK(status == UNCOPY_ERROR_MEMORY) || num_calls > 1000) {
            return;
        }
    }
}

/* Only overlap was asked: another relation with the same answer keeps the plan, an exact one does
 * not. */
static void test_overlap_only(void)
{
    int64_t addresses[2] = {1000, 1000};
    facts_hull_t hulls[2] = {{0, 64}, {0, 64}};
    span_t a = {.element_bytes = 4, .rank = 1, .sizes = {16}, .strides = {4}};
    span_t b = {.element_bytes = 4, .rank = 1, .sizes = {8}, .strides = {4}};
    printf("a question of overlap alone holds while the relation changes\n");
    for (int is_exact = 0; is_exact < 2; is_exact++) {
        uint32_t scratch[2] = {0, 1};
        arena_t arena;
        facts_builder_t *builder = NULL;
        facts_t *facts = NULL;
        facts_failure_t failure = {0};
        addresses[1] = 1000;
        arena_init(&arena, &memory_system_allocator);
        CHECK(facts_builder_create(&arena, 2, addresses, hulls, &builder) == UNCOPY_OK);
        CHECK(facts_ask_overlap(builder, 0, &a, 1, &b));
        if (is_exact != 0) {
            CHECK(facts_ask(builder, 0, &a, 1, &b) == SPAN_CONTAINS);
        }
        CHECK(facts_finish(builder, &arena, &facts) == UNCOPY_OK);
        addresses[1] = 1040;
        CHECK(facts_hold(facts, addresses, scratch, &failure) == (is_exact == 0));
        CHECK(is_exact == 0 || (failure.planned == SPAN_CONTAINS && failure.found == SPAN_PARTIAL));
        addresses[1] = 2000;
        CHECK(!facts_hold(facts, addresses, scratch, &failure));
        CHECK(failure.base_a == 0 && failure.base_b == 1);
        CHECK(failure.planned == SPAN_CONTAINS && failure.found == SPAN_DISJOINT);
        arena_release(&arena);
    }
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
    random_state = (uint64_t)setting("UNCOPY_TEST_SEED", 20262);
    printf("seed %" PRIu64 ", scale %g\n", random_state, scale);
    test_overlap_only();
    test_many_bases();
    test_no_memory();
    test_random_scenes((int64_t)(40000 * scale));
    return check_finish("test_facts");
}
