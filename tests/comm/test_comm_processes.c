/* Collectives between real processes: every operation, odd sizes, ordinary memory and windows. */
#include <stdlib.h>

#include "checks.h"
#include "ranks.h"

/* Element i of what rank gives in round: small integers, exact in every dtype that is used here. */
static uint8_t byte_of(int32_t rank, int64_t i)
{
    return (uint8_t)((int64_t)rank * 37 + i * 11 + i / 251);
}

static const int64_t counts[] = {0, 1, 60, 64, 1000, 2048, 4100, 65536, 100003, 300000};
enum { NUM_COUNTS = sizeof(counts) / sizeof(counts[0]) };

static void fill_bytes(uint8_t *bytes, int32_t rank, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        bytes[i] = byte_of(rank, i);
    }
}

static bool is_from(const uint8_t *bytes, int32_t rank, int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (bytes[i] != byte_of(rank, first + i)) {
            return false;
        }
    }
    return true;
}

static void all_gather(uncopy_comm_t *comm, uint8_t *source, uint8_t *destination)
{
    int32_t rank = uncopy_comm_rank(comm), size = uncopy_comm_size(comm);
    for (int32_t c = 0; c < NUM_COUNTS; c++) {
        int64_t n = counts[c];
        fill_bytes(source, rank, n);
        memset(destination, 0xEE, (size_t)(n * size));
        CHECK_OK(uncopy_comm_all_gather(comm, source, destination, n, UNCOPY_DTYPE_U8, NULL));
        for (int32_t p = 0; p < size; p++) {
            CHECK(is_from(destination + p * n, p, 0, n));
        }
        memset(destination, 0xEE, (size_t)(n * size));
        fill_bytes(destination + rank * n, rank, n);
        CHECK_OK(uncopy_comm_all_gather(comm, destination + rank * n, destination, n,
                                        UNCOPY_DTYPE_U8, NULL));
        for (int32_t p = 0; p < size; p++) {
            CHECK(is_from(destination + p * n, p, 0, n));
        }
    }
}

static void broadcast(uncopy_comm_t *comm, uint8_t *buffer)
{
    int32_t rank = uncopy_comm_rank(comm), size = uncopy_comm_size(comm);
    for (int32_t c = 0; c < NUM_COUNTS; c++) {
        int32_t root = c % size;
        fill_bytes(buffer, rank, counts[c]);
        CHECK_OK(uncopy_comm_broadcast(comm, buffer, counts[c], UNCOPY_DTYPE_U8, root, NULL));
        CHECK(is_from(buffer, root, 0, counts[c]));
    }
}

static void all_to_all(uncopy_comm_t *comm, uint8_t *source, uint8_t *destination)
{
    int32_t rank = uncopy_comm_rank(comm), size = uncopy_comm_size(comm);
    for (int32_t c = 0; c < NUM_COUNTS; c++) {
        int64_t n = counts[c];
        fill_bytes(source, rank, n * size);
        CHECK_OK(uncopy_comm_all_to_all(comm, source, destination, n, UNCOPY_DTYPE_U8, NULL));
        for (int32_t p = 0; p < size; p++) {
            CHECK(is_from(destination + p * n, p, rank * n, n));
        }
    }
}

static int32_t number_of(int32_t rank, int64_t i)
{
    return (int32_t)(rank * 1000 + i % 997);
}

static bool is_sum(const int32_t *numbers, int32_t size, int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        int32_t sum = 0;
        for (int32_t p = 0; p < size; p++) {
            sum += number_of(p, first + i);
        }
        if (numbers[i] != sum) {
            return false;
        }
    }
    return true;
}

static void fill_numbers(int32_t *numbers, int32_t rank, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        numbers[i] = number_of(rank, i);
    }
}

