/* Passing file descriptors between the ranks of one host, over an abstract unix socket.
 *
 * Needs a common network namespace and nothing else: no process ids, no mount, no right to trace,
 * no file left behind. connect and sendmsg complete before the peer accepts, so that all ranks may
 * first send and then receive. */
#ifndef COMM_SOCKET_H
#define COMM_SOCKET_H

#include <stdint.h>

#include "uncopy/status.h"

enum { SOCKET_NAME_BYTES = 48, SOCKET_DESCRIPTORS = 2 };

/* A listening socket with a random name. Errors: UNCOPY_ERROR_APART (there are none here). */
UNCOPY_MUST_CHECK uncopy_status_t socket_listen(char name[SOCKET_NAME_BYTES], int32_t num_peers,
                                                int *out_listener);

/* What goes with the descriptors; token proves that the sender has read the receiver's card. */
typedef struct socket_message {
    uint64_t token;
    int32_t rank;
    uint32_t subject;
    int32_t num_descriptors;
    int32_t descriptors[SOCKET_DESCRIPTORS]; /* of the receiver, once received; its own to close */
} socket_message_t;

UNCOPY_MUST_CHECK uncopy_status_t socket_send(const char *name, const socket_message_t *message);
/* The next message whose token is right and whose sender is this user's; others are dropped. Waits
 * at most timeout_ms. Errors: UNCOPY_ERROR_TIMEOUT, UNCOPY_ERROR_APART (another user's, with the
 * right token), UNCOPY_ERROR_SYSTEM. */
UNCOPY_MUST_CHECK uncopy_status_t socket_receive(int listener, uint64_t token, int32_t timeout_ms,
                                                 socket_message_t *out_message);
void socket_close_descriptors(socket_message_t *message);

/* Random bytes. */
UNCOPY_MUST_CHECK uncopy_status_t socket_random(void *bytes, uint32_t size);

#endif
