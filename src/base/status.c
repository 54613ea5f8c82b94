/* The words of the last failure live in one buffer a thread
 * (docs/decisions/0001-words-of-the-last-failure.md). */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_message[1024];

uncopy_status_t status_fail(uncopy_status_t code, const char *format, ...)
{
    /* The arguments may hold the last failure's words. */
    char words[sizeof(last_message)];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(words, sizeof(words), format, arguments);
    va_end(arguments);
    memcpy(last_message, words, strlen(words) + 1);
    return code;
}

uncopy_status_t status_no_memory(size_t size_bytes, const char *what)
{
    return status_fail(UNCOPY_ERROR_MEMORY, "no memory for %s (%zu bytes)", what, size_bytes);
}

const char *uncopy_last_message(void)
{
    return last_message;
}

const char *uncopy_status_name(uncopy_status_t status)
{
    switch (status) {
#define STATUS(name, value, words, advice) \
    case UNCOPY_##name:                    \
        return words;
#include "uncopy/status.def"
#undef STATUS
    }
    return "unknown status";
}

const char *uncopy_status_advice(uncopy_status_t status)
{
    switch (status) {
#define STATUS(name, value, words, advice) \
    case UNCOPY_##name:                    \
        return advice;
#include "uncopy/status.def"
#undef STATUS
    }
    return "nothing is known of this code";
}
