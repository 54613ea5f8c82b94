/* Where ranks cannot share memory, making a communicator fails on every rank with the cause, and in
 * time: another user, another network namespace, no memfd, no memory or descriptors left, options
 * that differ, a rank that does not come. Where they can although process ids differ or /dev/shm is
 * hidden, it works. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"
#include "comm/wait.h"
#include "ranks.h"

/* The ranks' store: keys in memory that the test shares with them, whoever they become. */
enum { NUM_KEYS = 32, VALUE_BYTES = 1024 };

typedef struct entry {
    _Atomic bool is_set;
    char key[64];
    size_t size;
    char value[VALUE_BYTES];
} entry_t;

typedef struct shelf {
    _Atomic int32_t num_entries;
    entry_t entries[NUM_KEYS];
} shelf_t;

static uncopy_status_t set(void *self, const char *key, const void *value, size_t size)
{
    shelf_t *shelf = self;
    entry_t *entry = &shelf->entries[atomic_fetch_add(&shelf->num_entries, 1)];
    (void)snprintf(entry->key, sizeof(entry->key), "%s", key);
    memcpy(entry->value, value, size < VALUE_BYTES ? size : VALUE_BYTES);
    entry->size = size;
    atomic_store(&entry->is_set, true);
    return UNCOPY_OK;
}

static uncopy_status_t get(void *self, const char *key, int64_t timeout_ns, void *value,
                           size_t capacity, size_t *out_size)
{
    shelf_t *shelf = self;
    for (int64_t end_ns = wait_now_ns() + timeout_ns; wait_now_ns() < end_ns;) {
        for (int32_t i = 0; i < NUM_KEYS; i++) {
            const entry_t *entry = &shelf->entries[i];
            if (atomic_load(&entry->is_set) && strcmp(entry->key, key) == 0) {
                memcpy(value, entry->value, entry->size < capacity ? entry->size : capacity);
                *out_size = entry->size;
                return UNCOPY_OK;
            }
        }
        (void)sched_yield();
    }
    return UNCOPY_ERROR_TIMEOUT;
}

typedef struct scene {
    bool (*prepare)(void); /* on rank 1; false: this machine does not allow it */
    uncopy_status_t expected;
    const char *words; /* in the message of every rank */
    int64_t chunk_bytes_of_1;
    shelf_t *shelf;
} scene_t;

enum { EXIT_SKIPPED = 77 };

static void make_it(int32_t rank, void *argument)
{
    const scene_t *scene = argument;
    if (rank == 1 && scene->prepare != NULL) {
        CHECK(scene->prepare());
    }
    uncopy_comm_store_t store = {scene->shelf, set, get};
    uncopy_comm_options_t options = {.name = "apart",
                                     .rank = rank,
                                     .size = 3,
                                     .timeout_ns = 1000000000,
                                     .store = &store,
                                     .chunk_bytes = rank == 1 ? scene->chunk_bytes_of_1 : 0};
    uncopy_comm_t *comm = NULL;
    CHECK_STATUS(uncopy_comm_create(NULL, &options, &comm), scene->expected);
    if (scene->expected != UNCOPY_OK) {
        CHECK(comm == NULL);
        CHECK_HOLDS(uncopy_last_message(), scene->words);
        return;
    }
    if (comm != NULL) {
        CHECK_OK(uncopy_comm_barrier(comm, NULL));
        CHECK(uncopy_comm_is_alive(comm, 2));
        CHECK_OK(uncopy_comm_barrier(comm, NULL));
    }
    uncopy_comm_release(comm);
}

