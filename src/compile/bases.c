/* Bases: where the bytes of each storage come from when the plan runs.
 *
 *   argument   the caller's data, or the caller's storage object
 *   constant   the plan's own copy
 *   made       a host call returns it
 *   output     a fresh storage that no host call makes
 *   scratch    memory of its own: an operation of unknown effects sees it, or all kernels are the
 *              host's
 *   arena      all other scratch, placed so that lifetimes that overlap share no byte */
#include <string.h>

#include "base/status.h"
#include "compile/lower.h"
#include "compile/place.h"

uint32_t lower_base(const lowering_t *lowering, const unit_view_t *view)
{
    uint32_t base = lowering->storages[view->storage].base;
    return view->is_from_storage ? base + (uint32_t)lowering->unit->num_arguments : base;
}

static uncopy_status_t add_base(lowering_t *lowering, plan_base_t base, const char *name,
                                uint32_t *out_base)
{
    plan_t *plan = lowering->plan;
    base.operand = UNCOPY_NONE;
    base.name = arena_copy_text(&plan->arena, name, strlen(name));
    if (base.name == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    *out_base = (uint32_t)plan->num_bases;
    ARENA_PUSH(&plan->arena, plan->bases, plan->num_bases, lowering->bases_capacity, base);
    return UNCOPY_OK;
}

static uncopy_status_t add_argument_bases(lowering_t *lowering)
{
    unit_t *unit = lowering->unit;
    for (int from_storage = 0; from_storage < 2; from_storage++) {
        for (uint32_t a = 0; a < unit->num_arguments; a++) {
            uint32_t base = 0;
            plan_base_t row = {.kind = from_storage ? UNCOPY_BASE_STORAGE : UNCOPY_BASE_ARGUMENT,
                               .argument = a};
            TRY(add_base(lowering, row, unit->views[unit->storages[a].first_view].name, &base));
            lowering->storages[a].base = a;
        }
    }
    return UNCOPY_OK;
}

static bool is_made(const lowering_t *lowering, uint32_t s)
{
    const unit_t *unit = lowering->unit;
    const unit_storage_t *storage = &unit->storages[s];
    return storage->num_touches > 0 &&
           lower_makes_storage(lowering, &unit->ops[storage->touches[0]], s);
}

static uncopy_base_kind_t choose_base(const lowering_t *lowering, uint32_t s)
{
    const unit_t *unit = lowering->unit;
    const unit_storage_t *storage = &unit->storages[s];
    if (storage->kind == IR_STORAGE_CONSTANT) {
        return UNCOPY_BASE_CONSTANT;
    }
    if (is_made(lowering, s)) {
        return UNCOPY_BASE_MADE;
    }
    if (storage->kind == IR_STORAGE_FRESH) {
        return UNCOPY_BASE_OUTPUT;
    }
    bool is_extern_run = unit->options->kernels == UNCOPY_KERNELS_EXTERN;
    return is_extern_run || storage->is_exposed ? UNCOPY_BASE_SCRATCH : UNCOPY_BASE_ARENA;
}

static uncopy_status_t add_storage_base(lowering_t *lowering, uint32_t s)
{
    const unit_storage_t *storage = &lowering->unit->storages[s];
    const char *name = lowering->unit->views[storage->first_view].name;
    plan_base_t row = {.kind = choose_base(lowering, s),
                       .size_bytes = storage->size_bytes,
                       .bytes = storage->bytes};
    if (row.kind == UNCOPY_BASE_CONSTANT) {
        row.bytes =
            arena_copy(&lowering->plan->arena, storage->bytes, (size_t)storage->size_bytes, 1);
        if (row.bytes == NULL) {
            return UNCOPY_ERROR_MEMORY;
        }
    }
    TRY(add_base(lowering, row, name, &lowering->storages[s].base));
    uint32_t operand = 0;
    TRY(lower_add_operand(lowering, storage->first_view, &operand));
    lowering->plan->bases[lowering->storages[s].base].operand = operand;
    return UNCOPY_OK;
}

/* ---- the arena ---- */

static uncopy_status_t collect_items(lowering_t *lowering, place_item_t *items, uint32_t *owners,
                                     size_t *out_count)
{
    unit_t *unit = lowering->unit;
    bool never_shares = (unit->options->passes_off & UNCOPY_PASS_PLACE) != 0;
    size_t count = 0;
    for (uint32_t s = (uint32_t)unit->num_arguments; s < unit->num_storages; s++) {
        const unit_storage_t *storage = &unit->storages[s];
        lowering->storages[s].base = UNCOPY_NONE;
        if ((storage->num_touches == 0 && !storage->is_output) ||
            choose_base(lowering, s) != UNCOPY_BASE_ARENA) {
            continue;
        }
        uint32_t first = unit->ops[storage->touches[0]].position;
        uint32_t last = unit->ops[storage->touches[storage->num_touches - 1]].position;
        items[count] = (place_item_t){.size_bytes = storage->size_bytes,
                                      .first = never_shares ? 0 : first,
                                      .last = never_shares ? (uint32_t)unit->num_order : last};
        owners[count++] = s;
    }
    *out_count = count;
    return UNCOPY_OK;
}

static uncopy_status_t place_arena(lowering_t *lowering)
{
    unit_t *unit = lowering->unit;
    plan_t *plan = lowering->plan;
    place_item_t *items = arena_allocate(&unit->arena, unit->num_storages, sizeof(*items));
    uint32_t *owners = arena_allocate(&unit->arena, unit->num_storages, sizeof(*owners));
    if (items == NULL || owners == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    size_t count = 0;
    TRY(collect_items(lowering, items, owners, &count));
    if (count == 0) {
        return UNCOPY_OK;
    }
    TRY(place_items(&unit->arena, items, count, &plan->counts.arena_bytes,
                    &plan->counts.arena_lower_bound_bytes));
    plan_base_t row = {.kind = UNCOPY_BASE_ARENA, .size_bytes = plan->counts.arena_bytes};
    TRY(add_base(lowering, row, "arena", &plan->arena_base));
    for (size_t i = 0; i < count; i++) {
        lowering->storages[owners[i]] = (lower_storage_t){plan->arena_base, items[i].offset_bytes};
    }
    return UNCOPY_OK;
}

uncopy_status_t lower_bases(lowering_t *lowering)
{
    unit_t *unit = lowering->unit;
    TRY(add_argument_bases(lowering));
    TRY(place_arena(lowering));
    for (uint32_t s = (uint32_t)unit->num_arguments; s < unit->num_storages; s++) {
        const unit_storage_t *storage = &unit->storages[s];
        if (lowering->storages[s].base == UNCOPY_NONE &&
            (storage->num_touches > 0 || storage->is_output)) {
            TRY(add_storage_base(lowering, s));
        }
    }
    return UNCOPY_OK;
}
