/* Walks a plan's instructions. No hash, no lock, no allocation but what the plan says, all of it
 * before the first instruction. Cost over the kernels: a few nanoseconds an instruction. */
#include <string.h>

#include "base/status.h"
#include "run/run.h"

typedef struct walk {
    uncopy_frame_t *frame;
    const plan_t *plan;
    const uncopy_host_t *host; /* never NULL: an empty table for none */
    void *call_data;
    int num_threads;
} walk_t;

static const uncopy_host_t no_host = {0};

static uncopy_bound_t *bind(walk_t *walk, uint32_t operand)
{
    uncopy_bound_t *bound = &walk->frame->bounds[operand];
    char *base = walk->frame->addresses[bound->base];
    bound->data = base == NULL ? NULL : base + bound->offset_bytes;
    return bound;
}

static uncopy_bound_t *bind_range(walk_t *walk, uint32_t first, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        (void)bind(walk, first + (uint32_t)i);
    }
    return &walk->frame->bounds[first];
}

/* ---- memory of the call ---- */

static uncopy_status_t allocate_block(walk_t *walk, uint32_t base, uncopy_bound_t *block)
{
    const plan_base_t *row = &walk->plan->bases[base];
    if (walk->host->allocate != NULL) {
        block->data = NULL;
        TRY(walk->host->allocate(walk->host->self, walk->frame, walk->call_data, block));
        walk->frame->addresses[base] = block->data;
        return UNCOPY_OK;
    }
    walk->frame->addresses[base] =
        memory_allocate(walk->frame->binding->allocator, (size_t)row->size_bytes, row->name);
    return walk->frame->addresses[base] == NULL ? UNCOPY_ERROR_MEMORY : UNCOPY_OK;
}

static uncopy_status_t allocate_arena(walk_t *walk)
{
    uint32_t base = walk->plan->arena_base;
    if (base == UNCOPY_NONE || walk->frame->addresses[base] != NULL) {
        return UNCOPY_OK;
    }
    int64_t size = walk->plan->bases[base].size_bytes;
    int64_t stride = 1;
    uncopy_bound_t block = {.id = UNCOPY_NONE,
                            .base = base,
                            .kind = UNCOPY_BASE_ARENA,
                            .is_whole = 1,
                            .dtype = UNCOPY_DTYPE_U8,
                            .rank = 1,
                            .sizes = &size,
                            .strides = &stride};
    TRY(allocate_block(walk, base, &block));
    walk->frame->owns_arena = walk->host->allocate == NULL;
    walk->frame->arena_grown_bytes += size;
    return UNCOPY_OK;
}

static bool is_per_call(uncopy_base_kind_t kind)
{
    return kind == UNCOPY_BASE_OUTPUT || kind == UNCOPY_BASE_SCRATCH;
}

/* A frame still holds the addresses of its last run: those blocks are others' by now. */
static void forget_blocks(walk_t *walk)
{
    for (uint32_t b = (uint32_t)(2 * walk->plan->num_arguments); b < walk->plan->num_bases; b++) {
        uncopy_base_kind_t kind = walk->plan->bases[b].kind;
        if (is_per_call(kind) || kind == UNCOPY_BASE_MADE) {
            walk->frame->addresses[b] = NULL;
        }
    }
}

static uncopy_status_t allocate_all(walk_t *walk)
{
    forget_blocks(walk);
    TRY(allocate_arena(walk));
    for (uint32_t b = (uint32_t)(2 * walk->plan->num_arguments); b < walk->plan->num_bases; b++) {
        const plan_base_t *base = &walk->plan->bases[b];
        if (is_per_call(base->kind)) {
            TRY(allocate_block(walk, b, &walk->frame->bounds[base->operand]));
        }
    }
    return UNCOPY_OK;
}

static void release_base(walk_t *walk, uint32_t base)
{
    const plan_base_t *row = &walk->plan->bases[base];
    if (walk->host->release != NULL && row->kind != UNCOPY_BASE_OUTPUT) {
        walk->host->release(walk->host->self, walk->frame, walk->call_data, base);
    }
    if (walk->host->allocate == NULL && is_per_call(row->kind)) {
        memory_release(walk->frame->binding->allocator, walk->frame->addresses[base],
                       (size_t)row->size_bytes);
    }
    walk->frame->addresses[base] = NULL;
}

/* After a failure: what the allocator gave for this call goes back. Outputs that the host gave are
 * the host's to drop when the run ends. */