/* Tried in a process of its own, before ranks wait for one that cannot be prepared. */
static bool is_allowed(bool (*prepare)(void))
{
    (void)fflush(NULL);
    pid_t process = fork();
    if (process == 0) {
        _exit(prepare() ? 0 : EXIT_SKIPPED);
    }
    int status = 0;
    (void)waitpid(process, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void play(const char *title, scene_t scene)
{
    if (scene.prepare != NULL && !is_allowed(scene.prepare)) {
        printf("skipped, this user may not: %s\n", title);
        return;
    }
    scene.shelf =
        mmap(NULL, sizeof(*scene.shelf), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ranks_t ranks;
    int32_t codes[UNCOPY_COMM_MAX_SIZE];
    ranks_start_bare(&ranks, 3, make_it, &scene);
    (void)ranks_wait(&ranks, codes);
    (void)munmap(scene.shelf, sizeof(*scene.shelf));
    for (int32_t p = 0; p < 3; p++) {
        if (!CHECK_EQUAL_I64(codes[p], 0)) {
            printf("    %s, rank %d\n", title, p);
        }
    }
}

static bool become_another_user(void)
{
    return geteuid() == 0 && setresgid(65534, 65534, 65534) == 0 &&
           setresuid(65534, 65534, 65534) == 0;
}

static bool enter_a_network_namespace(void)
{
    return unshare(CLONE_NEWNET) == 0;
}

/* The rank goes on as the first process of a namespace of process ids; the one that was started
 * waits for it. */
static bool enter_a_process_namespace(void)
{
    if (unshare(CLONE_NEWPID) != 0) {
        return false;
    }
    (void)fflush(NULL);
    pid_t child = fork();
    if (child > 0) {
        int status = 0;
        (void)waitpid(child, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    return child == 0;
}

/* In a namespace of its own it sees no named shared memory. */
static bool hide_named_memory(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/dev/shm", "tmpfs", MS_RDONLY, NULL) == 0;
}

static bool use_up_descriptors(void)
{
    struct rlimit limit = {3, 3};
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

/* Number number of the system calls fails with error. */
static bool forbid(uint32_t number, uint32_t error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static bool forbid_memfd(void)
{
    return forbid(SYS_memfd_create, ENOSYS);
}

static bool forbid_sockets(void)
{
    return forbid(SYS_socket, ENOSYS);
}

static bool forbid_reads(void)
{
    return forbid(SYS_process_vm_readv, ENOSYS);
}

/* As tmpfs answers when the machine's memory is used up. */
static bool fill_memory(void)
{
    return forbid(SYS_fallocate, ENOSPC);
}

static bool do_not_come(void)
{
    _exit(0);
}

/* Memory runs out between two windows, on one rank. */
static void use_up_memory(uncopy_comm_t *comm, void *argument)
{
    (void)argument;
    uncopy_window_t *window = NULL, *another = NULL;
    CHECK_OK(uncopy_window_create(comm, 100000, NULL, &window));
    int32_t is_full = uncopy_comm_rank(comm) != 1 || fill_memory(), are_all = 0;
    CHECK_OK(uncopy_comm_all_reduce(comm, &is_full, &are_all, 1, UNCOPY_DTYPE_I32,
                                    UNCOPY_REDUCE_MIN, NULL));
    if (are_all == 0) {
        printf("skipped, this user may not: no memory for a window\n");
        uncopy_window_release(window);
        return;
    }
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(uncopy_window_create(comm, 100000, NULL, &another), UNCOPY_ERROR_MEMORY);
        CHECK(another == NULL);
        CHECK_HOLDS(uncopy_last_message(),
                    uncopy_comm_rank(comm) == 1 ? "No space left" : "rank 1");
    }
    int32_t *numbers = uncopy_window_data(window); /* still served */
    numbers[uncopy_comm_rank(comm)] = uncopy_comm_rank(comm) + 5;
    CHECK_OK(uncopy_comm_all_gather(comm, numbers + uncopy_comm_rank(comm), numbers, 1,
                                    UNCOPY_DTYPE_I32, NULL));
    CHECK(numbers[0] == 5 && numbers[1] == 6 && numbers[2] == 7);
    uncopy_window_release(window);
}

int main(void)
{
    play("no /dev/shm", (scene_t){.prepare = hide_named_memory, .expected = UNCOPY_OK});
    play("no descriptors left", (scene_t){.prepare = use_up_descriptors,
                                          .expected = UNCOPY_ERROR_APART,
                                          .words = "Too many open files"});
    play("no memory left", (scene_t){.prepare = fill_memory,
                                     .expected = UNCOPY_ERROR_MEMORY,
                                     .words = "No space left"});
    ranks_run(&(ranks_options_t){.size = 3}, use_up_memory, NULL);
    play("another user", (scene_t){.prepare = become_another_user,
                                   .expected = UNCOPY_ERROR_APART,
                                   .words = "another user"});
    play("another network namespace", (scene_t){.prepare = enter_a_network_namespace,
                                                .expected = UNCOPY_ERROR_APART,
                                                .words = "does not reach rank 1"});
    play("another process namespace",
         (scene_t){.prepare = enter_a_process_namespace, .expected = UNCOPY_OK});
    play("no memfd", (scene_t){.prepare = forbid_memfd,
                               .expected = UNCOPY_ERROR_APART,
                               .words = "rank 1: memfd_create"});
    play("no sockets", (scene_t){.prepare = forbid_sockets,
                                 .expected = UNCOPY_ERROR_APART,
                                 .words = "rank 1: an abstract unix socket"});
    play("no process_vm_readv", (scene_t){.prepare = forbid_reads, .expected = UNCOPY_OK});
    play("options that differ", (scene_t){.chunk_bytes_of_1 = 8192,
                                          .expected = UNCOPY_ERROR_ARGUMENT,
                                          .words = "chunk_bytes 8192"});
    scene_t absent = {.prepare = do_not_come, .expected = UNCOPY_ERROR_TIMEOUT};
    absent.words = "rank 1 of communicator \"apart\" did not come";
    play("a rank that does not come", absent);
    return checks_finish("comm_apart");
}
