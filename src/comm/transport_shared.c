/* Shared memory between processes: see transport_shared.h. */
#include "comm/transport_shared.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/alive.h"
#include "comm/tuning.h"

enum { SUBJECT_SEGMENT = 0, RECEIVE_MS = 10000 };

struct transport_shared {
    uncopy_allocator_t allocator;
    int32_t rank, size;
    size_t chunk_bytes, segment_bytes;
    comm_segment_t *segments[UNCOPY_COMM_MAX_SIZE];
    int process_descriptors[UNCOPY_COMM_MAX_SIZE]; /* pidfds of the peers, else -1 */
    transport_card_t cards[UNCOPY_COMM_MAX_SIZE];
    int listener, segment_descriptor, own_process_descriptor;
    bool has_guard;
    alive_guard_t guard;
    uint64_t probe_value; /* read by peers' probes */
};

/* ---------------------------------------------------------------- memory */

/* What the system says is left, or more than any request. Shared memory is taken by touching it,
 * and taking more than there is ends processes instead of failing: so it is asked first. */
static size_t memory_left(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    unsigned long long available = 0, swap = 0, kibibytes = 0;
    char line[128];
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "MemAvailable: %llu kB", &kibibytes) == 1) {
            available = kibibytes;
        } else if (sscanf(line, "SwapFree: %llu kB", &kibibytes) == 1) {
            swap = kibibytes;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return available > 0 ? (size_t)(available + swap) * 1024 : SIZE_MAX;
}

/* Sealed, so that no peer can take pages away under a reader. allocated_bytes are taken at once, so
 * that lack of memory is an error here and not a signal later. */
static uncopy_status_t make_memory(const char *name, size_t bytes, size_t allocated_bytes,
                                   int *out_descriptor)
{
    size_t left = memory_left();
    if (allocated_bytes > left) {
        return status_fail(UNCOPY_ERROR_MEMORY,
                           "%zu bytes of shared memory: the system has %zu left", bytes, left);
    }
    int descriptor = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor < 0) {
        return status_fail(errno == ENOMEM ? UNCOPY_ERROR_MEMORY : UNCOPY_ERROR_APART,
                           "memfd_create: %s", strerror(errno));
    }
    int error = 0;
    if (ftruncate(descriptor, (off_t)bytes) != 0 ||
        fallocate(descriptor, 0, 0, (off_t)allocated_bytes) != 0 ||
        fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        error = errno;
        (void)close(descriptor);
        return status_fail(UNCOPY_ERROR_MEMORY, "%zu bytes of shared memory: %s", bytes,
                           strerror(error));
    }
    *out_descriptor = descriptor;
    return UNCOPY_OK;
}

