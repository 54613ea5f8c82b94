/* Bytes from here to there: see copy.h. */
#include "comm/copy.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>

enum { STREAM_LINE = 64, STREAM_LEAST = 4096 };

/* Whole lines, so that each leaves the core in one write. */
static void copy_past_caches(char *destination, const char *source, size_t bytes)
{
    size_t head = (STREAM_LINE - (uintptr_t)destination % STREAM_LINE) % STREAM_LINE;
    memcpy(destination, source, head);
    destination += head;
    source += head;
    bytes -= head;
    size_t whole = bytes / STREAM_LINE * STREAM_LINE;
    for (size_t at = 0; at < whole; at += STREAM_LINE) {
        const __m128i *from = (const __m128i *)(const void *)(source + at);
        __m128i *to = (__m128i *)(void *)(destination + at);
        __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
        __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
        _mm_stream_si128(to, a);
        _mm_stream_si128(to + 1, b);
        _mm_stream_si128(to + 2, c);
        _mm_stream_si128(to + 3, d);
    }
    _mm_sfence();
    memcpy(destination + whole, source + whole, bytes - whole);
}

void copy_bytes(void *destination, const void *source, size_t bytes, bool past_caches)
{
    if (past_caches && bytes >= STREAM_LEAST) {
        copy_past_caches(destination, source, bytes);
    } else if (bytes > 0) {
        memcpy(destination, source, bytes);
    }
}
#else
void copy_bytes(void *destination, const void *source, size_t bytes, bool past_caches)
{
    (void)past_caches;
    if (bytes > 0) {
        memcpy(destination, source, bytes);
    }
}
#endif

void copy_from_stream(char *destination, stream_t *source, size_t bytes, bool past_caches)
{
    while (bytes > 0) {
        size_t run = 0;
        const char *address = stream_next(source, bytes, &run);
        if (run == 0) {
            return;
        }
        copy_bytes(destination, address, run, past_caches);
        destination += run;
        bytes -= run;
    }
}

void copy_to_stream(stream_t *destination, const char *source, size_t bytes, bool past_caches)
{
    while (bytes > 0) {
        size_t run = 0;
        char *address = stream_next(destination, bytes, &run);
        if (run == 0) {
            return;
        }
        copy_bytes(address, source, run, past_caches);
        source += run;
        bytes -= run;
    }
}

size_t copy_streams(stream_t *destination, stream_t *source, bool past_caches)
{
    size_t bytes = 0;
    for (;;) {
        size_t run = 0;
        size_t room = stream_run_bytes(destination);
        const char *from = stream_next(source, room, &run);
        if (run == 0) {
            return bytes;
        }
        char *to = stream_next(destination, run, &run);
        if (to != from) {
            copy_bytes(to, from, run, past_caches);
        }
        bytes += run;
    }
}
