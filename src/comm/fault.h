/* How a communicator breaks and how ranks hear of it.
 *
 * Each rank's segment has one abort record. Whoever first knows a cause writes it into every record
 * that is empty and wakes whoever sleeps; a rank looks at its own record at the start of each call
 * and in each slow wait. A record is written once, so a communicator stays broken. */
#ifndef COMM_FAULT_H
#define COMM_FAULT_H

#include "comm/comm.h"

/* Breaks the communicator with code and words here, and with what the peers should see there.
 * Returns code with the thread's message set. */
uncopy_status_t fault_break(comm_t *comm, uncopy_status_t code, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
/* UNCOPY_OK, or what broke the communicator, with the message set. */
UNCOPY_MUST_CHECK uncopy_status_t fault_state(comm_t *comm);
/* As fault_state, but only for what broke it in the running collective or before. */
UNCOPY_MUST_CHECK uncopy_status_t fault_state_of_call(comm_t *comm);
/* Whether rank has ended or left. */
bool fault_is_gone(comm_t *comm, int32_t rank, bool is_thorough);
/* Words for the cause: "died", "left the communicator". */
const char *fault_gone_words(comm_t *comm, int32_t rank);
/* Deadline and interrupt of a call: UNCOPY_OK, or a code without words. */
uncopy_status_t fault_check_deadline(comm_deadline_t *deadline);

#endif
