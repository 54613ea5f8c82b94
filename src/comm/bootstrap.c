/* Making a communicator of processes: see bootstrap.h. */
#include "comm/bootstrap.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/transport_shared.h"

enum { RECORD_VERSION = 1, WORDS_BYTES = 160, BOOT_BYTES = 40, CORE_WORDS = 16 };

/* How far a rank came. */
typedef struct outcome {
    uint32_t code;
    char words[WORDS_BYTES];
} outcome_t;

typedef struct card_record {
    uint32_t version;
    int32_t size;
    uint64_t chunk_bytes;
    transport_card_t card;
    char boot[BOOT_BYTES];      /* of the kernel's start; "" where it is not told */
    uint64_t cores[CORE_WORDS]; /* that the rank may run on */
    outcome_t outcome;
} card_record_t;

typedef struct delivered_record {
    uint64_t peers; /* a bit a rank */
    outcome_t outcome;
} delivered_record_t;

typedef struct verdict_record {
    uint32_t can_read;
    outcome_t outcome;
} verdict_record_t;

typedef struct bootstrap {
    const uncopy_comm_options_t *options;
    const bootstrap_exchange_t *exchange;
    uncopy_allocator_t allocator;
    outcome_t outcome; /* this rank's first failure */
    transport_shared_t *shared;
    bool is_crowded, can_read;
    union {
        card_record_t card;
        delivered_record_t delivered;
        verdict_record_t verdict;
    } records[UNCOPY_COMM_MAX_SIZE];
} bootstrap_t;

/* The first failure counts; words are this thread's message. */
static void note(bootstrap_t *b, uncopy_status_t status)
{
    if (status != UNCOPY_OK && b->outcome.code == UNCOPY_OK) {
        b->outcome.code = (uint32_t)status;
        (void)snprintf(b->outcome.words, sizeof(b->outcome.words), "%s", uncopy_last_message());
    }
}

static bool is_well(const bootstrap_t *b)
{
    return b->outcome.code == UNCOPY_OK;
}

/* ---------------------------------------------------------------- cards */

static void read_boot(char boot[BOOT_BYTES])
{
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, boot, BOOT_BYTES - 1);
    boot[length > 0 ? length : 0] = '\0';
    if (file >= 0) {
        (void)close(file);
    }
}

static void read_cores(uint64_t cores[CORE_WORDS])
{
    cpu_set_t set;
    CPU_ZERO(&set);
    (void)sched_getaffinity(0, sizeof(set), &set);
    for (uint32_t i = 0; i < CORE_WORDS * 64 && i < CPU_SETSIZE; i++) {
        cores[i / 64] |= (uint64_t)(CPU_ISSET(i, &set) != 0) << (i % 64);
    }
}

static void fill_card(bootstrap_t *b, card_record_t *record)
{
    const uncopy_comm_options_t *options = b->options;
    memset(record, 0, sizeof(*record));
    record->version = RECORD_VERSION;
    record->size = options->size;
    record->chunk_bytes = (uint64_t)options->chunk_bytes;
    read_boot(record->boot);
    read_cores(record->cores);
    note(b, transport_shared_make(&b->allocator, options->rank, options->size,
                                  (size_t)options->chunk_bytes, &record->card, &b->shared));
    record->outcome = b->outcome;
}

static uncopy_status_t compare_cards(const bootstrap_t *b, int32_t peer)
{
    const card_record_t *own = &b->records[b->options->rank].card;
    const card_record_t *other = &b->records[peer].card;
    int32_t rank = b->options->rank;
    if (other->version != own->version) {
        return status_fail(UNCOPY_ERROR_APART, "rank %d speaks version %u, rank %d version %u",
                           rank, own->version, peer, other->version);
    }
    if (other->size != own->size || other->chunk_bytes != own->chunk_bytes) {
        return status_fail(UNCOPY_ERROR_ARGUMENT,
                           "options differ: rank %d: size %d, chunk_bytes %llu; rank %d: size %d, "
                           "chunk_bytes %llu",
                           rank, own->size, (unsigned long long)own->chunk_bytes, peer, other->size,
                           (unsigned long long)other->chunk_bytes);
    }
    if (memcmp(own->boot, other->boot, BOOT_BYTES) != 0) {
        return status_fail(UNCOPY_ERROR_APART, "rank %d and rank %d run on different hosts", rank,
                           peer);
    }
    return UNCOPY_OK;
}

/* More ranks than cores that any of them may use. */
static bool is_crowded(const bootstrap_t *b)
{
    int32_t num_cores = 0;
    for (uint32_t i = 0; i < CORE_WORDS; i++) {
        uint64_t cores = 0;
        for (int32_t p = 0; p < b->options->size; p++) {
            cores |= b->records[p].card.cores[i];
        }
        num_cores += __builtin_popcountll(cores);
    }
    return b->options->size > num_cores;
}

