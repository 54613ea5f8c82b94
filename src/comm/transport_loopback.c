/* Ranks in one process: see transport_loopback.h. */
#include "comm/transport_loopback.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

/* A window's parts on their way from their makers to the others. */
typedef struct delivery {
    struct delivery *next;
    uint32_t window;
    char *parts[UNCOPY_COMM_MAX_SIZE];
    size_t bytes[UNCOPY_COMM_MAX_SIZE];
    int32_t num_users[UNCOPY_COMM_MAX_SIZE]; /* ranks that still have the part */
} delivery_t;

typedef struct member {
    loopback_t *loopback;
    int32_t rank;
} member_t;

struct loopback {
    uncopy_allocator_t allocator;
    loopback_options_t options;
    size_t segment_bytes;
    comm_segment_t *segments[UNCOPY_COMM_MAX_SIZE];
    char *blocks[UNCOPY_COMM_MAX_SIZE]; /* in which the page-aligned segments lie */
    member_t members[UNCOPY_COMM_MAX_SIZE];
    atomic_bool dead[UNCOPY_COMM_MAX_SIZE];
    pthread_mutex_t lock;
    delivery_t *deliveries; /* under lock */
};

static char *to_page(char *address)
{
    size_t past = (uintptr_t)address % COMM_PAGE;
    return past == 0 ? address : address + COMM_PAGE - past;
}

