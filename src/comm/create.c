/* Making a communicator over a store or a folder, and parts of one over its own collectives. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/bootstrap.h"
#include "comm/fault.h"

/* ---------------------------------------------------------------- over a store */

enum { KEY_BYTES = 192 };

typedef struct store_exchange {
    const uncopy_comm_store_t *store;
    const uncopy_comm_options_t *options;
    int64_t end_ns;
} store_exchange_t;

static void make_key(char key[KEY_BYTES], const uncopy_comm_options_t *options, const char *round,
                     int32_t rank)
{
    (void)snprintf(key, KEY_BYTES, "%s/%s/%d", options->name, round, rank);
}

static uncopy_status_t get_record(const store_exchange_t *e, const char *round, int32_t rank,
                                  void *record, size_t bytes)
{
    char key[KEY_BYTES];
    make_key(key, e->options, round, rank);
    int64_t left_ns = e->end_ns - wait_now_ns();
    size_t size = 0;
    uncopy_status_t status =
        e->store->get(e->store->self, key, left_ns > 0 ? left_ns : 0, record, bytes, &size);
    if (status == UNCOPY_ERROR_TIMEOUT) {
        return status_fail(status, "rank %d of communicator \"%s\" did not come within %.3f s (%s)",
                           rank, e->options->name, (double)e->options->timeout_ns * 1e-9, round);
    }
    if (status == UNCOPY_OK && size != bytes) {
        return status_fail(UNCOPY_ERROR_APART,
                           "key %s holds %zu bytes, not %zu: another version wrote it", key, size,
                           bytes);
    }
    return status;
}

static uncopy_status_t gather_over_store(void *self, const char *round, const void *mine, void *all,
                                         size_t bytes)
{
    store_exchange_t *e = self;
    char key[KEY_BYTES];
    make_key(key, e->options, round, e->options->rank);
    TRY(e->store->set(e->store->self, key, mine, bytes));
    for (int32_t p = 0; p < e->options->size; p++) {
        char *record = (char *)all + (size_t)p * bytes;
        if (p == e->options->rank) {
            memcpy(record, mine, bytes);
        } else {
            TRY(get_record(e, round, p, record, bytes));
        }
    }
    return UNCOPY_OK;
}

/* All ranks have come through all rounds, so nobody reads keys any more. */
static uncopy_status_t first_barrier(comm_t *comm)
{
    comm_signature_t signature = {.operation = COMM_BARRIER, .root = -1};
    comm->sequence = UINT32_MAX; /* so that the caller's collectives are counted from 1 */
    TRY(comm_begin(comm, &signature, NULL));
    return comm_end(comm, comm_barrier(comm));
}

static void remove_files(const bootstrap_directory_t *directory,
                         const uncopy_comm_options_t *options)
{
    static const char *const rounds[] = {"card", "delivered", "verdict"};
    for (size_t i = 0; i < sizeof(rounds) / sizeof(rounds[0]); i++) {
        char key[KEY_BYTES];
        make_key(key, options, rounds[i], options->rank);
        bootstrap_directory_remove(directory, key);
    }
}

uncopy_status_t comm_create(const uncopy_allocator_t *allocator,
                            const uncopy_comm_options_t *options, comm_t **out_comm)
{
    bootstrap_directory_t directory = {options->directory, options->interrupt};
    uncopy_comm_store_t files = bootstrap_directory_store(&directory);
    store_exchange_t e = {.store = options->store != NULL ? options->store : &files,
                          .options = options};
    int64_t now_ns = wait_now_ns();
    e.end_ns = options->timeout_ns > INT64_MAX - now_ns ? INT64_MAX : now_ns + options->timeout_ns;
    bootstrap_exchange_t exchange = {&e, gather_over_store};
    comm_t *comm = NULL;
    TRY(bootstrap_run(allocator, options, &exchange, &comm));
    uncopy_status_t status = first_barrier(comm);
    if (status != UNCOPY_OK) {
        comm_release(comm);
        return status;
    }
    if (options->store == NULL) {
        remove_files(&directory, options);
    }
    *out_comm = comm;
    return UNCOPY_OK;
}

