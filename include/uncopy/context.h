/* A context: where memory comes from and where log lines go. Programs, functions and plans are made
 * in one.
 *
 * Owner: whoever created or retained it; objects made in a context retain it. Threads: safe after
 * creation. */
#ifndef UNCOPY_CONTEXT_H
#define UNCOPY_CONTEXT_H

#include <stddef.h>

#include "uncopy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Memory callbacks. allocate returns size bytes aligned to 64, or NULL; size is never 0. release
 * takes what allocate returned, with its size. Both may be called from any thread. */
typedef struct uncopy_allocator {
    void *self;
    void *(*allocate)(void *self, size_t size);
    void (*release)(void *self, void *pointer, size_t size);
} uncopy_allocator_t;

/* Severity of a log line. */
typedef enum uncopy_log_level {
    UNCOPY_LOG_INFO = 0,
    UNCOPY_LOG_WARNING = 1,
} uncopy_log_level_t;

/* Receives one line without its line end; the line is borrowed for the call. May be called from any
 * thread. */
typedef struct uncopy_log {
    void *self;
    void (*write)(void *self, uncopy_log_level_t level, const char *line);
} uncopy_log_t;

typedef struct uncopy_context uncopy_context_t;

/* Creates a context. allocator NULL means the system's; log NULL means silence. Both structs are
 * copied. Errors: UNCOPY_ERROR_ARGUMENT (a callback is missing), UNCOPY_ERROR_MEMORY. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_context_create(
    const uncopy_allocator_t *allocator, const uncopy_log_t *log, uncopy_context_t **out_context);

UNCOPY_API void uncopy_context_retain(uncopy_context_t *context);
/* NULL is allowed. */
UNCOPY_API void uncopy_context_release(uncopy_context_t *context);

/* Releases a text that this library returned. NULL is allowed. */
UNCOPY_API void uncopy_text_release(uncopy_context_t *context, char *text);

#ifdef __cplusplus
}
#endif

#endif
