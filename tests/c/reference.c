#include "reference.h"

#include <stdlib.h>
#include <string.h>

#include "externs.h"

enum { MAX_OPERANDS = 16 };

bool reference_init(reference_t *reference, const ir_program_t *program, const ir_extent_t *extents,
                    const reference_place_t *places, char *image)
{
    *reference = (reference_t){.program = program, .extents = extents, .places = places};
    reference->image = image;
    reference->storages = calloc(program->num_storages + 1, sizeof(*reference->storages));
    for (size_t s = 0; reference->storages != NULL && s < program->num_storages; s++) {
        const ir_storage_t *storage = &program->storages[s];
        int64_t first = 0;
        int64_t end = 0;
        span_hull(&extents[storage->first_view].span, &first, &end);
        if (storage->kind == IR_STORAGE_ARGUMENT) {
            reference->storages[s] = image + places[s].data;
            continue;
        }
        reference->storages[s] = calloc((size_t)end + 64, 1);
        if (reference->storages[s] != NULL && storage->kind == IR_STORAGE_CONSTANT) {
            memcpy(reference->storages[s], storage->bytes, storage->size_bytes);
        }
    }
    return reference->storages != NULL;
}

void reference_release(reference_t *reference)
{
    for (size_t s = reference->program->num_arguments; s < reference->program->num_storages; s++) {
        free(reference->storages[s]);
    }
    free(reference->storages);
}

uncopy_bound_t reference_bound(const reference_t *reference, uncopy_view_t view)
{
    const ir_view_t *known = &reference->program->views[view];
    const ir_extent_t *extent = &reference->extents[view];
    char *base = known->is_from_storage
                     ? reference->image + reference->places[known->storage].storage
                     : reference->storages[known->storage];
    return (uncopy_bound_t){.data = base + extent->span.start,
                            .dtype = known->dtype,
                            .rank = known->rank,
                            .sizes = extent->span.sizes,
                            .strides = extent->element_strides};
}

static size_t bind_views(const reference_t *reference, const uncopy_view_t *views, size_t count,
                         uncopy_bound_t *bounds)
{
    for (size_t i = 0; i < count; i++) {
        bounds[i] = reference_bound(reference, views[i]);
    }
    return count;
}

static bool run_extern(const reference_t *reference, const ir_operation_t *operation)
{
    uncopy_bound_t reads[MAX_OPERANDS];
    uncopy_bound_t writes[MAX_OPERANDS];
    uncopy_bound_t results[MAX_OPERANDS];
    uncopy_bound_t kept = {0};
    externs_call_t call = {.target = operation->target == NULL ? "" : operation->target,
                           .reads = reads,
                           .writes = writes,
                           .results = results,
                           .kept = &kept};
    if (operation->num_reads > MAX_OPERANDS || operation->num_writes > MAX_OPERANDS ||
        operation->num_returns > MAX_OPERANDS) {
        return false;
    }
    for (size_t i = 0; i < operation->num_reads; i++) {
        if (operation->reads[i].view != UNCOPY_NONE) {
            reads[call.num_reads++] = reference_bound(reference, operation->reads[i].view);
        }
    }
    call.num_writes = bind_views(reference, operation->writes, operation->num_writes, writes);
    call.num_results = bind_views(reference, operation->returns, operation->num_returns, results);
    if (reference->program->num_arguments > 0) {
        kept = reference_bound(reference, reference->program->storages[0].first_view);
    }
    return externs_run(&call);
}

static void run_collective(const reference_t *reference, const ir_operation_t *operation)
{
    uncopy_bound_t source = reference_bound(reference, operation->reads[0].view);
    uncopy_bound_t destination = reference_bound(reference, operation->writes[0]);
    const ir_group_t *group = &reference->program->groups[operation->group];
    char *snapshot = element_snapshot(&source);
    element_collective(operation->opcode, group->size, group->rank, operation->attributes[0],
                       snapshot, element_count(&source), &destination);
    free(snapshot);
}

static void run_row(const reference_t *reference, const ir_operation_t *operation)
{
    uncopy_bound_t bounds[OP_MAX_READS];
    element_operand_t reads[OP_MAX_READS] = {{0}};
    for (size_t i = 0; i < operation->num_reads; i++) {
        reads[i].number = operation->reads[i];
        if (operation->reads[i].view != UNCOPY_NONE) {
            bounds[i] = reference_bound(reference, operation->reads[i].view);
            reads[i].view = &bounds[i];
        }
    }
    uncopy_bound_t result = reference_bound(reference, operation->writes[0]);
    (void)element_run(operation->opcode, reads, operation->num_reads, operation->attributes,
                      &result);
}

void reference_run(reference_t *reference)
{
    for (size_t i = 0; i < reference->program->num_operations; i++) {
        const ir_operation_t *operation = &reference->program->operations[i];
        switch (op_row(operation->opcode)->class_) {
        case OP_CLASS_EXTERN:
            if (!run_extern(reference, operation)) {
                reference->has_failed = true;
                return;
            }
            break;
        case OP_CLASS_COLLECTIVE:
            run_collective(reference, operation);
            break;
        case OP_CLASS_POINTWISE:
        case OP_CLASS_MOVE:
        case OP_CLASS_MATMUL:
            run_row(reference, operation);
            break;
        case OP_CLASS_FENCE:
        case OP_CLASS_ORDER:
            break;
        }
    }
}
