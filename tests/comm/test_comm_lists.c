/* Uneven sizes, lists of segments, gather and scatter, transfers and parts of a communicator,
 * between real processes: ordinary memory, windows, small chunks. */
#include <stdlib.h>

#include "checks.h"
#include "ranks.h"

enum { ROOM = 3 << 20 };

static uint8_t byte_of(int32_t from, int32_t to, int64_t i)
{
    return (uint8_t)(from * 53 + to * 17 + i * 7 + i / 253);
}

static void fill(uint8_t *bytes, int32_t from, int32_t to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        bytes[i] = byte_of(from, to, i);
    }
}

static bool holds(const uint8_t *bytes, int32_t from, int32_t to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (bytes[i] != byte_of(from, to, i)) {
            return false;
        }
    }
    return true;
}

/* What rank p gives to rank q in round r: also nothing. */
static int64_t size_of(int32_t p, int32_t q, int32_t r)
{
    static const int64_t sizes[] = {0, 1, 700, 5000, 70001, 300};
    return sizes[(p * 3 + q + r) % 6];
}

static void blocks(uncopy_comm_t *comm, uint8_t *source, uint8_t *destination)
{
    int32_t rank = uncopy_comm_rank(comm), size = uncopy_comm_size(comm);
    for (int32_t r = 0; r < 6; r++) {
        uncopy_comm_block_t to[UNCOPY_COMM_MAX_SIZE], from[UNCOPY_COMM_MAX_SIZE];
        for (int32_t p = 0; p < size; p++) {
            to[p] = (uncopy_comm_block_t){destination + p * 80000, size_of(p, 0, r)};
        }
        memset(destination, 0xEE, (size_t)size * 80000);
        fill(source, rank, 0, size_of(rank, 0, r));
        CHECK_OK(uncopy_comm_all_gather_blocks(comm, source, to, UNCOPY_DTYPE_U8, NULL));
        for (int32_t p = 0; p < size; p++) {
            CHECK(holds(to[p].data, p, 0, to[p].bytes));
            CHECK(((uint8_t *)to[p].data)[to[p].bytes] == 0xEE);
            from[p] = (uncopy_comm_block_t){source + p * 80000, size_of(rank, p, r)};
            to[p].bytes = size_of(p, rank, r);
            fill(from[p].data, rank, p, from[p].bytes);
        }
        memset(destination, 0xEE, (size_t)size * 80000);
        CHECK_OK(uncopy_comm_all_to_all_blocks(comm, from, to, UNCOPY_DTYPE_U8, NULL));
        for (int32_t p = 0; p < size; p++) {
            CHECK(holds(to[p].data, p, rank, to[p].bytes));
            CHECK(((uint8_t *)to[p].data)[to[p].bytes] == 0xEE);
        }
        int32_t root = r % size;
        for (int32_t p = 0; p < size; p++) {
            to[p].bytes = size_of(p, root, r);
        }
        memset(destination, 0xEE, (size_t)size * 80000);
        CHECK_OK(uncopy_comm_gather(comm, from[root].data, from[root].bytes,
                                    rank == root ? to : NULL, UNCOPY_DTYPE_U8, root, NULL));
        for (int32_t p = 0; p < size && rank == root; p++) {
            CHECK(holds(to[p].data, p, root, to[p].bytes));
        }
        CHECK_OK(uncopy_comm_scatter(comm, rank == root ? from : NULL, destination,
                                     size_of(root, rank, r), UNCOPY_DTYPE_U8, root, NULL));
        CHECK(holds(destination, root, rank, size_of(root, rank, r)));
    }
}

