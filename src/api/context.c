#include "api/objects.h"
#include "base/status.h"

static void write_nothing(void *self, uncopy_log_level_t level, const char *line)
{
    (void)self;
    (void)level;
    (void)line;
}

uncopy_status_t uncopy_context_create(const uncopy_allocator_t *allocator, const uncopy_log_t *log,
                                      uncopy_context_t **out_context)
{
    if (out_context == NULL ||
        (allocator != NULL && (allocator->allocate == NULL || allocator->release == NULL)) ||
        (log != NULL && log->write == NULL)) {
        return status_fail(UNCOPY_ERROR_ARGUMENT,
                           "an allocator has both callbacks, a log its write, the result a place");
    }
    const uncopy_allocator_t *used = allocator == NULL ? &memory_system_allocator : allocator;
    uncopy_context_t *context = memory_allocate(used, sizeof(*context), "a context");
    if (context == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    atomic_init(&context->references, 1);
    context->allocator = *used;
    context->log = log == NULL ? (uncopy_log_t){NULL, write_nothing} : *log;
    target_fill(&context->target);
    uncopy_status_t status = pool_create(&context->allocator, &context->pool);
    if (status != UNCOPY_OK) {
        memory_release(used, context, sizeof(*context));
        return status;
    }
    *out_context = context;
    return UNCOPY_OK;
}

void uncopy_context_retain(uncopy_context_t *context)
{
    /* relaxed: whoever calls holds a reference already */
    atomic_fetch_add_explicit(&context->references, 1, memory_order_relaxed);
}

void uncopy_context_release(uncopy_context_t *context)
{
    /* acq_rel: pairs with the other releases, so that the last sees all their writes */
    if (context != NULL &&
        atomic_fetch_sub_explicit(&context->references, 1, memory_order_acq_rel) == 1) {
        uncopy_allocator_t allocator = context->allocator;
        pool_release(context->pool);
        memory_release(&allocator, context, sizeof(*context));
    }
}

void uncopy_text_release(uncopy_context_t *context, char *text)
{
    text_free(&context->allocator, text);
}

uncopy_status_t uncopy_host_fail(const char *words)
{
    return status_fail(UNCOPY_ERROR_HOST, "%s", words);
}

#define STRINGIFY_(x) #x
#define STRINGIFY(x) STRINGIFY_(x)

const char *uncopy_version(void)
{
    return STRINGIFY(UNCOPY_VERSION_MAJOR) "." STRINGIFY(UNCOPY_VERSION_MINOR) "." STRINGIFY(
        UNCOPY_VERSION_PATCH);
}
