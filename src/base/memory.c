#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/status.h"

enum {
    MEMORY_ALIGNMENT = 64,
    ARENA_ALIGNMENT = 16,
    ARENA_FIRST_BLOCK = 4096,
    ARENA_LARGEST_STEP = 1 << 20
};

static void *system_allocate(void *self, size_t size)
{
    (void)self;
    size_t rounded = (size + MEMORY_ALIGNMENT - 1) / MEMORY_ALIGNMENT * MEMORY_ALIGNMENT;
    return rounded < size ? NULL : aligned_alloc(MEMORY_ALIGNMENT, rounded);
}

static void system_release(void *self, void *pointer, size_t size)
{
    (void)self;
    (void)size;
    free(pointer);
}

const uncopy_allocator_t memory_system_allocator = {NULL, system_allocate, system_release};

void *memory_allocate(const uncopy_allocator_t *allocator, size_t size, const char *what)
{
    size_t asked = size == 0 ? 1 : size;
    void *pointer = allocator->allocate(allocator->self, asked);
    if (pointer == NULL) {
        (void)status_no_memory(asked, what);
        return NULL;
    }
    memset(pointer, 0, asked);
    return pointer;
}

void memory_release(const uncopy_allocator_t *allocator, void *pointer, size_t size)
{
    if (pointer != NULL) {
        allocator->release(allocator->self, pointer, size == 0 ? 1 : size);
    }
}

struct arena_block {
    arena_block_t *next;
    size_t size; /* whole block, header included */
};

enum {
    BLOCK_HEADER = (sizeof(arena_block_t) + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT
};

void arena_init(arena_t *arena, const uncopy_allocator_t *allocator)
{
    *arena = (arena_t){.allocator = allocator};
}

void arena_release(arena_t *arena)
{
    for (arena_block_t *block = arena->blocks; block != NULL;) {
        arena_block_t *next = block->next;
        memory_release(arena->allocator, block, block->size);
        block = next;
    }
    arena_init(arena, arena->allocator);
}

static int arena_add_block(arena_t *arena, size_t least)
{
    size_t step = arena->blocks == NULL ? ARENA_FIRST_BLOCK : arena->blocks->size * 2;
    step = step > ARENA_LARGEST_STEP ? ARENA_LARGEST_STEP : step;
    size_t size = 0;
    if (__builtin_add_overflow(least, (size_t)BLOCK_HEADER, &size)) {
        (void)status_no_memory(least, "an arena");
        return 0;
    }
    size = size > step ? size : step;
    arena_block_t *block = memory_allocate(arena->allocator, size, "an arena");
    if (block == NULL) {
        return 0;
    }
    *block = (arena_block_t){arena->blocks, size};
    arena->blocks = block;
    arena->used = BLOCK_HEADER;
    arena->room = size;
    return 1;
}

void *arena_allocate(arena_t *arena, size_t count, size_t size)
{
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, size, &bytes) ||
        __builtin_add_overflow(bytes, (size_t)(ARENA_ALIGNMENT - 1), &bytes)) {
        (void)status_no_memory(SIZE_MAX, "an arena");
        return NULL;
    }
    bytes = bytes / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    if (arena->blocks == NULL || arena->room - arena->used < bytes) {
        if (!arena_add_block(arena, bytes)) {
            return NULL;
        }
    }
    void *pointer = (char *)arena->blocks + arena->used;
    arena->used += bytes;
    return pointer;
}

char *arena_copy_text(arena_t *arena, const char *text, size_t length)
{
    char *copy = arena_allocate(arena, length + 1, 1);
    if (copy != NULL) {
        memcpy(copy, text, length);
    }
    return copy;
}

void *arena_copy(arena_t *arena, const void *source, size_t count, size_t size)
{
    void *copy = arena_allocate(arena, count, size);
    if (copy != NULL && count != 0) {
        memcpy(copy, source, count * size);
    }
    return copy;
}

void *arena_grow(arena_t *arena, void *array, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity) {
        return array;
    }
    size_t wanted = *capacity == 0 ? 8 : *capacity * 2;
    void *larger = arena_allocate(arena, wanted, size);
    if (larger == NULL) {
        return NULL;
    }
    if (count != 0) {
        memcpy(larger, array, count * size);
    }
    *capacity = wanted;
    return larger;
}

/* A taken text is preceded by its capacity, so that its release needs no length. */
enum { TEXT_HEADER = 16 };

void text_init(text_t *text, const uncopy_allocator_t *allocator)
{
    *text = (text_t){.allocator = allocator};
}

static int text_reserve(text_t *text, size_t extra)
{
    size_t need = text->length + extra + 1;
    if (need <= text->capacity) {
        return 1;
    }
    size_t capacity = text->capacity == 0 ? 256 : text->capacity;
    while (capacity < need) {
        capacity *= 2;
    }
    char *block = memory_allocate(text->allocator, capacity + TEXT_HEADER, "a text");
    if (block == NULL) {
        text->has_failed = 1;
        return 0;
    }
    char *bytes = block + TEXT_HEADER;
    memcpy(block, &(size_t){capacity + TEXT_HEADER}, sizeof(size_t));
    if (text->bytes != NULL) {
        memcpy(bytes, text->bytes, text->length + 1);
        text_free(text->allocator, text->bytes);
    }
    text->bytes = bytes;
    text->capacity = capacity;
    return 1;
}

void text_append_list(text_t *text, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    if (length >= 0 && !text->has_failed && text_reserve(text, (size_t)length)) {
        (void)vsnprintf(text->bytes + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
}

void text_append(text_t *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    text_append_list(text, format, arguments);
    va_end(arguments);
}

void text_pad(text_t *text, size_t column)
{
    size_t start = text->length;
    while (start > 0 && text->bytes[start - 1] != '\n') {
        start--;
    }
    while (!text->has_failed && text->length - start < column) {
        text_append(text, " ");
    }
}

void text_release(text_t *text)
{
    text_free(text->allocator, text->bytes);
    text_init(text, text->allocator);
}

uncopy_status_t text_take(text_t *text, char **out_text)
{
    if (text->has_failed || !text_reserve(text, 0)) {
        text_release(text);
        return UNCOPY_ERROR_MEMORY;
    }
    text->bytes[text->length] = '\0';
    *out_text = text->bytes;
    text_init(text, text->allocator);
    return UNCOPY_OK;
}

void text_free(const uncopy_allocator_t *allocator, char *taken)
{
    if (taken != NULL) {
        char *block = taken - TEXT_HEADER;
        size_t size = 0;
        memcpy(&size, block, sizeof(size));
        memory_release(allocator, block, size);
    }
}