static uncopy_status_t map_memory(int descriptor, size_t bytes, size_t populated_bytes,
                                  bool is_writable, void **out_memory)
{
    int protection = is_writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void *memory = mmap(NULL, bytes, protection, MAP_SHARED, descriptor, 0);
    if (memory == MAP_FAILED) {
        return status_fail(UNCOPY_ERROR_MEMORY, "mapping %zu bytes of shared memory: %s", bytes,
                           strerror(errno));
    }
    /* Without it each page costs a fault when it is first read. Advice: errors do not matter. */
    (void)madvise(memory, populated_bytes, is_writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
    *out_memory = memory;
    return UNCOPY_OK;
}

/* A peer's descriptor is what it says: sealed against shrinking, and as long as expected. */
static uncopy_status_t check_memory(int descriptor, size_t bytes, int32_t peer)
{
    struct stat status;
    int seals = fcntl(descriptor, F_GET_SEALS);
    if (fstat(descriptor, &status) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
        status.st_size != (off_t)bytes) {
        return status_fail(UNCOPY_ERROR_SYSTEM,
                           "rank %d delivered a descriptor that is not %zu bytes of sealed memory",
                           peer, bytes);
    }
    return UNCOPY_OK;
}

/* ---------------------------------------------------------------- making */

static uncopy_status_t make_own(transport_shared_t *shared, transport_card_t *card)
{
    TRY(socket_random(&card->nonce, sizeof(card->nonce)));
    TRY(socket_random(&shared->probe_value, sizeof(shared->probe_value)));
    card->probe_address = (uint64_t)(uintptr_t)&shared->probe_value;
    card->probe_value = shared->probe_value;
    card->process = (int32_t)getpid();
    TRY(socket_listen(card->socket_name, shared->size, &shared->listener));
    size_t used = comm_segment_used_bytes(shared->chunk_bytes);
    TRY(make_memory("uncopy-comm", shared->segment_bytes, used, &shared->segment_descriptor));
    void *memory = NULL;
    TRY(map_memory(shared->segment_descriptor, shared->segment_bytes, used, true, &memory));
    comm_segment_t *segment = memory;
    shared->segments[shared->rank] = segment;
    segment->nonce = card->nonce;
    shared->own_process_descriptor = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (shared->own_process_descriptor < 0) {
        return status_fail(UNCOPY_ERROR_APART, "pidfd_open: %s", strerror(errno));
    }
    TRY(alive_start(&shared->guard, segment));
    shared->has_guard = true;
    return UNCOPY_OK;
}

uncopy_status_t transport_shared_make(const uncopy_allocator_t *allocator, int32_t rank,
                                      int32_t size, size_t chunk_bytes, transport_card_t *out_card,
                                      transport_shared_t **out_shared)
{
    transport_shared_t *shared = memory_allocate(allocator, sizeof(*shared), "shared memory");
    if (shared == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    shared->allocator = *allocator;
    shared->rank = rank;
    shared->size = size;
    shared->chunk_bytes = chunk_bytes;
    shared->segment_bytes = comm_segment_bytes(chunk_bytes, size);
    shared->listener = shared->segment_descriptor = shared->own_process_descriptor = -1;
    for (int32_t p = 0; p < UNCOPY_COMM_MAX_SIZE; p++) {
        shared->process_descriptors[p] = -1;
    }
    uncopy_status_t status = make_own(shared, out_card);
    if (status != UNCOPY_OK) {
        transport_shared_release(shared);
        return status;
    }
    *out_shared = shared;
    return UNCOPY_OK;
}

void transport_shared_set_cards(transport_shared_t *shared, const transport_card_t *cards)
{
    memcpy(shared->cards, cards, (size_t)shared->size * sizeof(*cards));
}

uncopy_status_t transport_shared_deliver(transport_shared_t *shared, int32_t peer)
{
    const transport_card_t *card = &shared->cards[peer];
    socket_message_t message = {
        .token = card->nonce,
        .rank = shared->rank,
        .subject = SUBJECT_SEGMENT,
        .num_descriptors = 2,
        .descriptors = {shared->segment_descriptor, shared->own_process_descriptor}};
    return socket_send(card->socket_name, &message);
}

/* ---------------------------------------------------------------- mapping */

static uncopy_status_t map_peer(transport_shared_t *shared, socket_message_t *message)
{
    int32_t peer = message->rank;
    if (message->num_descriptors != 2) {
        return status_fail(UNCOPY_ERROR_SYSTEM, "rank %d delivered %d descriptors", peer,
                           message->num_descriptors);
    }
    TRY(check_memory(message->descriptors[0], shared->segment_bytes, peer));
    void *memory = NULL;
    TRY(map_memory(message->descriptors[0], shared->segment_bytes,
                   comm_segment_used_bytes(shared->chunk_bytes), true, &memory));
    shared->segments[peer] = memory;
    if (shared->segments[peer]->nonce != shared->cards[peer].nonce) {
        return status_fail(UNCOPY_ERROR_APART, "the memory of rank %d is not the one announced",
                           peer);
    }
    shared->process_descriptors[peer] = message->descriptors[1];
    message->descriptors[1] = message->descriptors[0];
    message->num_descriptors = 1;
    return UNCOPY_OK;
}

uncopy_status_t transport_shared_map(transport_shared_t *shared, uint64_t expected)
{
    expected &= ~(1ULL << shared->rank);
    while (expected != 0) {
        socket_message_t message;
        uncopy_status_t status = socket_receive(shared->listener, shared->cards[shared->rank].nonce,
                                                RECEIVE_MS, &message);
        if (status != UNCOPY_OK) {
            return status_fail(UNCOPY_ERROR_APART, "rank %d got no memory of a peer: %s",
                               shared->rank, uncopy_last_message());
        }
        bool is_expected = message.subject == SUBJECT_SEGMENT && message.rank >= 0 &&
                           message.rank < shared->size &&
                           (expected >> (uint32_t)message.rank & 1U) != 0;
        if (is_expected) {
            expected &= ~(1ULL << message.rank);
            status = map_peer(shared, &message);
        }
        socket_close_descriptors(&message);
        TRY(status);
    }
    return UNCOPY_OK;
}

bool transport_shared_probe_reads(transport_shared_t *shared)
{
    for (int32_t p = 0; p < shared->size; p++) {
        uint64_t value = 0;
        const transport_card_t *card = &shared->cards[p];
        struct iovec here = {&value, sizeof(value)};
        struct iovec there = {(void *)(uintptr_t)card->probe_address, sizeof(value)};
        if (p != shared->rank &&
            (process_vm_readv(card->process, &here, 1, &there, 1, 0) != (ssize_t)sizeof(value) ||
             value != card->probe_value)) {
            return false;
        }
    }
    return true;
}

comm_segment_t *const *transport_shared_segments(const transport_shared_t *shared)
{
    return shared->segments;
}

/* ---------------------------------------------------------------- the table */

static bool is_dead(void *self, int32_t rank, bool is_thorough)
{
    transport_shared_t *shared = self;
    if (alive_is_dead(shared->segments[rank])) {
        return true;
    }
    struct pollfd ended = {shared->process_descriptors[rank], POLLIN, 0};
    return is_thorough && ended.fd >= 0 && poll(&ended, 1, 0) == 1;
}

static int32_t process(void *self, int32_t rank)
{
    transport_shared_t *shared = self;
    return shared->cards[rank].process;
}

static uncopy_status_t window_make(void *self, uint32_t window, transport_memory_t *memory)
{
    transport_shared_t *shared = self;
    size_t bytes = memory->bytes[shared->rank];
    TRY(make_memory("uncopy-window", bytes, bytes, &memory->descriptor));
    void *part = NULL;
    uncopy_status_t status = map_memory(memory->descriptor, bytes, bytes, true, &part);
    memory->parts[shared->rank] = part;
    for (int32_t i = 1; i < shared->size && status == UNCOPY_OK; i++) {
        int32_t peer = (shared->rank + i) % shared->size;
        socket_message_t message = {.token = shared->cards[peer].nonce,
                                    .rank = shared->rank,
                                    .subject = window,
                                    .num_descriptors = 1,
                                    .descriptors = {memory->descriptor}};
        status = socket_send(shared->cards[peer].socket_name, &message);
    }
    (void)close(memory->descriptor);
    memory->descriptor = -1;
    return status;
}

static uncopy_status_t map_part(transport_shared_t *shared, const socket_message_t *message,
                                transport_memory_t *memory)
{
    size_t bytes = memory->bytes[message->rank];
    TRY(check_memory(message->descriptors[0], bytes, message->rank));
    void *part = NULL;
    TRY(map_memory(message->descriptors[0], bytes, bytes, false, &part));
    memory->parts[message->rank] = part;
    (void)shared;
    return UNCOPY_OK;
}

/* Messages of windows that failed for some rank may still be there: they have other numbers. */
static uncopy_status_t window_map(void *self, uint32_t window, transport_memory_t *memory)
{
    transport_shared_t *shared = self;
    for (int32_t left = shared->size - 1; left > 0;) {
        socket_message_t message;
        TRY(socket_receive(shared->listener, shared->cards[shared->rank].nonce, RECEIVE_MS,
                           &message));
        uncopy_status_t status = UNCOPY_OK;
        if (message.subject == window && message.num_descriptors == 1 && message.rank >= 0 &&
            message.rank < shared->size && memory->parts[message.rank] == NULL) {
            status = map_part(shared, &message, memory);
            left--;
        }
        socket_close_descriptors(&message);
        TRY(status);
    }
    return UNCOPY_OK;
}

static void window_unmap(void *self, uint32_t window, int32_t rank, char *part, size_t bytes)
{
    (void)self;
    (void)window;
    (void)rank;
    (void)munmap(part, bytes);
}

static uncopy_status_t read_peer(void *self, int32_t rank, uint64_t address, void *destination,
                                 size_t bytes)
{
    transport_shared_t *shared = self;
    char *to = destination;
    while (bytes > 0) {
        size_t part = bytes < TUNING_READ_CALL ? bytes : TUNING_READ_CALL;
        struct iovec here = {to, part};
        struct iovec there = {(void *)(uintptr_t)address, part};
        ssize_t count = process_vm_readv(shared->cards[rank].process, &here, 1, &there, 1, 0);
        if (count <= 0) {
            int error = errno;
            if (count < 0 && error == ESRCH) {
                /* release: as in alive_is_dead, which may still be a moment behind */
                atomic_store_explicit(&shared->segments[rank]->dead, 1, memory_order_release);
            }
            return status_fail(error == ESRCH ? UNCOPY_ERROR_PEER : UNCOPY_ERROR_SYSTEM,
                               "reading %zu bytes of rank %d (process %d): %s", bytes, rank,
                               shared->cards[rank].process,
                               count == 0 ? "nothing there" : strerror(error));
        }
        to += count;
        address += (uint64_t)count;
        bytes -= (size_t)count;
    }
    return UNCOPY_OK;
}

static void close_if_open(int descriptor)
{
    if (descriptor >= 0) {
        (void)close(descriptor);
    }
}

/* In a forked child: its copies of mappings and descriptors; the guard is the parent's thread. */
static void release(void *self, bool is_child)
{
    transport_shared_t *shared = self;
    if (shared->has_guard && !is_child) {
        alive_stop(&shared->guard);
    }
    for (int32_t p = 0; p < shared->size; p++) {
        if (shared->segments[p] != NULL) {
            (void)munmap(shared->segments[p], shared->segment_bytes);
        }
        close_if_open(shared->process_descriptors[p]);
    }
    close_if_open(shared->listener);
    close_if_open(shared->segment_descriptor);
    close_if_open(shared->own_process_descriptor);
    uncopy_allocator_t allocator = shared->allocator;
    memory_release(&allocator, shared, sizeof(*shared));
}

void transport_shared_release(transport_shared_t *shared)
{
    release(shared, false);
}

static const transport_calls_t shared_calls = {
    .name = "shared",
    .is_dead = is_dead,
    .process = process,
    .window_make = window_make,
    .window_map = window_map,
    .window_unmap = window_unmap,
    .read = read_peer,
    .release = release,
};

transport_t transport_shared_transport(transport_shared_t *shared)
{
    /* Delivered: only the mappings are needed. */
    close_if_open(shared->segment_descriptor);
    close_if_open(shared->own_process_descriptor);
    shared->segment_descriptor = shared->own_process_descriptor = -1;
    return (transport_t){&shared_calls, shared};
}