static void reduced_blocks(uncopy_comm_t *comm, uint8_t *source, uint8_t *destination)
{
    int32_t rank = uncopy_comm_rank(comm), size = uncopy_comm_size(comm);
    uncopy_comm_block_t from[UNCOPY_COMM_MAX_SIZE];
    for (int32_t r = 0; r < 6; r++) {
        for (int32_t p = 0; p < size; p++) {
            from[p] = (uncopy_comm_block_t){source + p * 80000, size_of(p, p, r)};
            fill(from[p].data, rank, p, from[p].bytes);
        }
        CHECK_OK(uncopy_comm_reduce_scatter_blocks(comm, from, destination, UNCOPY_DTYPE_U8,
                                                   UNCOPY_REDUCE_BXOR, NULL));
        bool is_right = true;
        for (int64_t i = 0; i < from[rank].bytes; i++) {
            uint8_t expected = 0;
            for (int32_t p = 0; p < size; p++) {
                expected ^= byte_of(p, rank, i);
            }
            is_right = is_right && destination[i] == expected;
        }
        CHECK(is_right);
    }
}

/* Pieces of different sizes with gaps, one of them empty, one in place. */
static void segments(uncopy_comm_t *comm, uint8_t *source, uint8_t *destination)
{
    static const int64_t sizes[] = {64, 0, 7, 50000, 1024, 33};
    enum { NUM = sizeof(sizes) / sizeof(sizes[0]) };
    int32_t rank = uncopy_comm_rank(comm), size = uncopy_comm_size(comm);
    uncopy_comm_segment_t list[NUM];
    for (int32_t s = 0; s < NUM; s++) {
        list[s] = (uncopy_comm_segment_t){.source = source + s * 70000,
                                          .destination = destination + s * 300000,
                                          .bytes = sizes[s],
                                          .stride_bytes = s % 2 == 0 ? 0 : sizes[s] + 9};
        if (s == 4) {
            list[s].source = (uint8_t *)list[s].destination + rank * sizes[s];
        }
        fill(list[s].source, rank, s, sizes[s]);
    }
    CHECK_OK(uncopy_comm_all_gather_segments(comm, list, NUM, UNCOPY_DTYPE_U8, NULL));
    for (int32_t s = 0; s < NUM; s++) {
        int64_t stride = list[s].stride_bytes != 0 ? list[s].stride_bytes : sizes[s];
        for (int32_t p = 0; p < size; p++) {
            CHECK(holds((uint8_t *)list[s].destination + p * stride, p, s, sizes[s]));
        }
        uint8_t *whole = list[s].destination;
        list[s].destination = s == 4 ? whole + rank * sizes[s] : list[s].source;
        list[s].source = whole;
    }
    CHECK_OK(uncopy_comm_reduce_scatter_segments(comm, list, NUM, UNCOPY_DTYPE_U8,
                                                 UNCOPY_REDUCE_MAX, NULL));
    for (int32_t s = 0; s < NUM; s++) {
        CHECK(holds(list[s].destination, rank, s, sizes[s])); /* all ranks gave the same */
    }
}