uncopy_status_t loopback_create(const uncopy_allocator_t *allocator,
                                const loopback_options_t *options, loopback_t **out_loopback)
{
    loopback_t *loopback = memory_allocate(allocator, sizeof(*loopback), "a loopback");
    if (loopback == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    loopback->allocator = *allocator;
    loopback->options = *options;
    loopback->segment_bytes = comm_segment_bytes(options->chunk_bytes, options->size);
    (void)pthread_mutex_init(&loopback->lock, NULL);
    for (int32_t p = 0; p < options->size; p++) {
        loopback->members[p] = (member_t){loopback, p};
        loopback->blocks[p] =
            memory_allocate(allocator, loopback->segment_bytes + COMM_PAGE, "a segment");
        if (loopback->blocks[p] == NULL) {
            loopback_release(loopback);
            return UNCOPY_ERROR_MEMORY;
        }
        loopback->segments[p] = (comm_segment_t *)(void *)to_page(loopback->blocks[p]);
    }
    *out_loopback = loopback;
    return UNCOPY_OK;
}

void loopback_release(loopback_t *loopback)
{
    if (loopback == NULL) {
        return;
    }
    uncopy_allocator_t allocator = loopback->allocator;
    for (int32_t p = 0; p < loopback->options.size; p++) {
        memory_release(&allocator, loopback->blocks[p], loopback->segment_bytes + COMM_PAGE);
    }
    (void)pthread_mutex_destroy(&loopback->lock);
    memory_release(&allocator, loopback, sizeof(*loopback));
}

void loopback_kill(loopback_t *loopback, int32_t rank)
{
    atomic_store(&loopback->dead[rank], true);
}

/* ---------------------------------------------------------------- the table */

static bool is_dead(void *self, int32_t rank, bool is_thorough)
{
    member_t *member = self;
    (void)is_thorough;
    return atomic_load(&member->loopback->dead[rank]);
}

static int32_t process(void *self, int32_t rank)
{
    (void)self;
    return rank;
}

/* Under lock. NULL: no memory. */
static delivery_t *find_delivery(loopback_t *loopback, uint32_t window)
{
    for (delivery_t *d = loopback->deliveries; d != NULL; d = d->next) {
        if (d->window == window) {
            return d;
        }
    }
    delivery_t *d = memory_allocate(&loopback->allocator, sizeof(*d), "a window");
    if (d != NULL) {
        d->window = window;
        d->next = loopback->deliveries;
        loopback->deliveries = d;
    }
    return d;
}

static uncopy_status_t window_make(void *self, uint32_t window, transport_memory_t *memory)
{
    member_t *member = self;
    loopback_t *loopback = member->loopback;
    int32_t rank = member->rank;
    char *part = memory_allocate(&loopback->allocator, memory->bytes[rank], "a window");
    if (part == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    (void)pthread_mutex_lock(&loopback->lock);
    delivery_t *delivery = find_delivery(loopback, window);
    if (delivery != NULL) {
        delivery->parts[rank] = part;
        delivery->bytes[rank] = memory->bytes[rank];
        delivery->num_users[rank] = 1;
        memory->parts[rank] = part;
    }
    (void)pthread_mutex_unlock(&loopback->lock);
    if (delivery == NULL) {
        memory_release(&loopback->allocator, part, memory->bytes[rank]);
        return UNCOPY_ERROR_MEMORY;
    }
    return UNCOPY_OK;
}

static uncopy_status_t window_map(void *self, uint32_t window, transport_memory_t *memory)
{
    member_t *member = self;
    loopback_t *loopback = member->loopback;
    (void)pthread_mutex_lock(&loopback->lock);
    delivery_t *delivery = find_delivery(loopback, window);
    for (int32_t p = 0; p < loopback->options.size && delivery != NULL; p++) {
        if (p != member->rank) {
            memory->parts[p] = delivery->parts[p];
            delivery->num_users[p]++;
        }
    }
    (void)pthread_mutex_unlock(&loopback->lock);
    return delivery != NULL ? UNCOPY_OK : UNCOPY_ERROR_MEMORY;
}

/* Under lock: the delivery ends with the last part. */
static void drop_if_empty(loopback_t *loopback, delivery_t *delivery)
{
    for (int32_t p = 0; p < loopback->options.size; p++) {
        if (delivery->num_users[p] > 0) {
            return;
        }
    }
    delivery_t **at = &loopback->deliveries;
    while (*at != delivery) {
        at = &(*at)->next;
    }
    *at = delivery->next;
    memory_release(&loopback->allocator, delivery, sizeof(*delivery));
}

static void window_unmap(void *self, uint32_t window, int32_t rank, char *part, size_t bytes)
{
    member_t *member = self;
    loopback_t *loopback = member->loopback;
    (void)pthread_mutex_lock(&loopback->lock);
    delivery_t *delivery = find_delivery(loopback, window);
    if (delivery != NULL && --delivery->num_users[rank] == 0) {
        memory_release(&loopback->allocator, part, bytes);
        drop_if_empty(loopback, delivery);
    }
    (void)pthread_mutex_unlock(&loopback->lock);
}

static uncopy_status_t read_peer(void *self, int32_t rank, uint64_t address, void *destination,
                                 size_t bytes)
{
    (void)self;
    (void)rank;
    memcpy(destination, (const void *)(uintptr_t)address, bytes);
    return UNCOPY_OK;
}

static void pause_here(void *self, transport_point_t point)
{
    member_t *member = self;
    const loopback_fault_t *fault = &member->loopback->options.fault;
    if (fault->strike != NULL) {
        fault->strike(fault->self, member->rank, point);
    }
}

static void release(void *self, bool is_child)
{
    (void)self;
    (void)is_child;
}

static const transport_calls_t loopback_calls = {
    .name = "loopback",
    .is_dead = is_dead,
    .process = process,
    .window_make = window_make,
    .window_map = window_map,
    .window_unmap = window_unmap,
    .read = read_peer,
    .pause = pause_here,
    .release = release,
};

uncopy_status_t loopback_join(loopback_t *loopback, int32_t rank, comm_t **out_comm)
{
    const loopback_options_t *options = &loopback->options;
    comm_setup_t setup = {.allocator = loopback->allocator,
                          .name = "loopback",
                          .rank = rank,
                          .size = options->size,
                          .chunk_bytes = options->chunk_bytes,
                          .streaming_bytes = options->streaming_bytes,
                          .is_crowded = options->is_crowded,
                          .can_read = options->can_read,
                          .timeout_ns = options->timeout_ns,
                          .segments = loopback->segments,
                          .transport = {&loopback_calls, &loopback->members[rank]}};
    return comm_start(&setup, out_comm);
}
