#include "fake_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "element.h"
#include "externs.h"

enum { POISON_NEW = 0xcb, POISON_RELEASED = 0xdd, POISON_IN_FLIGHT = 0x5a };

static void violate(fake_host_t *self, const char *words, uint32_t number)
{
    self->num_violations++;
    printf("    host: %s %u\n", words, number);
}

/* ---- blocks ---- */

static fake_block_t *find_block(fake_host_t *self, uint32_t base)
{
    for (size_t i = self->num_blocks; i-- > 0;) {
        if (self->blocks[i].base == base && !self->blocks[i].is_of_frame) {
            return &self->blocks[i];
        }
    }
    return NULL;
}

static uncopy_status_t make_block(fake_host_t *self, uncopy_frame_t *frame, uncopy_bound_t *bound)
{
    int64_t bytes = element_extent(bound);
    if (self->num_blocks == FAKE_HOST_ROOM) {
        return uncopy_host_fail("too many blocks for a test");
    }
    char *data = aligned_alloc(64, ((size_t)bytes + 64) / 64 * 64);
    if (data == NULL) {
        return uncopy_host_fail("no memory");
    }
    memset(data, POISON_NEW, (size_t)bytes);
    self->blocks[self->num_blocks++] =
        (fake_block_t){.base = bound->base,
                       .kind = bound->kind,
                       .data = data,
                       .bytes = bytes,
                       .is_of_frame = bound->kind == UNCOPY_BASE_ARENA,
                       .frame = frame};
    bound->data = data;
    return UNCOPY_OK;
}

static uncopy_status_t host_allocate(void *self, uncopy_frame_t *frame, void *call_data,
                                     uncopy_bound_t *block)
{
    (void)call_data;
    return make_block(self, frame, block);
}

static void host_release(void *self, uncopy_frame_t *frame, void *call_data, uint32_t base)
{
    fake_block_t *block = find_block(self, base);
    (void)frame;
    (void)call_data;
    if (block == NULL || block->is_released ||
        (block->kind != UNCOPY_BASE_SCRATCH && block->kind != UNCOPY_BASE_MADE)) {
        violate(self, "h2: release of base", base);
        return;
    }
    block->is_released = true;
    memset(block->data, POISON_RELEASED, (size_t)block->bytes);
}

/* ---- checks of operands ---- */

static bool ranges_meet(const uncopy_bound_t *a, const uncopy_bound_t *b)
{
    uintptr_t first_a = (uintptr_t)a->data;
    uintptr_t first_b = (uintptr_t)b->data;
    return first_a < first_b + (uintptr_t)element_extent(b) &&
           first_b < first_a + (uintptr_t)element_extent(a);
}

/* Whether an element of a starts where one of b does; the interval test alone refuses slices. */
static bool elements_meet(const uncopy_bound_t *a, const uncopy_bound_t *b)
{
    int64_t count_a = element_count(a);
    int64_t count_b = element_count(b);
    for (int64_t i = 0; ranges_meet(a, b) && i < count_a; i++) {
        for (int64_t j = 0; j < count_b; j++) {
            if (element_at(a, i) == element_at(b, j)) {
                return true;
            }
        }
    }
    return false;
}

static void check_operand(fake_host_t *self, const uncopy_bound_t *bound)
{
    bool is_ours = bound->kind == UNCOPY_BASE_SCRATCH || bound->kind == UNCOPY_BASE_MADE ||
                   bound->kind == UNCOPY_BASE_OUTPUT;
    const fake_block_t *block = is_ours ? find_block(self, bound->base) : NULL;
    if (is_ours && (block == NULL || block->is_released)) {
        violate(self, "h1: no block of base", bound->base);
    } else if (is_ours && element_count(bound) > 0 &&
               ((char *)bound->data < block->data ||
                (char *)bound->data + element_extent(bound) > block->data + block->bytes)) {
        violate(self, "h1: operand outside the block of base", bound->base);
    }
    for (size_t i = 0; i < self->num_works; i++) {
        if (bound->data != NULL && elements_meet(bound, &self->works[i]->destination)) {
            violate(self, "h4: operand over the destination of work", self->works[i]->work);
        }
    }
}

