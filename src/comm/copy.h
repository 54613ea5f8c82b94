/* Bytes from here to there: through the caches or past them. */
#ifndef COMM_COPY_H
#define COMM_COPY_H

#include <stdbool.h>
#include <stddef.h>

#include "comm/pattern.h"

/* Ranges do not overlap. past_caches: with streaming stores where the machine has them; complete
 * for other cores when it returns. */
void copy_bytes(void *destination, const void *source, size_t bytes, bool past_caches);
/* Next bytes of a stream into a run, and back. Both streams must hold as many. */
void copy_from_stream(char *destination, stream_t *source, size_t bytes, bool past_caches);
void copy_to_stream(stream_t *destination, const char *source, size_t bytes, bool past_caches);
/* What is left of source to destination; runs that are at the same address are skipped. Returns the
 * bytes. */
size_t copy_streams(stream_t *destination, stream_t *source, bool past_caches);

#endif