static void reductions(uncopy_comm_t *comm, int32_t *source, int32_t *destination)
{
    int32_t rank = uncopy_comm_rank(comm), size = uncopy_comm_size(comm);
    for (int32_t c = 0; c < NUM_COUNTS; c++) {
        int64_t n = counts[c];
        fill_numbers(source, rank, n);
        CHECK_OK(uncopy_comm_all_reduce(comm, source, destination, n, UNCOPY_DTYPE_I32,
                                        UNCOPY_REDUCE_SUM, NULL));
        CHECK(is_sum(destination, size, 0, n));
        CHECK_OK(uncopy_comm_all_reduce(comm, source, source, n, UNCOPY_DTYPE_I32,
                                        UNCOPY_REDUCE_SUM, NULL));
        CHECK(is_sum(source, size, 0, n));
        fill_numbers(source, rank, n);
        CHECK_OK(uncopy_comm_reduce(comm, source, destination, n, UNCOPY_DTYPE_I32,
                                    UNCOPY_REDUCE_SUM, c % size, NULL));
        CHECK(rank != c % size || is_sum(destination, size, 0, n));
        fill_numbers(source, rank, n * size);
        CHECK_OK(uncopy_comm_reduce_scatter(comm, source, destination, n, UNCOPY_DTYPE_I32,
                                            UNCOPY_REDUCE_SUM, NULL));
        CHECK(is_sum(destination, size, rank * n, n));
        CHECK_OK(uncopy_comm_reduce_scatter(comm, source, source + rank * n, n, UNCOPY_DTYPE_I32,
                                            UNCOPY_REDUCE_SUM, NULL));
        CHECK(is_sum(source + rank * n, size, rank * n, n));
    }
}

static void every_operation(uncopy_comm_t *comm, void *source, void *destination)
{
    CHECK_OK(uncopy_comm_barrier(comm, NULL));
    all_gather(comm, source, destination);
    broadcast(comm, source);
    all_to_all(comm, source, destination);
    reductions(comm, source, destination);
}

static int64_t buffer_bytes(const uncopy_comm_t *comm)
{
    return counts[NUM_COUNTS - 1] * 4 * uncopy_comm_size(comm);
}

/* Sources, destinations, or both in windows: ranks differ in which, by the bits of their rank. */
static void in_windows(uncopy_comm_t *comm, void *argument)
{
    const bool *mixed = argument;
    int64_t bytes = buffer_bytes(comm);
    uncopy_window_t *windows[2] = {NULL, NULL};
    CHECK_OK(uncopy_window_create(comm, bytes, NULL, &windows[0]));
    CHECK_OK(uncopy_window_create(comm, bytes, NULL, &windows[1]));
    void *ordinary = malloc((size_t)bytes);
    int32_t rank = uncopy_comm_rank(comm);
    void *source = *mixed && (rank & 1) != 0 ? ordinary : uncopy_window_data(windows[0]);
    void *destination = *mixed && (rank & 2) != 0 ? ordinary : uncopy_window_data(windows[1]);
    if (source == ordinary && destination == ordinary) {
        destination = uncopy_window_data(windows[1]);
    }
    CHECK((uncopy_comm_find_window(comm, source, bytes) == windows[0]) == (source != ordinary));
    every_operation(comm, source, destination);
    uncopy_comm_counts_t made;
    uncopy_comm_counts(comm, &made);
    CHECK(uncopy_comm_size(comm) == 1 || made.bytes_window > 0);
    CHECK_OK(uncopy_comm_barrier(comm, NULL));
    /* released in another order on each rank */
    uncopy_window_release(windows[rank & 1]);
    uncopy_window_t *third = NULL;
    CHECK_OK(uncopy_window_create(comm, 100, NULL, &third));
    CHECK_EQUAL_I64(uncopy_window_bytes(third), 100);
    uncopy_window_release(windows[(rank & 1) ^ 1]);
    uncopy_window_release(third);
    free(ordinary);
}

static void in_ordinary_memory(uncopy_comm_t *comm, void *argument)
{
    (void)argument;
    size_t bytes = (size_t)buffer_bytes(comm);
    void *source = malloc(bytes), *destination = malloc(bytes);
    every_operation(comm, source, destination);
    free(source);
    free(destination);
}

int main(void)
{
    for (int32_t size = 1; size <= 4; size++) {
        ranks_options_t options = {.size = size, .reads = UNCOPY_COMM_READS_OFF};
        ranks_run(&options, in_ordinary_memory, NULL);
        options.chunk_bytes = 4096;
        ranks_run(&options, in_ordinary_memory, NULL);
        for (int mixed = 0; mixed < 2; mixed++) {
            bool is_mixed = mixed != 0;
            ranks_run(&options, in_windows, &is_mixed);
        }
        options = (ranks_options_t){.size = size};
        ranks_run(&options, in_windows, &(bool){true});
        ranks_run(&options, in_ordinary_memory, NULL);
    }
    return checks_finish("comm_processes");
}