static uncopy_status_t exchange_cards(bootstrap_t *b)
{
    int32_t size = b->options->size;
    card_record_t mine;
    fill_card(b, &mine);
    card_record_t all[UNCOPY_COMM_MAX_SIZE];
    TRY(b->exchange->gather(b->exchange->self, "card", &mine, all, sizeof(mine)));
    transport_card_t cards[UNCOPY_COMM_MAX_SIZE];
    for (int32_t p = 0; p < size; p++) {
        b->records[p].card = all[p];
        all[p].card.socket_name[SOCKET_NAME_BYTES - 1] = '\0';
        cards[p] = all[p].card;
    }
    for (int32_t p = 0; p < size; p++) {
        if (all[p].outcome.code == UNCOPY_OK) {
            note(b, compare_cards(b, p));
        } else {
            note(b, status_fail((uncopy_status_t)all[p].outcome.code, "rank %d: %.*s", p,
                                WORDS_BYTES, all[p].outcome.words));
        }
    }
    b->is_crowded = is_crowded(b);
    if (b->shared != NULL) {
        transport_shared_set_cards(b->shared, cards);
    }
    return UNCOPY_OK;
}

/* ---------------------------------------------------------------- memory */

static uncopy_status_t exchange_memory(bootstrap_t *b)
{
    int32_t size = b->options->size;
    delivered_record_t mine = {.peers = 0};
    for (int32_t i = 1; i < size && is_well(b); i++) {
        int32_t peer = (b->options->rank + i) % size;
        uncopy_status_t status = transport_shared_deliver(b->shared, peer);
        if (status == UNCOPY_OK) {
            mine.peers |= 1ULL << peer;
        } else {
            note(b, status_fail(UNCOPY_ERROR_APART, "rank %d does not reach rank %d: %s",
                                b->options->rank, peer, uncopy_last_message()));
        }
    }
    mine.outcome = b->outcome;
    delivered_record_t all[UNCOPY_COMM_MAX_SIZE];
    TRY(b->exchange->gather(b->exchange->self, "delivered", &mine, all, sizeof(mine)));
    uint64_t expected = 0;
    for (int32_t p = 0; p < size; p++) {
        b->records[p].delivered = all[p];
        expected |= (all[p].peers >> (uint32_t)b->options->rank & 1U) << p;
    }
    if (is_well(b)) {
        note(b, transport_shared_map(b->shared, expected));
    }
    return UNCOPY_OK;
}

/* ---------------------------------------------------------------- verdict */

static uncopy_status_t exchange_verdicts(bootstrap_t *b)
{
    verdict_record_t mine = {.outcome = b->outcome};
    mine.can_read = is_well(b) && b->options->reads == UNCOPY_COMM_READS_PROBED &&
                    transport_shared_probe_reads(b->shared);
    verdict_record_t all[UNCOPY_COMM_MAX_SIZE];
    TRY(b->exchange->gather(b->exchange->self, "verdict", &mine, all, sizeof(mine)));
    b->can_read = true;
    for (int32_t p = 0; p < b->options->size; p++) {
        if (all[p].outcome.code != UNCOPY_OK) {
            bool is_known = all[p].outcome.code <= (uint32_t)UNCOPY_ERROR_SYSTEM;
            return status_fail(
                is_known ? (uncopy_status_t)all[p].outcome.code : UNCOPY_ERROR_SYSTEM,
                "communicator \"%s\": %.*s", b->options->name, WORDS_BYTES, all[p].outcome.words);
        }
        b->can_read = b->can_read && all[p].can_read != 0;
    }
    return UNCOPY_OK;
}

static uncopy_status_t run_rounds(bootstrap_t *b)
{
    TRY(exchange_cards(b));
    TRY(exchange_memory(b));
    return exchange_verdicts(b);
}

static uncopy_status_t start(bootstrap_t *b, comm_t **out_comm)
{
    const uncopy_comm_options_t *options = b->options;
    comm_setup_t setup = {.allocator = b->allocator,
                          .name = options->name,
                          .rank = options->rank,
                          .size = options->size,
                          .chunk_bytes = (size_t)options->chunk_bytes,
                          .streaming_bytes = (size_t)options->streaming_bytes,
                          .is_crowded = b->is_crowded,
                          .can_read = b->can_read,
                          .timeout_ns = options->timeout_ns,
                          .interrupt = options->interrupt,
                          .segments = transport_shared_segments(b->shared),
                          .transport = transport_shared_transport(b->shared)};
    b->shared = NULL;
    return comm_start(&setup, out_comm);
}

uncopy_status_t bootstrap_run(const uncopy_allocator_t *allocator,
                              const uncopy_comm_options_t *options,
                              const bootstrap_exchange_t *exchange, comm_t **out_comm)
{
    bootstrap_t *b = memory_allocate(allocator, sizeof(*b), "making a communicator");
    if (b == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    b->options = options;
    b->exchange = exchange;
    b->allocator = *allocator;
    uncopy_status_t status = run_rounds(b);
    if (status == UNCOPY_OK) {
        status = start(b, out_comm);
    }
    if (b->shared != NULL) {
        transport_shared_release(b->shared);
    }
    memory_release(allocator, b, sizeof(*b));
    return status;
}
