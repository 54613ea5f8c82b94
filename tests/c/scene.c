#include "scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "ir/text.h"

enum { GAP = 64 };

typedef struct region {
    int64_t first, end; /* hull of its arguments, from its first argument's data */
    int64_t start;      /* in the image */
} region_t;

/* Regions: arguments tied by assume lines share one. distance[a] counts from the region's anchor,
 * the argument with number of[a]. */
static void find_regions(const ir_program_t *program, uint32_t *of, int64_t *distance)
{
    for (uint32_t a = 0; a < program->num_arguments; a++) {
        of[a] = a;
        distance[a] = 0;
    }
    for (size_t i = 0; i < program->num_assumptions; i++) {
        const ir_assumption_t *tie = &program->assumptions[i];
        uint32_t from = of[tie->a];
        uint32_t to = of[tie->b];
        int64_t shift = distance[tie->b] + tie->offset_bytes - distance[tie->a];
        for (uint32_t a = 0; from != to && a < program->num_arguments; a++) {
            if (of[a] == from) {
                of[a] = to;
                distance[a] += shift;
            }
        }
    }
}

static void grow(region_t *region, int64_t first, int64_t end)
{
    region->first = first < region->first ? first : region->first;
    region->end = end > region->end ? end : region->end;
}

/* Hulls of the views that count from data pointers; views from a storage's start come after, as
 * they count from the region's first byte. */
static void measure_regions(const scene_t *scene, const uint32_t *of, const int64_t *distance,
                            region_t *regions)
{
    for (int pass = 0; pass < 2; pass++) {
        for (size_t v = 0; v < scene->program.num_views; v++) {
            const ir_view_t *view = &scene->program.views[v];
            int64_t first = 0;
            int64_t end = 0;
            if (view->storage >= scene->program.num_arguments ||
                view->is_from_storage != (pass == 1)) {
                continue;
            }
            region_t *region = &regions[of[view->storage]];
            span_hull(&scene->extents[v].span, &first, &end);
            int64_t base = pass == 0 ? distance[view->storage] : region->first;
            grow(region, base + (pass == 0 ? 0 : first), base + end);
        }
    }
}

static bool place_arguments(scene_t *scene)
{
    size_t count = scene->program.num_arguments;
    uint32_t *of = arena_allocate(&scene->arena, count, sizeof(*of));
    int64_t *distance = arena_allocate(&scene->arena, count, sizeof(*distance));
    region_t *regions = arena_allocate(&scene->arena, count, sizeof(*regions));
    scene->places = arena_allocate(&scene->arena, count, sizeof(*scene->places));
    if (of == NULL || distance == NULL || regions == NULL || scene->places == NULL) {
        return false;
    }
    find_regions(&scene->program, of, distance);
    measure_regions(scene, of, distance, regions);
    scene->image_bytes = GAP;
    for (size_t a = 0; a < count; a++) {
        if (of[a] == a) {
            regions[a].start = scene->image_bytes;
            scene->image_bytes += (regions[a].end - regions[a].first + 2 * GAP - 1) / GAP * GAP;
        }
    }
    for (size_t a = 0; a < count; a++) {
        const region_t *region = &regions[of[a]];
        scene->places[a] = (reference_place_t){.data = region->start + distance[a] - region->first,
                                               .storage = region->start,
                                               .storage_bytes = region->end - region->first};
    }
    return true;
}

char *scene_memory(int64_t bytes)
{
    size_t size = ((size_t)bytes + GAP) / GAP * GAP;
    char *memory = aligned_alloc(GAP, size);
    if (memory == NULL) {
        abort();
    }
    memset(memory, 0, size);
    return memory;
}

static bool fill_image(scene_t *scene)
{
    reference_t reference;
    scene->image = scene_memory(scene->image_bytes);
    if (!reference_init(&reference, &scene->program, scene->extents, scene->places, scene->image)) {
        return false;
    }
    for (uint32_t a = 0; a < scene->program.num_arguments; a++) {
        uncopy_bound_t bound = reference_bound(&reference, scene->program.storages[a].first_view);
        element_fill_pattern(&bound, a);
    }
    for (size_t s = 0; s < scene->program.num_symbols; s++) {
        const ir_symbol_t *symbol = &scene->program.symbols[s];
        if (symbol->kind == UNCOPY_SYMBOL_VALUE) {
            uint32_t view = scene->program.storages[symbol->argument].first_view;
            memcpy(reference_bound(&reference, view).data, &symbol->assumed, sizeof(int64_t));
        }
    }
    reference_release(&reference);
    return true;
}

void scene_release(scene_t *scene)
{
    free(scene->image);
    arena_release(&scene->arena);
    ir_program_release(&scene->program);
}

bool scene_init(scene_t *scene, const char *text)
{
    *scene = (scene_t){0};
    arena_init(&scene->arena, &memory_system_allocator);
    if (ir_parse(&scene->program, &memory_system_allocator, text, strlen(text)) != UNCOPY_OK) {
        printf("    %s\n", uncopy_last_message());
        return false;
    }
    int64_t *values = arena_allocate(&scene->arena, scene->program.num_symbols, sizeof(*values));
    for (size_t s = 0; values != NULL && s < scene->program.num_symbols; s++) {
        values[s] = scene->program.symbols[s].assumed;
    }
    ir_values_t found = {NULL, NULL};
    bool is_fine =
        values != NULL && ir_evaluate(&scene->program, values, &scene->arena, &found) == UNCOPY_OK;
    scene->extents = found.extents;
    is_fine = is_fine && place_arguments(scene) && fill_image(scene);
    if (!is_fine) {
        printf("    %s\n", uncopy_last_message());
        scene_release(scene);
    }
    return is_fine;
}
