/* Random programs in the text language, made to break the removal of copies: many copies, storages
 * that overlap, operations in place, work in flight. And whether a program's meaning is defined on
 * given memory. */
#ifndef RANDOM_PROGRAM_H
#define RANDOM_PROGRAM_H

#include "scene.h"

enum {
    RANDOM_MAX_LINES = 96,
    RANDOM_LINE_BYTES = 160,
    RANDOM_MAX_SCENES = 6,
    RANDOM_SCENE_BYTES = 400,
    RANDOM_TEXT_BYTES = RANDOM_MAX_LINES * RANDOM_LINE_BYTES + RANDOM_SCENE_BYTES,
};

/* A source of random numbers; any state is fine. */
typedef struct random_source {
    uint64_t state;
} random_source_t;

/* From 0 to count - 1. */
int64_t random_below(random_source_t *source, int64_t count);
/* True in that many of 100 cases. */
bool random_chance(random_source_t *source, int percent);

/* Lines without assume lines, and the assume lines of each scene in which it runs, in order. */
typedef struct random_program {
    char lines[RANDOM_MAX_LINES][RANDOM_LINE_BYTES];
    size_t num_lines;
    char scenes[RANDOM_MAX_SCENES][RANDOM_SCENE_BYTES];
    size_t num_scenes;
} random_program_t;

void random_program_make(random_program_t *program, uint64_t seed);
/* The text for one scene, in a buffer of RANDOM_TEXT_BYTES. */
void random_program_text(const random_program_t *program, size_t scene, char *out_text);

/* Whether the program verifies, and means something on the scene's memory: it reads no byte of
 * scratch or fresh storages that nobody has written, leaves the bytes of collectives in flight
 * alone, and no row without a host overlaps itself. */
bool random_program_is_defined(const scene_t *scene);

#endif
