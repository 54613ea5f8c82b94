/* Publishing sources: see source.h. */
#include "comm/source.h"

#include "base/status.h"
#include "comm/fault.h"
#include "comm/step.h"
#include "comm/tuning.h"

/* A row whole, the parts of all ranks in it. */
static size_t hull_bytes(const comm_t *comm, const pattern_t *pattern, const pattern_row_t *row)
{
    return pattern->is_by_rank ? row->bytes : row->bytes + row->stride * (size_t)(comm->size - 1);
}

/* Where a row lies in a window; false: in none. */
static bool locate(comm_t *comm, const pattern_t *pattern, const pattern_row_t *row,
                   comm_remote_row_t *out)
{
    *out = (comm_remote_row_t){.bytes = row->bytes, .stride = row->stride};
    if (row->bytes == 0) {
        return true;
    }
    comm_window_t *window = comm_window_find(comm, row->address, hull_bytes(comm, pattern, row));
    if (window == NULL) {
        return false;
    }
    out->window = window->number;
    out->offset = (uint64_t)(row->address - window->memory.parts[comm->rank]);
    return true;
}

/* One row whose parts are the same or follow each other: the header alone names it. */
static bool is_plain(const pattern_t *source)
{
    return source->num_rows == 1 && !source->is_by_rank &&
           (source->rows->stride == 0 || source->rows->stride == source->rows->bytes);
}

/* Rows go to the payload, which a window's source does not use otherwise. */
static bool announce_window(comm_t *comm, const pattern_t *source)
{
    comm_slot_t *slot = step_next(comm);
    comm_remote_row_t first;
    if (source->num_rows == 0 || !locate(comm, source, source->rows, &first)) {
        return false;
    }
    if (is_plain(source)) {
        slot->header.window = first.window;
        slot->header.address = first.offset;
        slot->header.strided = first.stride != 0;
        return true;
    }
    comm_remote_row_t *rows = (comm_remote_row_t *)(void *)slot->payload;
    if (source->num_rows > comm->chunk_bytes / sizeof(*rows)) {
        return false;
    }
    for (size_t i = 0; i < source->num_rows; i++) {
        if (!locate(comm, source, &source->rows[i], &rows[i])) {
            return false;
        }
    }
    slot->header.rows = (uint32_t)source->num_rows;
    return true;
}

static bool fits_beside_header(const comm_t *comm, size_t bytes, size_t part_bytes)
{
    size_t most = comm->is_crowded ? TUNING_BESIDE_HEADER_CROWDED : TUNING_BESIDE_HEADER;
    return bytes <= most && bytes <= part_bytes;
}

comm_source_t source_announce(comm_t *comm, const pattern_t *source, size_t bytes,
                              size_t part_bytes, size_t most_read)
{
    comm_header_t *header = &step_next(comm)->header;
    if (bytes == 0) {
        step_announce(comm, COMM_SOURCE_NONE, 1);
        return COMM_SOURCE_NONE;
    }
    step_announce(comm, COMM_SOURCE_STAGED, pattern_rounds(bytes, part_bytes));
    if (fits_beside_header(comm, bytes, part_bytes)) {
        return COMM_SOURCE_STAGED;
    }
    if (announce_window(comm, source)) {
        header->source = COMM_SOURCE_WINDOW;
        header->rounds = 1;
        return COMM_SOURCE_WINDOW;
    }
    if (comm->can_read && !comm->is_crowded && bytes >= TUNING_READ_FROM && bytes <= most_read &&
        is_plain(source)) {
        header->source = COMM_SOURCE_READ;
        header->strided = source->rows->stride != 0;
        header->address = (uint64_t)(uintptr_t)source->rows->address;
        header->rounds = 1;
        return COMM_SOURCE_READ;
    }
    header->rows = 0;
    return COMM_SOURCE_STAGED;
}

size_t source_num_rows(comm_t *comm, int32_t peer)
{
    const comm_header_t *header = &step_slot(comm, peer)->header;
    return header->source == COMM_SOURCE_WINDOW ? header->rows : 0;
}

/* Of rows that are not by rank only this rank's part need lie in the window. */
static uncopy_status_t resolve(comm_t *comm, int32_t peer, bool is_by_rank,
                               const comm_remote_row_t *remote, pattern_row_t *row)
{
    *row = (pattern_row_t){.bytes = remote->bytes, .stride = remote->stride};
    if (remote->bytes == 0) {
        return UNCOPY_OK;
    }
    uint64_t skipped = is_by_rank ? 0 : (uint64_t)comm->rank * remote->stride;
    char *part =
        comm_window_resolve(comm, remote->window, peer, remote->offset + skipped, remote->bytes);
    if (part == NULL) {
        return fault_break(comm, UNCOPY_ERROR_SYSTEM,
                           "rank %d published bytes of window %u that rank %d does not see", peer,
                           remote->window, comm->rank);
    }
    row->address = part - skipped;
    return UNCOPY_OK;
}

uncopy_status_t source_view(comm_t *comm, int32_t peer, size_t bytes, bool is_by_rank,
                            pattern_row_t *rows, source_view_t *view)
{
    comm_slot_t *slot = step_slot(comm, peer);
    const comm_header_t *header = &slot->header;
    view->kind = (comm_source_t)header->source;
    view->rounds = header->rounds;
    view->address = header->address + (header->strided != 0 ? (uint64_t)comm->rank * bytes : 0);
    if (view->kind != COMM_SOURCE_WINDOW) {
        return UNCOPY_OK;
    }
    if (header->rows == 0) {
        comm_remote_row_t only = {.offset = header->address,
                                  .bytes = bytes,
                                  .stride = header->strided != 0 ? bytes : 0,
                                  .window = header->window};
        view->pattern = (pattern_t){&view->row, 1, false};
        return resolve(comm, peer, false, &only, &view->row);
    }
    const comm_remote_row_t *remote = (const comm_remote_row_t *)(const void *)slot->payload;
    view->pattern = (pattern_t){rows, header->rows, is_by_rank};
    for (uint32_t i = 0; i < header->rows; i++) {
        TRY(resolve(comm, peer, is_by_rank, &remote[i], &rows[i]));
    }
    return UNCOPY_OK;
}
