/* Three processes gather into windows, without Python.
 *
 * The program forks its ranks, as any launcher would start them: what a rank needs is its number,
 * how many there are, and a folder or a store in which they find each other. Each rank
 *
 *   1. makes the communicator over the folder;
 *   2. makes a window, memory of its own that its peers can read;
 *   3. writes its part at its final place there and gathers: each peer copies the part from where
 *      it lies to where it belongs, once;
 *   4. sums what has arrived, over all ranks.
 *
 * A rank that fails breaks the communicator for all; the others say so and end. Exits with 0 when
 * every rank has the right values. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "uncopy/uncopy.h"

enum { RANKS = 3, PART = 100000 }; /* elements */

/* Says what failed and what may be done; 1 for a failure. */
static int failed(uncopy_status_t status, const char *what, int rank)
{
    if (status == UNCOPY_OK) {
        return 0;
    }
    (void)fprintf(stderr, "rank %d: %s: %s: %s (%s)\n", rank, what, uncopy_status_name(status),
                  uncopy_last_message(), uncopy_status_advice(status));
    return 1;
}

/* Element i of rank's part. */
static float value_of(int rank, int i)
{
    return (float)(rank * 1000 + i % 1000);
}

/* Whether the window holds every rank's part, and total the sum of them all. */
static int is_right(const float *all, double total)
{
    double expected = 0;
    for (int p = 0; p < RANKS; p++) {
        for (int i = 0; i < PART; i++) {
            expected += (double)value_of(p, i);
            if (all[p * PART + i] != value_of(p, i)) {
                return 0;
            }
        }
    }
    return total == expected;
}

/* What a rank does with its window; 1 for a failure. */
static int gather(uncopy_comm_t *comm, float *all)
{
    int rank = uncopy_comm_rank(comm);
    float *part = all + rank * PART;
    double mine = 0, total = 0;
    for (int i = 0; i < PART; i++) {
        part[i] = value_of(rank, i);
        mine += (double)part[i];
    }
    if (failed(uncopy_comm_all_gather(comm, part, all, PART, UNCOPY_DTYPE_F32, NULL), "all_gather",
               rank) ||
        failed(uncopy_comm_all_reduce(comm, &mine, &total, 1, UNCOPY_DTYPE_F64, UNCOPY_REDUCE_SUM,
                                      NULL),
               "all_reduce", rank)) {
        return 1;
    }
    uncopy_comm_counts_t counts;
    uncopy_comm_counts(comm, &counts);
    int has_failed = !is_right(all, total) || counts.bytes_staged > 1024;
    if (rank == 0 || has_failed) {
        (void)printf("rank %d of %d: sum %.0f, %lld bytes from windows, %lld staged: %s\n", rank,
                     RANKS, total, (long long)counts.bytes_window, (long long)counts.bytes_staged,
                     has_failed ? "WRONG" : "right");
    }
    return has_failed;
}

static int run_rank(int rank, const char *directory)
{
    uncopy_comm_options_t options;
    memset(&options, 0, sizeof(options));
    options.name = "gather";
    options.rank = rank;
    options.size = RANKS;
    options.directory = directory;
    options.timeout_ns = 60000000000;
    uncopy_comm_t *comm = NULL;
    uncopy_window_t *window = NULL;
    int64_t bytes = (int64_t)RANKS * PART * (int64_t)sizeof(float);
    if (failed(uncopy_comm_create(NULL, &options, &comm), "communicator", rank)) {
        return 1;
    }
    int has_failed = failed(uncopy_window_create(comm, bytes, NULL, &window), "window", rank) ||
                     gather(comm, (float *)uncopy_window_data(window));
    uncopy_window_release(window);
    uncopy_comm_release(comm);
    return has_failed;
}

int main(void)
{
    char directory[] = "/tmp/uncopy-gather-XXXXXX";
    if (mkdtemp(directory) == NULL) {
        perror(directory);
        return 1;
    }
    int has_failed = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        pid_t process = fork();
        if (process == 0) {
            exit(run_rank(rank, directory));
        }
        has_failed = has_failed || process < 0;
    }
    int status = 0;
    while (wait(&status) > 0) {
        has_failed = has_failed || status != 0;
    }
    /* empty again: the ranks have removed what they wrote */
    has_failed = rmdir(directory) != 0 || has_failed;
    return has_failed;
}
