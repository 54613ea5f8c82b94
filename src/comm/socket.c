/* Passing file descriptors: see socket.h. */
#include "comm/socket.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/status.h"

typedef union control {
    struct cmsghdr header;
    char room[CMSG_SPACE(SOCKET_DESCRIPTORS * sizeof(int))];
} control_t;

/* What is sent beside the descriptors. */
typedef struct hello {
    uint64_t token;
    int32_t rank;
    uint32_t subject;
} hello_t;

uncopy_status_t socket_random(void *bytes, uint32_t size)
{
    return getrandom(bytes, size, 0) == (ssize_t)size
               ? UNCOPY_OK
               : status_fail(UNCOPY_ERROR_SYSTEM, "getrandom: %s", strerror(errno));
}

/* Abstract: the first byte of the path is 0. */
static socklen_t address_of(const char *name, struct sockaddr_un *address)
{
    size_t length = strnlen(name, SOCKET_NAME_BYTES);
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path + 1, name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

uncopy_status_t socket_listen(char name[SOCKET_NAME_BYTES], int32_t num_peers, int *out_listener)
{
    uint64_t random[2];
    uncopy_status_t status = socket_random(random, sizeof(random));
    if (status != UNCOPY_OK) {
        return status;
    }
    (void)snprintf(name, SOCKET_NAME_BYTES, "uncopy-%016llx%016llx", (unsigned long long)random[0],
                   (unsigned long long)random[1]);
    struct sockaddr_un address;
    socklen_t length = address_of(name, &address);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) != 0 ||
        listen(listener, 4 * num_peers + 4) != 0) {
        status = status_fail(UNCOPY_ERROR_APART, "an abstract unix socket: %s", strerror(errno));
        if (listener >= 0) {
            (void)close(listener);
        }
        return status;
    }
    *out_listener = listener;
    return UNCOPY_OK;
}

static int send_on(int connection, const socket_message_t *message)
{
    hello_t hello = {message->token, message->rank, message->subject};
    struct iovec part = {&hello, sizeof(hello)};
    control_t control;
    memset(&control, 0, sizeof(control));
    size_t bytes = (size_t)message->num_descriptors * sizeof(int);
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.room,
                            .msg_controllen = CMSG_SPACE(bytes)};
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(&control.header), message->descriptors, bytes);
    return sendmsg(connection, &header, MSG_NOSIGNAL) == (ssize_t)sizeof(hello) ? 0 : errno;
}

uncopy_status_t socket_send(const char *name, const socket_message_t *message)
{
    struct sockaddr_un address;
    socklen_t length = address_of(name, &address);
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int error = connection < 0 ? errno : 0;
    if (error == 0 && connect(connection, (struct sockaddr *)&address, length) != 0) {
        error = errno;
    }
    if (error == 0) {
        error = send_on(connection, message);
    }
    if (connection >= 0) {
        (void)close(connection);
    }
    return error == 0
               ? UNCOPY_OK
               : status_fail(UNCOPY_ERROR_SYSTEM, "abstract unix socket: %s%s", strerror(error),
                             error == ECONNREFUSED ? " (another network namespace?)" : "");
}

static void take_descriptors(struct msghdr *header, socket_message_t *message)
{
    message->num_descriptors = 0;
    struct cmsghdr *control = CMSG_FIRSTHDR(header);
    if (control == NULL || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) {
        return;
    }
    size_t bytes = control->cmsg_len - CMSG_LEN(0);
    memcpy(message->descriptors, CMSG_DATA(control), bytes);
    message->num_descriptors = (int32_t)(bytes / sizeof(int));
}

typedef enum sender {
    SENDER_RANK,
    SENDER_STRANGER,
    SENDER_OTHER_USER, /* knows the token */
} sender_t;

/* One message from one connection. */
static sender_t receive_on(int connection, uint64_t token, socket_message_t *message)
{
    struct ucred sender;
    socklen_t length = sizeof(sender);
    hello_t hello;
    struct iovec part = {&hello, sizeof(hello)};
    control_t control;
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.room,
                            .msg_controllen = sizeof(control.room)};
    bool is_own_user = getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &sender, &length) == 0 &&
                       sender.uid == geteuid();
    ssize_t received = recvmsg(connection, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (received < 0) {
        return SENDER_STRANGER;
    }
    take_descriptors(&header, message);
    bool knows_token = received == (ssize_t)sizeof(hello) && hello.token == token;
    if (!is_own_user || !knows_token || (header.msg_flags & MSG_CTRUNC) != 0) {
        socket_close_descriptors(message);
        return knows_token && !is_own_user ? SENDER_OTHER_USER : SENDER_STRANGER;
    }
    message->token = hello.token;
    message->rank = hello.rank;
    message->subject = hello.subject;
    return SENDER_RANK;
}

uncopy_status_t socket_receive(int listener, uint64_t token, int32_t timeout_ms,
                               socket_message_t *out_message)
{
    for (;;) {
        struct pollfd ready = {listener, POLLIN, 0};
        int count = poll(&ready, 1, timeout_ms);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count == 0) {
            return status_fail(UNCOPY_ERROR_TIMEOUT, "no descriptors came within %d ms",
                               timeout_ms);
        }
        int connection = count < 0 ? -1 : accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (connection < 0) {
            return status_fail(UNCOPY_ERROR_SYSTEM, "accept: %s", strerror(errno));
        }
        sender_t sender = receive_on(connection, token, out_message);
        (void)close(connection);
        if (sender == SENDER_OTHER_USER) {
            return status_fail(UNCOPY_ERROR_APART, "a rank of another user than %u",
                               (unsigned)geteuid());
        }
        if (sender == SENDER_RANK) {
            return UNCOPY_OK;
        }
    }
}

void socket_close_descriptors(socket_message_t *message)
{
    for (int32_t i = 0; i < message->num_descriptors; i++) {
        (void)close(message->descriptors[i]);
    }
    message->num_descriptors = 0;
}
