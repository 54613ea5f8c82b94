/* The step: the one primitive of all collectives.
 *
 * Step k of a communicator uses slot k & 1 of each rank: a rank fills its slot, posts k in the
 * slot's flag, then waits until every peer's slot shows k.
 *
 *   s1  A rank posts k + 1 only after it has seen k in every peer's slot.
 *   s2  A rank posts k + 1 only after it has stopped reading the slots of step k.
 *
 * So when somebody fills a slot for k + 2, all have posted k + 1 (s1), hence nobody still reads
 * step k (s2): two slots suffice and nothing is acknowledged. A source that peers read where it
 * lies may change after one more step than the one that announced it, by s2 again.
 *
 *   rank 0   fill k   post k   wait for 1's k   read 1's k   fill k+1   post k+1   ...
 *   rank 1       fill k   post k   wait for 0's k   read 0's k   fill k+1   ...
 *
 * The first step of a collective carries what each rank calls; whoever arrives compares. */
#ifndef COMM_STEP_H
#define COMM_STEP_H

#include "comm/comm.h"

/* The own slot of the next step, to be filled. */
comm_slot_t *step_next(comm_t *comm);
/* A peer's slot of the step posted last. */
comm_slot_t *step_slot(comm_t *comm, int32_t peer);

/* Fills the next slot's header with the call's signature and its source. */
void step_announce(comm_t *comm, comm_source_t source, uint32_t rounds);
void step_post(comm_t *comm);
/* Waits until peer has posted the step that this rank posted last. */
UNCOPY_MUST_CHECK uncopy_status_t step_wait(comm_t *comm, int32_t peer);
/* step_wait, then compares signatures. */
UNCOPY_MUST_CHECK uncopy_status_t step_arrive(comm_t *comm, int32_t peer);
/* For all peers. */
UNCOPY_MUST_CHECK uncopy_status_t step_wait_all(comm_t *comm);
UNCOPY_MUST_CHECK uncopy_status_t step_arrive_all(comm_t *comm);
/* Breaks the communicator with UNCOPY_ERROR_PEER if a peer is gone, whatever it has posted. */
UNCOPY_MUST_CHECK uncopy_status_t step_check_alive(comm_t *comm);
/* A step without content: all have finished with the one before. */
UNCOPY_MUST_CHECK uncopy_status_t step_close(comm_t *comm);

#endif
