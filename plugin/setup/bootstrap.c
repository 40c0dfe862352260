/* bootstrap.c - the mesh of Unix sockets. */
#include "bootstrap.h"
#include "base/clock.h"
#include "base/why.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SLICE_MS = 100 };

static const uint32_t magic = 0xbee11e01;

struct header {
    uint32_t magic, step;
};

int bl_random(void *bytes, size_t count) {
    size_t got = 0;
    while (got < count) {
        ssize_t n = getrandom((char *)bytes + got, count - got, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return bl_fail("random numbers (getrandom) failed: %s", strerror(errno));
        got += (size_t)n;
    }
    return 0;
}

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

void bl_hang_up(int *fd) {
    if (*fd >= 0) shutdown(*fd, SHUT_RDWR);
    close_fd(fd);
}

/* Waits until fd is ready for `events`.  1: ready (or broken, which the next call on it will tell), 0: too late, or
 * cancelled. */
static int wait_for(const struct bl_mesh *mesh, int fd, short events, uint64_t deadline) {
    for (;;) {
        if (mesh->cancel && atomic_load(mesh->cancel)) return 0;
        uint64_t now = bl_clock_ns();
        uint64_t left = now < deadline ? (deadline - now + 999999) / 1000000 : 0;
        struct pollfd poll_fd = {.fd = fd, .events = events};
        int ready = poll(&poll_fd, 1, left < SLICE_MS ? (int)left : SLICE_MS);
        if (ready > 0) return 1;
        if (ready < 0 && errno != EINTR) return 1;
        if (left == 0) return 0;
    }
}

void bl_mesh_init(struct bl_mesh *mesh, int rank, int nranks, const atomic_bool *cancel) {
    *mesh = (struct bl_mesh){.rank = rank, .nranks = nranks, .cancel = cancel};
    for (int peer = 0; peer < BL_MAX_RANKS; peer++) mesh->fd[peer] = -1;
}

/* What an error means: the peer is not there any more. */
static bool is_gone(int error) {
    return error == EPIPE || error == ECONNRESET;
}

int bl_mesh_send(struct bl_mesh *mesh, int peer, uint32_t step, const void *data, size_t bytes, int fd,
                 uint64_t deadline) {
    struct header header = {.magic = magic, .step = step};
    struct iovec parts[2] = {{&header, sizeof(header)}, {(void *)data, bytes}};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    if (fd >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof(control);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &fd, sizeof(int));
    }
    while (sendmsg(mesh->fd[peer], &message, MSG_NOSIGNAL) < 0) {
        if (errno == EINTR) continue;
        if (errno == EAGAIN && wait_for(mesh, mesh->fd[peer], POLLOUT, deadline)) continue;
        if (is_gone(errno)) return 0; /* the receiving half will tell of it */
        return bl_fail("sending to rank %d failed: %s", peer, strerror(errno));
    }
    return 0;
}

int bl_mesh_receive(struct bl_mesh *mesh, int peer, uint32_t *step, void *data, size_t room, size_t *bytes, int *fd,
                    uint64_t deadline) {
    struct header header = {0};
    struct iovec parts[2] = {{&header, sizeof(header)}, {data, room}};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {
        .msg_iov = parts, .msg_iovlen = 2, .msg_control = &control, .msg_controllen = sizeof(control)};
    *fd = -1;
    ssize_t got;
    do {
        if (!wait_for(mesh, mesh->fd[peer], POLLIN, deadline)) {
            if (mesh->cancel && atomic_load(mesh->cancel)) return bl_fail("the communicator is being destroyed");
            return bl_fail("rank %d did not answer in time", peer);
        }
        got = recvmsg(mesh->fd[peer], &message, MSG_CMSG_CLOEXEC);
        /* A reset comes before what the peer sent while it was there, and only once. */
    } while (got < 0 && (errno == EINTR || errno == EAGAIN || errno == ECONNRESET));
    if (got <= 0) return bl_fail("rank %d is gone%s%s", peer, got ? ": " : "", got ? strerror(errno) : "");
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    if (rights && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS)
        memcpy(fd, CMSG_DATA(rights), sizeof(int));
    if ((size_t)got < sizeof(header) || header.magic != magic || message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        close_fd(fd);
        return bl_fail("rank %d sent what cannot be read (out of file descriptors?)", peer);
    }
    *step = header.step;
    *bytes = (size_t)got - sizeof(header);
    return 0;
}

void bl_mesh_shut(struct bl_mesh *mesh) {
    for (int peer = 0; peer < mesh->nranks; peer++)
        if (mesh->fd[peer] >= 0) shutdown(mesh->fd[peer], SHUT_WR);
}

bool bl_mesh_all_shut(struct bl_mesh *mesh) {
    bool all = true;
    for (int peer = 0; peer < mesh->nranks; peer++) {
        char byte;
        ssize_t got = 1;
        if (mesh->fd[peer] < 0) continue;
        while (got > 0 || (got < 0 && errno == EINTR)) got = recv(mesh->fd[peer], &byte, 1, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            all = false;
        else
            close_fd(&mesh->fd[peer]);
    }
    return all;
}

void bl_mesh_close(struct bl_mesh *mesh) {
    for (int peer = 0; peer < BL_MAX_RANKS; peer++) bl_hang_up(&mesh->fd[peer]);
}