static void transfers(uncopy_comm_t *comm, uint8_t *source, uint8_t *destination)
{
    int32_t rank = uncopy_comm_rank(comm), size = uncopy_comm_size(comm);
    if (size == 1) {
        return;
    }
    int32_t next = (rank + 1) % size, last = (rank + size - 1) % size;
    static const int64_t sizes[] = {0, 1, 5000, 32768, 400001, 3};
    enum { NUM = sizeof(sizes) / sizeof(sizes[0]) };
    for (int32_t reversed = 0; reversed < 2; reversed++) {
        uncopy_transfer_t list[2 * NUM];
        for (int32_t i = 0; i < NUM; i++) {
            int32_t j = reversed != 0 ? NUM - 1 - i : i;
            fill(source + i * 400064, rank, i, sizes[i]);
            list[i] = (uncopy_transfer_t){UNCOPY_TRANSFER_SEND, next,     i,
                                          source + i * 400064,  sizes[i], UNCOPY_DTYPE_U8};
            list[NUM + i] =
                (uncopy_transfer_t){UNCOPY_TRANSFER_RECEIVE,  last,     j,
                                    destination + j * 400064, sizes[j], UNCOPY_DTYPE_U8};
        }
        memset(destination, 0xEE, NUM * 400064);
        CHECK_OK(uncopy_comm_transfer(comm, list, 2 * NUM, NULL));
        for (int32_t i = 0; i < NUM; i++) {
            CHECK(holds(destination + i * 400064, last, i, sizes[i]));
        }
    }
    /* asked for in another order than sent, by calls of one transfer each */
    for (int32_t i = 0; i < 4; i++) {
        uncopy_transfer_t send = {UNCOPY_TRANSFER_SEND, next, 100 + i,
                                  source + i * 100,     50,   UNCOPY_DTYPE_U8};
        fill(source + i * 100, rank, i, 50);
        CHECK(i >= 3 || uncopy_comm_transfer(comm, &send, 1, NULL) == UNCOPY_OK);
    }
    for (int32_t i = 2; i >= 0; i--) {
        uncopy_transfer_t receive = {UNCOPY_TRANSFER_RECEIVE, last, 100 + i, destination, 50,
                                     UNCOPY_DTYPE_U8};
        CHECK_OK(uncopy_comm_transfer(comm, &receive, 1, NULL));
        CHECK(holds(destination, last, i, 50));
    }
}

static void parts_of(uncopy_comm_t *comm)
{
    int32_t rank = uncopy_comm_rank(comm), size = uncopy_comm_size(comm);
    uncopy_comm_t *part = NULL;
    /* rank 0 in none; the others by parity, in reversed order */
    CHECK_OK(uncopy_comm_split(comm, rank == 0 ? -1 : rank % 2, -rank, &part));
    CHECK((part == NULL) == (rank == 0));
    if (part != NULL) {
        int32_t members = rank % 2 == 0 ? (size - 1) / 2 : size / 2;
        CHECK_EQUAL_I64(uncopy_comm_size(part), members);
        int32_t all[UNCOPY_COMM_MAX_SIZE];
        CHECK_OK(uncopy_comm_all_gather(part, &rank, all, 1, UNCOPY_DTYPE_I32, NULL));
        for (int32_t i = 1; i < members; i++) {
            CHECK(all[i] == all[i - 1] - 2);
        }
        uncopy_comm_release(part);
    }
    CHECK_OK(uncopy_comm_barrier(comm, NULL));
}

static void every_form(uncopy_comm_t *comm, void *argument)
{
    const bool *uses_windows = argument;
    uint8_t *memory[2];
    uncopy_window_t *windows[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        memory[i] = malloc(ROOM);
        if (*uses_windows) {
            CHECK_OK(uncopy_window_create(comm, ROOM, NULL, &windows[i]));
        }
    }
    /* odd ranks stay in ordinary memory */
    bool is_inside = *uses_windows && uncopy_comm_rank(comm) % 2 == 0;
    uint8_t *source = is_inside ? uncopy_window_data(windows[0]) : memory[0];
    uint8_t *destination = is_inside ? uncopy_window_data(windows[1]) : memory[1];
    blocks(comm, source, destination);
    reduced_blocks(comm, source, destination);
    segments(comm, source, destination);
    transfers(comm, source, destination);
    parts_of(comm);
    for (int i = 0; i < 2; i++) {
        uncopy_window_release(windows[i]);
        free(memory[i]);
    }
}

int main(void)
{
    for (int32_t size = 1; size <= 5; size++) {
        bool uses_windows = false;
        ranks_options_t options = {.size = size, .reads = UNCOPY_COMM_READS_OFF};
        ranks_run(&options, every_form, &uses_windows);
        options.chunk_bytes = 4096;
        uses_windows = true;
        ranks_run(&options, every_form, &uses_windows);
        options = (ranks_options_t){.size = size};
        uses_windows = false;
        ranks_run(&options, every_form, &uses_windows);
    }
    return checks_finish("comm_lists");
}