static void release_all(walk_t *walk)
{
    for (uint32_t b = (uint32_t)(2 * walk->plan->num_arguments); b < walk->plan->num_bases; b++) {
        uncopy_base_kind_t kind = walk->plan->bases[b].kind;
        if ((is_per_call(kind) || kind == UNCOPY_BASE_MADE) && walk->frame->addresses[b] != NULL) {
            release_base(walk, b);
        }
    }
}

/* ---- instructions ---- */

/* Data of a cut call, for the threads that do its chunks. */
typedef struct shared_call {
    const kernel_call_t *call;
    const run_kernel_t *kernel;
    char *const *data;
} shared_call_t;

static void run_chunks(void *data, uint32_t first, uint32_t end)
{
    const shared_call_t *shared = data;
    cut_run(shared->call, shared->kernel->function, &shared->kernel->cut, shared->data, first, end);
}

static void run_kernel(walk_t *walk, const plan_instruction_t *at, const run_kernel_t *kernel)
{
    char *data[KERNEL_MAX_OPERANDS] = {NULL};
    for (int32_t i = 0; i < at->call->num_operands; i++) {
        if (at->kernel_operands[i] != UNCOPY_NONE) {
            const plan_operand_t *operand = &walk->plan->operands[at->kernel_operands[i]];
            data[i] = walk->frame->addresses[operand->base] + operand->offset_bytes;
        }
    }
    if (kernel->cut.num_chunks > 1 && walk->num_threads > 1 && kernel->cost_ns >= POOL_FORK_NS) {
        shared_call_t shared = {at->call, kernel, data};
        pool_run(walk->frame->binding->pool, walk->num_threads, kernel->cut.num_chunks,
                 kernel->cost_ns, run_chunks, &shared);
    } else {
        kernel->function(at->call, data);
    }
}

/* Data of a tile program, for the threads that do its units. */
typedef struct shared_tile {
    const run_kernel_t *kernel;
    char *const *data;
    char *workspace;
} shared_tile_t;

static void run_units(void *data, uint32_t first, uint32_t end)
{
    const shared_tile_t *shared = data;
    const tile_runner_t *tile = &shared->kernel->tile;
    int64_t chunks = shared->kernel->cut.num_chunks;
    tile->run(tile->kernel, shared->data, shared->workspace, tile->num_units * first / chunks,
              tile->num_units * end / chunks);
}

static uncopy_status_t run_tile(walk_t *walk, const plan_instruction_t *at,
                                const run_kernel_t *kernel)
{
    const tile_runner_t *runner = &kernel->tile;
    char *data[TILE_MAX_SLOTS];
    for (size_t i = 0; i < at->tile->num_slots; i++) {
        const plan_operand_t *operand = &walk->plan->operands[at->first_operand + i];
        data[i] = walk->frame->addresses[operand->base] + operand->offset_bytes;
    }
    tile_failure_t failure;
    if (at->tile->may_raise && !runner->check(runner->kernel, data, &failure)) {
        return status_fail(UNCOPY_ERROR_INDEX, "index %lld is out of range of %lld (%s, %s:%d)",
                           (long long)failure.value, (long long)failure.size,
                           op_row(at->opcode)->name, at->file == NULL ? "?" : at->file, at->line);
    }
    if (kernel->cut.num_chunks > 1 && walk->num_threads > 1 && kernel->cost_ns >= POOL_FORK_NS) {
        shared_tile_t shared = {kernel, data, walk->frame->workspace};
        pool_run(walk->frame->binding->pool, walk->num_threads, kernel->cut.num_chunks,
                 kernel->cost_ns, run_units, &shared);
    } else {
        runner->run(runner->kernel, data, walk->frame->workspace, 0, runner->num_units);
    }
    if (runner->workspace_bytes > 0) {
        runner->join(runner->kernel, data, walk->frame->workspace);
    }
    return UNCOPY_OK;
}

static uncopy_status_t run_matmul(walk_t *walk, const plan_instruction_t *at,
                                  const run_kernel_t *kernel)
{
    if (walk->host->matmul != NULL && (kernel->prefers_host || kernel->function == NULL)) {
        int is_done = 0;
        uncopy_bound_t *bounds = bind_range(walk, at->first_operand, 3);
        TRY(walk->host->matmul(walk->host->self, walk->frame, walk->call_data, &bounds[0],
                               &bounds[1], &bounds[2], &is_done));
        if (is_done) {
            return UNCOPY_OK;
        }
    }
    run_kernel(walk, at, kernel);
    return UNCOPY_OK;
}