static void check_operands(fake_host_t *self, const uncopy_bound_t *bounds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        check_operand(self, &bounds[i]);
    }
}

/* ---- operations ---- */

/* Memory for the results of a call that returns them; aliases get their operand's. */
static uncopy_status_t give_results(fake_host_t *self, uncopy_frame_t *frame,
                                    const uncopy_call_t *call)
{
    for (size_t i = 0; i < call->num_results; i++) {
        uncopy_bound_t *result = &call->results[i];
        if (call->form == UNCOPY_CALL_OUT) {
            check_operand(self, result);
        } else if (externs_is_alias(call->target)) {
            result->data = call->reads[0].data;
        } else if (result->kind == UNCOPY_BASE_MADE) {
            uncopy_status_t status = make_block(self, frame, result);
            if (status != UNCOPY_OK) {
                return status;
            }
        } else {
            violate(self, "h1: result is an alias, and the operation makes it; base", result->base);
        }
    }
    return UNCOPY_OK;
}

static uncopy_status_t host_call(void *self, uncopy_frame_t *frame, void *call_data,
                                 const uncopy_call_t *call)
{
    fake_host_t *host = self;
    host->num_calls++;
    if (call->target == NULL || strncmp(call->target, "test.fail", 9) == 0) {
        return uncopy_host_fail(call->target == NULL ? "a call without a target"
                                                     : "test.fail has failed");
    }
    check_operands(host, call->reads, call->num_reads);
    check_operands(host, call->writes, call->num_writes);
    uncopy_status_t status = give_results(host, frame, call);
    if (status != UNCOPY_OK) {
        return status;
    }
    externs_call_t extern_call = {.target = call->target,
                                  .reads = call->reads,
                                  .num_reads = call->num_reads,
                                  .writes = call->writes,
                                  .num_writes = call->num_writes,
                                  .results = call->results,
                                  .num_results = call->num_results,
                                  .kept = call_data};
    return externs_run(&extern_call) ? UNCOPY_OK : uncopy_host_fail("no such operation");
}

static uncopy_status_t host_copy(void *self, uncopy_frame_t *frame, void *call_data,
                                 const uncopy_bound_t *destination, const uncopy_bound_t *source)
{
    element_operand_t read = {.view = source};
    static const double none[OP_MAX_ATTRIBUTES] = {0};
    (void)frame;
    (void)call_data;
    check_operand(self, source);
    check_operand(self, destination);
    opcode_t opcode = source->dtype == destination->dtype ? OPCODE_COPY : OPCODE_CONVERT;
    (void)element_run(opcode, &read, 1, none, destination);
    return UNCOPY_OK;
}

static uncopy_status_t host_fill(void *self, uncopy_frame_t *frame, void *call_data,
                                 const uncopy_bound_t *destination, const uncopy_operand_t *number)
{
    element_operand_t read = {.number = *number};
    static const double none[OP_MAX_ATTRIBUTES] = {0};
    (void)frame;
    (void)call_data;
    check_operand(self, destination);
    (void)element_run(OPCODE_FILL, &read, 1, none, destination);
    return UNCOPY_OK;
}

/* ---- collectives ---- */

static void keep_bound(uncopy_bound_t *to, const uncopy_bound_t *from, int64_t *numbers)
{
    *to = *from;
    memcpy(numbers, from->sizes, (size_t)from->rank * sizeof(*numbers));
    memcpy(numbers + UNCOPY_MAX_RANK, from->strides, (size_t)from->rank * sizeof(*numbers));
    to->sizes = numbers;
    to->strides = numbers + UNCOPY_MAX_RANK;
}

static void poison(const uncopy_bound_t *bound)
{
    int64_t count = element_count(bound);
    for (int64_t i = 0; i < count; i++) {
        memset(element_at(bound, i), POISON_IN_FLIGHT, uncopy_dtype_size(bound->dtype));
    }
}

