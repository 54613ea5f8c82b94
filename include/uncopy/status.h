/* Status codes of every fallible call, and the words that belong to them.
 *
 * A call that fails returns a code and leaves its outputs untouched. The message of the failure,
 * worded with values by whoever first knew the cause, is kept for the calling thread until its next
 * failing call.
 *
 * Threads: all functions here are safe. */
#ifndef UNCOPY_STATUS_H
#define UNCOPY_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define UNCOPY_API __attribute__((visibility("default")))
#define UNCOPY_MUST_CHECK __attribute__((warn_unused_result))
#else
#define UNCOPY_API
#define UNCOPY_MUST_CHECK
#endif

typedef enum uncopy_status {
#define STATUS(name, value, words, advice) UNCOPY_##name = (value),
#include "uncopy/status.def"
#undef STATUS
} uncopy_status_t;

/* Short name of a code, as "facts differ". Unknown codes give "unknown status". Static storage. */
UNCOPY_API const char *uncopy_status_name(uncopy_status_t status);

/* What the caller may do next after this code. Static storage. */
UNCOPY_API const char *uncopy_status_advice(uncopy_status_t status);

/* Words of this thread's last failure, "" before the first. Valid until this thread's next failing
 * call. */
UNCOPY_API const char *uncopy_last_message(void);

#ifdef __cplusplus
}
#endif

#endif
