/* The arithmetic of collectives with exact numbers, and waiting, each without a communicator. */
#include <pthread.h>
#include <time.h>

#include "checks.h"
#include "comm/pattern.h"
#include "comm/tuning.h"
#include "comm/wait.h"

static void parts_cover_everything_once(void)
{
    static const size_t counts[] = {0, 1, 15, 16, 17, 1000, 4096, 100003};
    static const size_t widths[] = {1, 2, 4, 8, 16};
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
            for (int32_t size = 1; size <= 7; size++) {
                size_t next = 0, first = 0, count = 0;
                for (int32_t p = 0; p < size; p++) {
                    pattern_part(counts[c], widths[w], size, p, &first, &count);
                    CHECK(first == next);
                    CHECK(first * widths[w] % 64 == 0 || first == counts[c]);
                    next = first + count;
                }
                CHECK(next == counts[c]);
            }
        }
    }
    size_t first = 0, count = 0;
    pattern_part(100, 4, 3, 1, &first, &count);
    CHECK_EQUAL_I64((int64_t)first, 48);
    CHECK_EQUAL_I64((int64_t)count, 48);
    pattern_part(100, 4, 3, 2, &first, &count);
    CHECK_EQUAL_I64((int64_t)first, 96);
    CHECK_EQUAL_I64((int64_t)count, 4);
}

static void payloads_are_cut_in_lines(void)
{
    CHECK_EQUAL_I64((int64_t)pattern_part_bytes(4096, 1), 4096);
    CHECK_EQUAL_I64((int64_t)pattern_part_bytes(4096, 3), 1344);
    CHECK_EQUAL_I64(pattern_rounds(0, 1344), 1);
    CHECK_EQUAL_I64(pattern_rounds(1344, 1344), 1);
    CHECK_EQUAL_I64(pattern_rounds(1345, 1344), 2);
    for (int32_t size = 2; size <= 5; size++) {
        for (int32_t owner = 0; owner < size; owner++) {
            uint32_t seen = 0;
            for (int32_t reader = 0; reader < size; reader++) {
                if (reader != owner) {
                    int32_t part = pattern_part_index(owner, reader, size);
                    CHECK(part >= 0 && part < size - 1);
                    seen |= 1U << part;
                }
            }
            CHECK(seen == (1U << (size - 1)) - 1);
        }
    }
}

static void streams_walk_their_rows(void)
{
    char memory[256];
    pattern_row_t rows[] = {{memory, 10, 20}, {NULL, 0, 0}, {memory + 100, 5, 0}};
    pattern_t strided = {rows, 3, false};
    CHECK_EQUAL_I64((int64_t)pattern_bytes(&strided, 2), 15);
    CHECK_EQUAL_I64((int64_t)pattern_most_bytes(&strided, 4, 0), 15);
    stream_t stream = pattern_stream(&strided, 2);
    size_t bytes = 0;
    CHECK(stream_next(&stream, 7, &bytes) == memory + 40 && bytes == 7);
    CHECK(stream_run_bytes(&stream) == 3);
    CHECK(stream_next(&stream, 100, &bytes) == memory + 47 && bytes == 3);
    CHECK(stream_next(&stream, 100, &bytes) == memory + 100 && bytes == 5);
    CHECK(stream_next(&stream, 100, &bytes) == NULL && bytes == 0);

    pattern_t blocks = {rows, 3, true};
    CHECK_EQUAL_I64((int64_t)pattern_bytes(&blocks, 0), 10);
    CHECK_EQUAL_I64((int64_t)pattern_bytes(&blocks, 1), 0);
    CHECK_EQUAL_I64((int64_t)pattern_most_bytes(&blocks, 3, 0), 5);
    stream = pattern_stream(&blocks, 0);
    CHECK(stream_next(&stream, 100, &bytes) == memory && bytes == 10);
    CHECK(stream_run_bytes(&stream) == 0);
    char *address = NULL;
    CHECK(!pattern_is_run(&strided, 0, &address));
    CHECK(pattern_is_run(&blocks, 2, &address) && address == memory + 100);
}