static uncopy_status_t host_collective(void *self, uncopy_frame_t *frame, void *call_data,
                                       const uncopy_collective_t *collective)
{
    fake_host_t *host = self;
    (void)frame;
    (void)call_data;
    host->num_collectives++;
    check_operand(host, collective->source);
    check_operand(host, collective->destination);
    fake_work_t *work = calloc(1, sizeof(*work));
    if (work == NULL || host->num_works == FAKE_HOST_ROOM) {
        free(work);
        return uncopy_host_fail("too many works for a test");
    }
    work->work = collective->work;
    work->collective = *collective;
    keep_bound(&work->source, collective->source, work->numbers);
    keep_bound(&work->destination, collective->destination, work->numbers + 2 * UNCOPY_MAX_RANK);
    work->snapshot = element_snapshot(&work->source);
    host->works[host->num_works++] = work;
    poison(&work->destination);
    return UNCOPY_OK;
}

static void end_work(fake_host_t *host, size_t index)
{
    free(host->works[index]->snapshot);
    free(host->works[index]);
    host->works[index] = host->works[--host->num_works];
}

static void check_source(fake_host_t *host, const fake_work_t *work, opcode_t opcode)
{
    bool is_taken = opcode == OPCODE_ALL_REDUCE || opcode == OPCODE_BROADCAST ||
                    elements_meet(&work->source, &work->destination);
    char *now = element_snapshot(&work->source);
    size_t bytes = (size_t)element_count(&work->source) * uncopy_dtype_size(work->source.dtype);
    if (!is_taken && memcmp(now, work->snapshot, bytes) != 0) {
        violate(host, "h3: the source has changed in flight, of work", work->work);
    }
    free(now);
}

static uncopy_status_t host_fence(void *self, uncopy_frame_t *frame, void *call_data,
                                  uint32_t number)
{
    fake_host_t *host = self;
    (void)frame;
    (void)call_data;
    for (size_t i = 0; i < host->num_works; i++) {
        const fake_work_t *work = host->works[i];
        opcode_t opcode = OPCODE_EXTERN;
        if (work->work == number) {
            const char *name = work->collective.operation;
            (void)op_find(name, strlen(name), &opcode);
            check_source(host, work, opcode);
            element_collective(opcode, work->collective.group_size, work->collective.group_rank,
                               work->collective.attribute, work->snapshot,
                               element_count(&work->source), &work->destination);
            end_work(host, i);
            return UNCOPY_OK;
        }
    }
    violate(host, "h3: fence of work", number);
    return UNCOPY_OK;
}

/* ---- ends ---- */

static void host_frame_release(void *self, uncopy_frame_t *frame)
{
    fake_host_t *host = self;
    for (size_t i = host->num_blocks; i-- > 0;) {
        if (host->blocks[i].is_of_frame && host->blocks[i].frame == frame) {
            free(host->blocks[i].data);
            host->blocks[i] = host->blocks[--host->num_blocks];
        }
    }
}

void fake_host_init(fake_host_t *self, uncopy_host_t *out_host)
{
    *self = (fake_host_t){0};
    *out_host = (uncopy_host_t){.self = self,
                                .allocate = host_allocate,
                                .release = host_release,
                                .call = host_call,
                                .copy = host_copy,
                                .fill = host_fill,
                                .collective = host_collective,
                                .fence = host_fence,
                                .frame_release = host_frame_release};
}

static bool is_output(const fake_block_t *block, void *const *outputs, size_t num_outputs)
{
    for (size_t i = 0; i < num_outputs; i++) {
        const char *data = outputs[i];
        if (data >= block->data && data <= block->data + block->bytes) {
            return true;
        }
    }
    return block->kind == UNCOPY_BASE_OUTPUT;
}

void fake_host_finish(fake_host_t *self, void *const *outputs, size_t num_outputs, bool has_failed)
{
    for (size_t i = self->num_blocks; i-- > 0;) {
        fake_block_t *block = &self->blocks[i];
        if (block->is_of_frame) {
            continue;
        }
        if (!has_failed && !block->is_released && !is_output(block, outputs, num_outputs)) {
            violate(self, "h2: nobody has released base", block->base);
        }
        free(block->data);
        *block = self->blocks[--self->num_blocks];
    }
    while (self->num_works > 0) {
        if (!has_failed) {
            violate(self, "h3: nobody has fenced work", self->works[0]->work);
        }
        end_work(self, 0);
    }
}

void fake_host_release(fake_host_t *self)
{
    for (size_t i = 0; i < self->num_blocks; i++) {
        free(self->blocks[i].data);
    }
    self->num_blocks = 0;
}
