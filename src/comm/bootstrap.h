/* Making a communicator of processes: who is who, can all share memory, then the engine.
 *
 * Three rounds, in each of which every rank tells all others one fixed record:
 *   cards      who I am, what I was asked for, how to reach me
 *   delivered  to whom I could hand my memory
 *   verdict    whether I could map and verify everybody's
 * Every rank runs every round, whatever failed before, so that nobody waits for one who has given
 * up; after the last all ranks hold the same records and come to the same answer, that of the
 * lowest rank with a failure. Identifiers of hosts or namespaces decide nothing: memory is tried,
 * then verified by a random number in it. */
#ifndef COMM_BOOTSTRAP_H
#define COMM_BOOTSTRAP_H

#include "comm/comm.h"

/* How records travel: a store's keys, or the collectives of a parent. */
typedef struct bootstrap_exchange {
    void *self;
    /* all[p * bytes ..] becomes rank p's mine. round: a word, the same on all ranks. */
    uncopy_status_t (*gather)(void *self, const char *round, const void *mine, void *all,
                              size_t bytes);
} bootstrap_exchange_t;

/* options are checked and complete but for store and directory, which exchange stands for. */
UNCOPY_MUST_CHECK uncopy_status_t bootstrap_run(const uncopy_allocator_t *allocator,
                                                const uncopy_comm_options_t *options,
                                                const bootstrap_exchange_t *exchange,
                                                comm_t **out_comm);

/* A store of files in a folder. Keys are written once and renamed into place; get looks again every
 * 0.2 to 2 ms. */
typedef struct bootstrap_directory {
    const char *path;
    uncopy_comm_interrupt_t interrupt;
} bootstrap_directory_t;

uncopy_comm_store_t bootstrap_directory_store(bootstrap_directory_t *directory);
void bootstrap_directory_remove(const bootstrap_directory_t *directory, const char *key);

#endif