static uncopy_status_t run_call(walk_t *walk, const plan_instruction_t *at)
{
    size_t num_operands = (size_t)at->num_results + at->num_writes + at->num_reads;
    uncopy_bound_t *bounds = bind_range(walk, at->first_operand, num_operands);
    uncopy_call_t call = {.host_id = at->host_id,
                          .target = at->target,
                          .form = at->form,
                          .reads = bounds + at->num_results + at->num_writes,
                          .num_reads = at->num_reads,
                          .writes = bounds + at->num_results,
                          .num_writes = at->num_writes,
                          .results = bounds,
                          .num_results = at->num_results,
                          .file = at->file,
                          .line = at->line,
                          .numbers = walk->plan->numbers,
                          .num_numbers = walk->plan->num_numbers};
    TRY(walk->host->call(walk->host->self, walk->frame, walk->call_data, &call));
    for (size_t i = 0; i < at->num_results; i++) {
        if (bounds[i].kind == UNCOPY_BASE_MADE && walk->frame->addresses[bounds[i].base] == NULL &&
            bounds[i].data != NULL) {
            walk->frame->addresses[bounds[i].base] =
                (char *)bounds[i].data - bounds[i].offset_bytes;
        }
    }
    return UNCOPY_OK;
}

static uncopy_status_t run_collective(walk_t *walk, const plan_instruction_t *at)
{
    const plan_group_t *group = &walk->plan->groups[at->group];
    uncopy_bound_t *bounds = bind_range(walk, at->first_operand, 2);
    uncopy_collective_t collective = {.operation = op_row(at->opcode)->name,
                                      .group_name = group->name,
                                      .group_size = group->size,
                                      .group_rank = group->rank,
                                      .attribute = at->attribute,
                                      .host_id = at->host_id,
                                      .source = &bounds[1],
                                      .destination = &bounds[0],
                                      .work = at->work,
                                      .file = at->file,
                                      .line = at->line};
    const run_binding_t *binding = walk->frame->binding;
    bool *is_served = &walk->frame->is_served[at->work];
    *is_served = false;
    if (binding->collective != NULL && walk->host->find_comm != NULL) {
        TRY(binding->collective(walk->host, walk->call_data, at->opcode, &collective,
                                &walk->frame->served, is_served));
    }
    if (*is_served) {
        return UNCOPY_OK;
    }
    if (walk->host->collective == NULL) {
        return status_fail(UNCOPY_ERROR_GROUP, "no communicator serves the group \"%s\"",
                           group->name);
    }
    return walk->host->collective(walk->host->self, walk->frame, walk->call_data, &collective);
}

static uncopy_status_t run_fence(walk_t *walk, const plan_instruction_t *at)
{
    if (walk->frame->is_served[at->work]) {
        return UNCOPY_OK; /* it was complete when it returned */
    }
    return walk->host->fence(walk->host->self, walk->frame, walk->call_data, at->work);
}

static uncopy_status_t run_instruction(walk_t *walk, const plan_instruction_t *at,
                                       const run_kernel_t *kernel)
{
    const uncopy_host_t *host = walk->host;
    switch (at->kind) {
    case PLAN_KERNEL:
    case PLAN_MOVE_RANK:
        run_kernel(walk, at, kernel);
        return UNCOPY_OK;
    case PLAN_TILE:
        return run_tile(walk, at, kernel);
    case PLAN_MATMUL:
        return run_matmul(walk, at, kernel);
    case PLAN_HOST_CALL:
        return run_call(walk, at);
    case PLAN_HOST_COPY: {
        uncopy_bound_t *bounds = bind_range(walk, at->first_operand, 2);
        return host->copy(host->self, walk->frame, walk->call_data, &bounds[0], &bounds[1]);
    }
    case PLAN_HOST_FILL: {
        uncopy_bound_t *bounds = bind_range(walk, at->first_operand, 1);
        return host->fill(host->self, walk->frame, walk->call_data, &bounds[0], &at->number);
    }
    case PLAN_COLLECTIVE:
        return run_collective(walk, at);
    case PLAN_FENCE:
        return run_fence(walk, at);
    }
    return status_fail(UNCOPY_ERROR_PROGRAM, "a plan holds an instruction of no kind");
}

static const char *missing_entry(const walk_t *walk, const plan_instruction_t *at,
                                 const run_kernel_t *kernel)
{
    const uncopy_host_t *host = walk->host;
    switch (at->kind) {
    case PLAN_HOST_CALL:
        return host->call == NULL ? "call" : NULL;
    case PLAN_HOST_COPY:
        return host->copy == NULL ? "copy" : NULL;
    case PLAN_HOST_FILL:
        return host->fill == NULL ? "fill" : NULL;
    case PLAN_COLLECTIVE:
        return host->collective == NULL && host->find_comm == NULL ? "collective" : NULL;
    case PLAN_FENCE:
        return host->fence == NULL && host->find_comm == NULL ? "fence" : NULL;
    case PLAN_MATMUL:
        return kernel->function == NULL && host->matmul == NULL ? "matmul" : NULL;
    case PLAN_KERNEL:
    case PLAN_TILE:
    case PLAN_MOVE_RANK:
        break;
    }
    return NULL;
}