/* ---------------------------------------------------------------- over a parent */

/* Every rank of the parent takes part in every round, whatever its color. */
typedef struct parent_exchange {
    comm_t *parent;
    int32_t num_members;
    int32_t members[UNCOPY_COMM_MAX_SIZE]; /* ranks in parent, in order of their new ranks */
} parent_exchange_t;

static uncopy_status_t gather_in(comm_t *parent, const void *mine, void *all, size_t bytes)
{
    comm_signature_t signature = {.operation = COMM_SPLIT, .root = -1, .bytes = bytes};
    TRY(comm_begin(parent, &signature, NULL));
    pattern_row_t from = {(char *)(uintptr_t)mine, bytes, 0}, to = {all, bytes, bytes};
    comm_move_t move = {.reach = COMM_REACH_ALL,
                        .is_shared = true,
                        .source = {&from, 1, false},
                        .destination = {&to, 1, false}};
    return comm_end(parent, comm_move(parent, &move));
}

static uncopy_status_t gather_over_parent(void *self, const char *round, const void *mine,
                                          void *all, size_t bytes)
{
    parent_exchange_t *e = self;
    (void)round;
    size_t all_bytes = bytes * (size_t)e->parent->size;
    char *of_parent = memory_allocate(&e->parent->allocator, all_bytes, "records of a split");
    if (of_parent == NULL) {
        return fault_break(e->parent, UNCOPY_ERROR_MEMORY, "%s", uncopy_last_message());
    }
    uncopy_status_t status = gather_in(e->parent, mine, of_parent, bytes);
    for (int32_t i = 0; i < e->num_members && status == UNCOPY_OK; i++) {
        memcpy((char *)all + (size_t)i * bytes, of_parent + (size_t)e->members[i] * bytes, bytes);
    }
    memory_release(&e->parent->allocator, of_parent, all_bytes);
    return status;
}

typedef struct choice {
    int32_t color, key;
} choice_t;

/* Members of this rank's color, by key, then by rank; returns the new rank. A rank without a color
 * goes through the rounds as a communicator of itself, which is then dropped. */
static int32_t choose_members(parent_exchange_t *e, const choice_t *choices)
{
    int32_t rank = e->parent->rank, color = choices[rank].color, new_rank = 0;
    for (int32_t p = 0; p < e->parent->size; p++) {
        if (p != rank && (color < 0 || choices[p].color != color)) {
            continue;
        }
        int32_t at = e->num_members++;
        while (at > 0 && choices[e->members[at - 1]].key > choices[p].key) {
            e->members[at] = e->members[at - 1];
            at--;
        }
        e->members[at] = p;
    }
    while (e->members[new_rank] != rank) {
        new_rank++;
    }
    return new_rank;
}

uncopy_status_t comm_split(comm_t *parent, int32_t color, int32_t key, comm_t **out_comm)
{
    choice_t mine = {color, key}, choices[UNCOPY_COMM_MAX_SIZE];
    TRY(gather_in(parent, &mine, choices, sizeof(mine)));
    parent_exchange_t e = {.parent = parent};
    int32_t new_rank = choose_members(&e, choices);
    char name[COMM_NAME_BYTES];
    (void)snprintf(name, sizeof(name), "%.100s/%d", parent->name, color);
    uncopy_comm_options_t options = {.name = name,
                                     .rank = new_rank,
                                     .size = e.num_members,
                                     .timeout_ns = atomic_load(&parent->timeout_ns),
                                     .interrupt = parent->interrupt,
                                     .chunk_bytes = (int64_t)parent->chunk_bytes,
                                     .streaming_bytes = (int64_t)parent->streaming_bytes,
                                     .reads = parent->can_read ? UNCOPY_COMM_READS_PROBED
                                                               : UNCOPY_COMM_READS_OFF};
    bootstrap_exchange_t exchange = {&e, gather_over_parent};
    comm_t *comm = NULL;
    TRY(bootstrap_run(&parent->allocator, &options, &exchange, &comm));
    if (color < 0) {
        comm_release(comm);
        comm = NULL;
    }
    *out_comm = comm;
    return UNCOPY_OK;
}
