/* A program with its numbers and the caller's memory as its assume lines describe it. Arguments
 * that the lines tie together lie in one region, all others apart. */
#ifndef SCENE_H
#define SCENE_H

#include "base/memory.h"
#include "ir/program.h"
#include "reference.h"

typedef struct scene {
    ir_program_t program;
    arena_t arena;
    ir_extent_t *extents;
    reference_place_t *places;
    int64_t image_bytes;
    char *image; /* as it is before a run */
} scene_t;

/* False with printed words. */
bool scene_init(scene_t *scene, const char *text);
void scene_release(scene_t *scene);

/* Zeroed bytes, aligned as an image is; the caller frees them. */
char *scene_memory(int64_t bytes);

#endif
