/* Tests with several ranks: see ranks.h. */
#include "ranks.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "checks.h"

double ranks_scale(void)
{
    const char *text = getenv("UNCOPY_TEST_SCALE");
    return text != NULL ? strtod(text, NULL) : 1;
}

/* ---------------------------------------------------------------- processes */

typedef struct start {
    const ranks_options_t *options;
    const char *directory;
    void (*body)(uncopy_comm_t *comm, void *argument);
    void *argument;
} start_t;

static void run_with_comm(int32_t rank, void *argument)
{
    const start_t *start = argument;
    const ranks_options_t *options = start->options;
    uncopy_comm_options_t own = {.name = options->name != NULL ? options->name : "test",
                                 .rank = rank,
                                 .size = options->size,
                                 .timeout_ns =
                                     options->timeout_ns != 0 ? options->timeout_ns : 60000000000,
                                 .directory = start->directory,
                                 .chunk_bytes = options->chunk_bytes,
                                 .reads = options->reads};
    uncopy_comm_t *comm = NULL;
    if (CHECK_OK(uncopy_comm_create(NULL, &own, &comm))) {
        start->body(comm, start->argument);
    }
    uncopy_comm_release(comm);
}

static void fork_all(ranks_t *ranks, int32_t size, void (*body)(int32_t rank, void *argument),
                     void *argument)
{
    ranks->size = size;
    (void)fflush(NULL);
    for (int32_t p = 0; p < size; p++) {
        pid_t process = fork();
        if (process == 0) {
            /* no rank outlives the test */
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            checks_reset();
            body(p, argument);
            (void)fflush(NULL);
            int failed = checks_failed();
            _exit(failed < 100 ? failed : 100);
        }
        ranks->processes[p] = process;
    }
}

static void make_directory(ranks_t *ranks)
{
    (void)snprintf(ranks->directory, sizeof(ranks->directory), "/tmp/uncopy-test-XXXXXX");
    if (mkdtemp(ranks->directory) == NULL) {
        perror("mkdtemp");
        exit(1);
    }
}

void ranks_start(ranks_t *ranks, const ranks_options_t *options,
                 void (*body)(uncopy_comm_t *comm, void *argument), void *argument)
{
    make_directory(ranks);
    start_t start = {options, ranks->directory, body, argument};
    fork_all(ranks, options->size, run_with_comm, &start);
}

void ranks_start_bare(ranks_t *ranks, int32_t size, void (*body)(int32_t rank, void *argument),
                      void *argument)
{
    ranks->directory[0] = '\0';
    fork_all(ranks, size, body, argument);
}

static int32_t remove_directory(const char *directory)
{
    int32_t count = 0;
    DIR *folder = opendir(directory);
    for (struct dirent *e = NULL; folder != NULL && (e = readdir(folder)) != NULL;) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            char path[512];
            (void)snprintf(path, sizeof(path), "%s/%s", directory, e->d_name);
            (void)unlink(path);
            count++;
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    (void)rmdir(directory);
    return count;
}

int32_t ranks_wait(ranks_t *ranks, int32_t codes[])
{
    for (int32_t p = 0; p < ranks->size; p++) {
        int status = 0;
        if (ranks->processes[p] > 0) {
            (void)waitpid(ranks->processes[p], &status, 0);
        }
        codes[p] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    return ranks->directory[0] != '\0' ? remove_directory(ranks->directory) : 0;
}

void ranks_run(const ranks_options_t *options, void (*body)(uncopy_comm_t *comm, void *argument),
               void *argument)
{
    ranks_t ranks;
    int32_t codes[UNCOPY_COMM_MAX_SIZE];
    ranks_start(&ranks, options, body, argument);
    CHECK_EQUAL_I64(ranks_wait(&ranks, codes), 0);
    for (int32_t p = 0; p < options->size; p++) {
        CHECK_EQUAL_I64(codes[p], 0);
    }
}

/* ---------------------------------------------------------------- threads */

typedef struct thread {
    loopback_t *loopback;
    int32_t rank;
    void (*body)(comm_t *comm, void *argument);
    void *argument;
} thread_t;

static void *thread_main(void *self)
{
    thread_t *thread = self;
    comm_t *comm = NULL;
    if (CHECK_OK(loopback_join(thread->loopback, thread->rank, &comm))) {
        thread->body(comm, thread->argument);
        comm_release(comm);
    }
    return NULL;
}

void ranks_run_threads(const loopback_options_t *options,
                       void (*body)(comm_t *comm, void *argument), void *argument)
{
    loopback_t *loopback = NULL;
    if (!CHECK_OK(loopback_create(&memory_system_allocator, options, &loopback))) {
        return;
    }
    pthread_t threads[UNCOPY_COMM_MAX_SIZE];
    thread_t starts[UNCOPY_COMM_MAX_SIZE];
    for (int32_t p = 0; p < options->size; p++) {
        starts[p] = (thread_t){loopback, p, body, argument};
        if (pthread_create(&threads[p], NULL, thread_main, &starts[p]) != 0) {
            perror("pthread_create");
            exit(1);
        }
    }
    for (int32_t p = 0; p < options->size; p++) {
        (void)pthread_join(threads[p], NULL);
    }
    loopback_release(loopback);
}