static uncopy_status_t check_entries(const walk_t *walk)
{
    const run_kernel_t *kernels = walk->frame->binding->kernels;
    for (size_t i = 0; i < walk->plan->num_instructions; i++) {
        const plan_instruction_t *at = &walk->plan->instructions[i];
        const char *entry = missing_entry(walk, at, &kernels[i]);
        if (entry != NULL) {
            return status_fail(UNCOPY_ERROR_HOST,
                               "the host has no entry \"%s\", which %s (%s:%d) needs", entry,
                               at->target != NULL ? at->target : op_row(at->opcode)->name,
                               at->file == NULL ? "?" : at->file, at->line);
        }
    }
    return UNCOPY_OK;
}

static uncopy_status_t walk_instructions(walk_t *walk)
{
    const run_kernel_t *kernels = walk->frame->binding->kernels;
    for (size_t i = 0; i < walk->plan->num_instructions; i++) {
        const plan_instruction_t *at = &walk->plan->instructions[i];
        TRY(run_instruction(walk, at, &kernels[i]));
        for (size_t r = 0; r < at->num_releases; r++) {
            release_base(walk, at->releases[r]);
        }
    }
    return UNCOPY_OK;
}

/* storage_bytes tells whose an output's block is: its size where our allocator gave it, below zero
 * elsewhere. */
static void fill_outputs(const walk_t *walk, uncopy_argument_t *outputs)
{
    for (size_t i = 0; i < walk->plan->num_outputs; i++) {
        const uncopy_bound_t *bound = &walk->plan->outputs[i].bound;
        char *base = walk->frame->addresses[bound->base];
        bool is_ours = bound->kind == UNCOPY_BASE_OUTPUT && walk->host->allocate == NULL;
        outputs[i] = (uncopy_argument_t){
            .data = base == NULL ? NULL : base + bound->offset_bytes,
            .storage = base,
            .storage_bytes = is_ours ? walk->plan->bases[bound->base].size_bytes : -1,
            .dtype = bound->dtype,
            .rank = bound->rank,
            .sizes = bound->sizes,
            .strides = bound->strides};
    }
}

/* Threads of this run. Workers are woken now if there will be work for them: by then they look. */
static void set_threads(walk_t *walk)
{
    const run_binding_t *binding = walk->frame->binding;
    if (binding->pool == NULL || binding->shared_ns < POOL_FORK_NS) {
        walk->num_threads = 1;
        return;
    }
    walk->num_threads = binding->num_threads;
    if (walk->num_threads == 0) {
        walk->num_threads = walk->host->threads != NULL ? walk->host->threads(walk->host->self)
                                                        : pool_num_processors(binding->pool);
    }
    if (binding->shared_ns >= POOL_WAKE_NS) {
        pool_wake(binding->pool, walk->num_threads);
    }
}

/* Without a place for the outputs a block that is made for one would be lost. */
static uncopy_status_t check_keeps_nothing(const walk_t *walk)
{
    for (size_t b = 0; b < walk->plan->num_bases; b++) {
        if (walk->plan->bases[b].kind == UNCOPY_BASE_OUTPUT) {
            return status_fail(UNCOPY_ERROR_ARGUMENT, "%s: no place for the outputs",
                               walk->plan->name);
        }
    }
    return UNCOPY_OK;
}

uncopy_status_t run_execute(uncopy_frame_t *frame, const uncopy_host_t *host, void *call_data,
                            uncopy_argument_t *outputs)
{
    walk_t walk = {.frame = frame,
                   .plan = frame->binding->plan,
                   .host = host == NULL ? &no_host : host,
                   .call_data = call_data};
    TRY(check_entries(&walk));
    if (outputs == NULL && walk.host->allocate == NULL) {
        TRY(check_keeps_nothing(&walk));
    }
    set_threads(&walk);
    uncopy_status_t status = allocate_all(&walk);
    if (status == UNCOPY_OK) {
        status = walk_instructions(&walk);
    }
    if (status != UNCOPY_OK) {
        release_all(&walk);
    } else if (outputs != NULL) {
        fill_outputs(&walk, outputs);
    }
    if (walk.host->end != NULL) {
        walk.host->end(walk.host->self, frame, call_data, status != UNCOPY_OK);
    }
    return status;
}
