/* Arithmetic of collectives: see pattern.h. */
#include "comm/pattern.h"

enum { LINE = 64 };

stream_t pattern_stream(const pattern_t *pattern, int32_t rank)
{
    if (pattern->is_by_rank) {
        return (stream_t){.row = pattern->rows + rank, .num_rows = 1};
    }
    return (stream_t){.row = pattern->rows, .num_rows = pattern->num_rows, .rank = (size_t)rank};
}

size_t pattern_bytes(const pattern_t *pattern, int32_t rank)
{
    if (pattern->is_by_rank) {
        return pattern->rows[rank].bytes;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < pattern->num_rows; i++) {
        bytes += pattern->rows[i].bytes;
    }
    return bytes;
}

size_t pattern_most_bytes(const pattern_t *pattern, int32_t size, int32_t except)
{
    if (!pattern->is_by_rank) {
        return size > 1 ? pattern_bytes(pattern, 0) : 0;
    }
    size_t most = 0;
    for (int32_t p = 0; p < size; p++) {
        if (p != except && pattern->rows[p].bytes > most) {
            most = pattern->rows[p].bytes;
        }
    }
    return most;
}

/* FNV-1a over the sizes as 64-bit words: two lists that differ by accident have the same value once
 * in 2^64. */
uint64_t pattern_shape(const pattern_t *pattern)
{
    uint64_t hash = 14695981039346656037U;
    for (size_t i = 0; i < pattern->num_rows; i++) {
        hash = (hash ^ (uint64_t)pattern->rows[i].bytes) * 1099511628211U;
        hash ^= hash >> 29;
    }
    return hash | 1U;
}

bool pattern_is_run(const pattern_t *pattern, int32_t rank, char **out_address)
{
    stream_t stream = pattern_stream(pattern, rank);
    size_t bytes = 0;
    *out_address = stream_next(&stream, SIZE_MAX, &bytes);
    return stream_run_bytes(&stream) == 0;
}

size_t stream_run_bytes(stream_t *stream)
{
    while (stream->num_rows > 0 && stream->at == stream->row->bytes) {
        stream->row++;
        stream->num_rows--;
        stream->at = 0;
    }
    return stream->num_rows > 0 ? stream->row->bytes - stream->at : 0;
}

char *stream_next(stream_t *stream, size_t limit, size_t *out_bytes)
{
    size_t run = stream_run_bytes(stream);
    *out_bytes = run < limit ? run : limit;
    if (run == 0) {
        return NULL;
    }
    char *address = stream->row->address + stream->rank * stream->row->stride + stream->at;
    stream->at += *out_bytes;
    return address;
}

void pattern_part(size_t count, size_t element_bytes, int32_t size, int32_t rank, size_t *out_first,
                  size_t *out_count)
{
    size_t unit = element_bytes < LINE ? LINE / element_bytes : 1;
    size_t num_units = count / unit + (count % unit != 0);
    size_t of_each = num_units / (size_t)size + (num_units % (size_t)size != 0);
    size_t first = of_each * (size_t)rank * unit;
    size_t end = first + of_each * unit;
    first = first < count ? first : count;
    end = end < count ? end : count;
    *out_first = first;
    *out_count = end - first;
}

size_t pattern_part_bytes(size_t chunk_bytes, int32_t num_parts)
{
    return num_parts <= 1 ? chunk_bytes : chunk_bytes / (size_t)num_parts / LINE * LINE;
}

uint32_t pattern_rounds(size_t bytes, size_t part_bytes)
{
    return bytes == 0 ? 1 : (uint32_t)((bytes - 1) / part_bytes + 1);
}

int32_t pattern_part_index(int32_t owner, int32_t reader, int32_t size)
{
    return (reader - owner - 1 + size) % size;
}
