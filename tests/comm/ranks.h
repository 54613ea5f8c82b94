/* Tests with several ranks: real processes over a folder, or threads over the loopback transport.
 *
 * A test body runs once a rank with its communicator; checks inside a process are counted there and
 * come back as its exit code. */
#ifndef RANKS_H
#define RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "comm/transport_loopback.h"
#include "uncopy/comm.h"

/* Process ids of ranks that were started; 0: waited for. */
typedef struct ranks {
    int32_t size;
    pid_t processes[UNCOPY_COMM_MAX_SIZE];
    char directory[64];
} ranks_t;

typedef struct ranks_options {
    int32_t size;
    const char *name; /* NULL: "test" */
    int64_t chunk_bytes;
    int64_t timeout_ns;
    uncopy_comm_reads_t reads;
} ranks_options_t;

/* Forks; each child makes its communicator and returns body's number of failed checks (at most
 * 100) as its exit code. body's comm is released after it. */
void ranks_start(ranks_t *ranks, const ranks_options_t *options,
                 void (*body)(uncopy_comm_t *comm, void *argument), void *argument);
/* As ranks_start, without a communicator. */
void ranks_start_bare(ranks_t *ranks, int32_t size, void (*body)(int32_t rank, void *argument),
                      void *argument);
/* Waits for all; *out_codes[rank] is the exit code, or minus the signal. Removes the folder, which
 * must be empty unless a rank was killed: returns the number of files left in it. */
int32_t ranks_wait(ranks_t *ranks, int32_t codes[]);
/* start and wait; CHECKs that every rank passed and left nothing. */
void ranks_run(const ranks_options_t *options, void (*body)(uncopy_comm_t *comm, void *argument),
               void *argument);

/* Threads over one loopback; body's argument is shared. CHECKs inside are counted by the
 * program. */
void ranks_run_threads(const loopback_options_t *options,
                       void (*body)(comm_t *comm, void *argument), void *argument);

/* UNCOPY_TEST_SCALE, 1 if unset. */
double ranks_scale(void);

#endif
