/* Shared by the files of the host's entries: operands of one call, and the GIL around Python. */
#ifndef UNCOPY_EXT_HOST_INTERNAL_H
#define UNCOPY_EXT_HOST_INTERNAL_H

#include "host.h"

/* What a frame's slot holds. */
typedef struct host_frame {
    tensor_t arena;
    int64_t arena_bytes;
    tensor_table_t views; /* of arena and constants, by id */
} host_frame_t;

/* The frame's data, made on first use; NULL without memory. */
host_frame_t *host_frame_of(uncopy_frame_t *frame);

static inline void host_take_gil(host_call_t *call, bool *out_was_given)
{
    *out_was_given = call->thread != NULL;
    if (*out_was_given) {
        PyEval_RestoreThread(call->thread);
        call->thread = NULL;
    }
}

static inline void host_give_gil(host_call_t *call, bool was_given)
{
    if (was_given) {
        call->thread = PyEval_SaveThread();
    }
}

static inline tensor_layout_t host_layout(const uncopy_bound_t *bound)
{
    return (tensor_layout_t){bound->dtype, bound->rank, bound->sizes, bound->strides};
}

/* Whether an operand is exactly what the caller passed. */
bool host_is_callers(const host_call_t *call, const uncopy_bound_t *bound);

/* The handle of an operand; NULL where it cannot be had by handles alone. No GIL needed. */
void *host_operand_handle(host_call_t *call, uncopy_frame_t *frame, const uncopy_bound_t *bound);

/* The object of an operand, borrowed from the call or the frame; NULL with an exception. */
PyObject *host_operand(host_call_t *call, uncopy_frame_t *frame, const uncopy_bound_t *bound);

/* Notes that bytes of an argument are written by a route that its version counter does not see. */
void host_note_write(host_call_t *call, const uncopy_bound_t *bound);

/* Entries. */
uncopy_status_t host_enter_call(void *self, uncopy_frame_t *frame, void *call_data,
                                const uncopy_call_t *operation);
uncopy_status_t host_enter_collective(void *self, uncopy_frame_t *frame, void *call_data,
                                      const uncopy_collective_t *collective);
uncopy_comm_t *host_find_comm(void *self, void *call_data, const char *group_name);
int host_is_interrupted(void *self, void *call_data);
uncopy_status_t host_enter_fence(void *self, uncopy_frame_t *frame, void *call_data, uint32_t work);

/* Adds to the exception that is set where it arose: operation, operands, source line. */
void host_note_call(const uncopy_call_t *operation);
void host_note_collective(const uncopy_collective_t *collective);

/* Waits for works in flight and drops them. */
void host_finish_works(host_call_t *call, bool has_failed);

/* Recipe number host_id of the call's function; NULL with an exception. */
recipe_object_t *host_recipe(const host_call_t *call, int64_t host_id);

#endif
