/* Memory of the library: the allocator's two calls, an arena for what dies together, growable
 * arrays, counted text.
 *
 * Arena: owner is whoever initialised it; memory handed out is zeroed, aligned to 16 bytes and
 * valid until arena_release. Confined to one thread. */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "uncopy/context.h"

extern const uncopy_allocator_t memory_system_allocator;

/* Zeroed memory, or NULL with this thread's message set. size 0 is taken as 1. */
void *memory_allocate(const uncopy_allocator_t *allocator, size_t size, const char *what);
/* NULL is allowed. */
void memory_release(const uncopy_allocator_t *allocator, void *pointer, size_t size);

typedef struct arena_block arena_block_t;

typedef struct arena {
    const uncopy_allocator_t *allocator;
    arena_block_t *blocks; /* newest first */
    size_t used, room;     /* of the newest block, bytes */
} arena_t;

void arena_init(arena_t *arena, const uncopy_allocator_t *allocator);
void arena_release(arena_t *arena);
/* Zeroed memory, or NULL with this thread's message set. */
void *arena_allocate(arena_t *arena, size_t count, size_t size);
char *arena_copy_text(arena_t *arena, const char *text, size_t length);
/* Copy of count elements, or NULL with the message set. count 0 gives a non-NULL pointer. */
void *arena_copy(arena_t *arena, const void *source, size_t count, size_t size);

/* Makes room for one more element in an array that lives in an arena. Returns the array (moved or
 * not), or NULL with the message set. *capacity is updated; old memory stays in the arena until its
 * end. */
void *arena_grow(arena_t *arena, void *array, size_t count, size_t *capacity, size_t size);

/* ARENA_PUSH(arena, array, count, capacity, value): appends, or returns UNCOPY_ERROR_MEMORY from
 * the caller. */
#define ARENA_PUSH(arena, array, count, capacity, ...)                                          \
    do {                                                                                        \
        void *push_room = arena_grow((arena), (array), (count), &(capacity), sizeof(*(array))); \
        if (push_room == NULL) {                                                                \
            return UNCOPY_ERROR_MEMORY;                                                         \
        }                                                                                       \
        (array) = push_room;                                                                    \
        (array)[(count)++] = __VA_ARGS__;                                                       \
    } while (0)

/* Text under construction, on the allocator. A failed append is remembered and reported by
 * text_take. */
typedef struct text {
    const uncopy_allocator_t *allocator;
    char *bytes;
    size_t length, capacity;
    int has_failed;
} text_t;

void text_init(text_t *text, const uncopy_allocator_t *allocator);
void text_append(text_t *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_append_list(text_t *text, const char *format, va_list arguments);
/* Pads with spaces so that the current line is at least column wide. */
void text_pad(text_t *text, size_t column);
void text_release(text_t *text);
/* Hands the NUL-terminated text over; it is released with text_free. On UNCOPY_ERROR_MEMORY nothing
 * is handed over. */
UNCOPY_MUST_CHECK uncopy_status_t text_take(text_t *text, char **out_text);
void text_free(const uncopy_allocator_t *allocator, char *taken);

#endif
