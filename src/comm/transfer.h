/* Transfers between two ranks, beside the collectives.
 *
 * From each rank to each other leads a channel of COMM_CELLS cells in the sender's segment: a ring,
 * with `posted` counted by the sender and `taken` by the receiver. A message is one run of cells; a
 * message from a window is one cell that names where it lies, and is taken when it has been copied.
 * Whoever moves a counter rings the other rank's bell; whoever waits sleeps on its own bell.
 *
 * All transfers that a rank's threads have in progress stand in one list, in the order of the
 * calls, under transfer_lock. Whoever is awake moves all of them on. A message that nobody has
 * asked for yet, in front of one that somebody waits for, is kept in memory of the receiver. */
#ifndef COMM_TRANSFER_H
#define COMM_TRANSFER_H

#include "comm/comm.h"

/* A message that has come without a receive, or is coming. */
typedef struct comm_message {
    struct comm_message *next;
    int64_t tag, bytes, received;
    uint8_t dtype;
    char *data;             /* bytes of them */
    comm_posted_t *claimer; /* a receive that waits for its end */
} comm_message_t;

/* What comes from one rank. */
typedef struct comm_inbox {
    comm_message_t *kept;     /* oldest first; the last may be coming */
    comm_message_t *coming;   /* into memory of ours, or */
    comm_posted_t *receiving; /* into the receive's own */
} comm_inbox_t;

struct comm_posted {
    comm_posted_t *next;
    uncopy_transfer_t transfer;
    int64_t done; /* bytes */
    bool is_begun, is_complete;
    uint32_t window_cell; /* SEND from a window: complete when so many cells are taken */
    bool is_from_window;
};

/* Frees what was kept. */
void transfer_release(comm_t *comm);

#endif