static void shapes_tell_lists_apart(void)
{
    pattern_row_t a[] = {{NULL, 1, 0}, {NULL, 2, 0}}, b[] = {{NULL, 2, 0}, {NULL, 1, 0}};
    pattern_t first = {a, 2, false}, second = {b, 2, false}, shorter = {a, 1, false};
    CHECK(pattern_shape(&first) != pattern_shape(&second));
    CHECK(pattern_shape(&first) != pattern_shape(&shorter));
    CHECK(pattern_shape(&first) == pattern_shape(&first));
    CHECK(pattern_shape(&first) != 0);
}

/* ---------------------------------------------------------------- waiting */

typedef struct pair {
    _Atomic uint32_t word, sleepers;
    _Atomic uint32_t answer, answer_sleepers;
    uint32_t rounds;
} pair_t;

static uncopy_status_t look_at_nothing(void *self)
{
    (void)self;
    return UNCOPY_OK;
}

static void nap(uint32_t i)
{
    struct timespec span = {0, i % 64 == 0 ? 300000 : 0};
    if (span.tv_nsec > 0) {
        (void)nanosleep(&span, NULL);
    }
}

/* Both sides sleep in between, so that publishing and falling asleep meet in every order. */
static void *answer(void *self)
{
    pair_t *pair = self;
    waiter_t waiter;
    waiter_init(&waiter, true);
    wait_watch_t watch = {NULL, look_at_nothing};
    for (uint32_t i = 1; i <= pair->rounds; i++) {
        CHECK(wait_until(&waiter, &pair->word, &pair->sleepers, i, -1, &watch) == UNCOPY_OK);
        nap(i);
        wait_publish(&pair->answer, &pair->answer_sleepers, i);
    }
    return NULL;
}

static void no_wake_is_lost(void)
{
    static pair_t pair = {.rounds = 20000};
    waiter_t waiter;
    waiter_init(&waiter, false);
    wait_watch_t watch = {NULL, look_at_nothing};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, answer, &pair) == 0);
    for (uint32_t i = 1; i <= pair.rounds; i++) {
        nap(i + 32);
        wait_publish(&pair.word, &pair.sleepers, i);
        CHECK(wait_until(&waiter, &pair.answer, &pair.answer_sleepers, i, -1, &watch) == UNCOPY_OK);
    }
    (void)pthread_join(thread, NULL);
    CHECK(atomic_load(&pair.sleepers) == 0 && atomic_load(&pair.answer_sleepers) == 0);
    CHECK(waiter.slept > 0);
}

static uncopy_status_t give_up_at_third(void *self)
{
    int *looks = self;
    return ++*looks < 3 ? UNCOPY_OK : UNCOPY_ERROR_INTERRUPTED;
}

static void a_watch_ends_a_wait(void)
{
    _Atomic uint32_t word = 5, sleepers = 0;
    int looks = 0;
    waiter_t waiter;
    waiter_init(&waiter, false);
    wait_watch_t watch = {&looks, give_up_at_third};
    CHECK(wait_until(&waiter, &word, &sleepers, 5, -1, &watch) == UNCOPY_OK);
    CHECK(wait_until(&waiter, &word, &sleepers, 6, -1, &watch) == UNCOPY_ERROR_INTERRUPTED);
    CHECK_EQUAL_I64(looks, 3);
    atomic_store(&word, 2);
    CHECK(wait_has_come(&word, UINT32_MAX)); /* counters wrap */
    CHECK(!wait_has_come(&word, 3));
}

int main(void)
{
    parts_cover_everything_once();
    payloads_are_cut_in_lines();
    streams_walk_their_rows();
    shapes_tell_lists_apart();
    no_wake_is_lost();
    a_watch_ends_a_wait();
    return checks_finish("comm_pattern");
}
