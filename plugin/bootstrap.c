/* bootstrap.c - the mesh of Unix sockets. */
#define _GNU_SOURCE /* accept4 */
#include "bootstrap.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { BACKLOG = 64, SLICE_MS = 100 };

static const uint32_t magic = 0xbee11e01;

struct hello {
    uint32_t magic, rank;
    unsigned char cookie[BL_MESH_COOKIE];
};

struct header {
    uint32_t magic, step;
};

uint64_t bl_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int bl_random(void *bytes, size_t count, char *why, size_t size) {
    size_t got = 0;
    while (got < count) {
        ssize_t n = getrandom((char *)bytes + got, count - got, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            snprintf(why, size, "random numbers (getrandom) failed: %s", strerror(errno));
            return -1;
        }
        got += (size_t)n;
    }
    return 0;
}

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
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

static socklen_t address_of(struct sockaddr_un *address, const char *name) {
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    size_t length = strnlen(name, BL_MESH_NAME - 1);
    memcpy(address->sun_path + 1, name, length); /* a leading zero byte: the abstract namespace */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static int new_socket(char *why, size_t size) {
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) snprintf(why, size, "making a Unix socket failed: %s", strerror(errno));
    return fd;
}

void bl_mesh_init(struct bl_mesh *mesh, int rank, int nranks, const atomic_bool *cancel) {
    *mesh = (struct bl_mesh){.rank = rank, .nranks = nranks, .listener = -1, .cancel = cancel};
    for (int peer = 0; peer < BL_MAX_RANKS; peer++) mesh->fd[peer] = -1;
}

int bl_mesh_listen(struct bl_mesh *mesh, char *name, char *why, size_t size) {
    uint64_t random[2];
    if (bl_random(random, sizeof(random), why, size)) return -1;
    snprintf(name, BL_MESH_NAME, "beeline-%016llx%.15llx", (unsigned long long)random[0],
             (unsigned long long)(random[1] >> 4));
    struct sockaddr_un address;
    socklen_t length = address_of(&address, name);
    mesh->listener = new_socket(why, size);
    if (mesh->listener < 0) return -1;
    if (bind(mesh->listener, (struct sockaddr *)&address, length) || listen(mesh->listener, BACKLOG)) {
        snprintf(why, size, "listening on a Unix socket failed: %s", strerror(errno));
        close_fd(&mesh->listener);
        return -1;
    }
    return 0;
}

/* What a refusal means: nobody listens there any more. */
static bool is_gone(int error) {
    return error == ECONNREFUSED || error == EPIPE || error == ECONNRESET;
}

int bl_mesh_connect(struct bl_mesh *mesh, int peer, const char *name, const unsigned char *cookie, uint64_t deadline,
                    int *culprit, char *why, size_t size) {
    struct sockaddr_un address;
    socklen_t length = address_of(&address, name);
    int fd = new_socket(why, size);
    *culprit = mesh->rank;
    if (fd < 0) return -1;
    mesh->fd[peer] = fd;
    struct hello hello = {.magic = magic, .rank = (uint32_t)mesh->rank};
    memcpy(hello.cookie, cookie, BL_MESH_COOKIE);
    /* A full backlog is the one reason to try again: on a Unix socket everything else is final. */
    while (connect(fd, (struct sockaddr *)&address, length)) {
        bool full = errno == EAGAIN || errno == EINTR;
        if (full && bl_clock_ns() < deadline) {
            poll(NULL, 0, 1);
            continue;
        }
        *culprit = full || is_gone(errno) ? peer : mesh->rank;
        if (is_gone(errno))
            snprintf(why, size, "rank %d is gone", peer);
        else
            snprintf(why, size, "connecting to rank %d failed: %s", peer,
                     full ? "it does not accept" : strerror(errno));
        close_fd(&mesh->fd[peer]);
        return -1;
    }
    /* That a peer left just now shows when we hear from it. */
    if (send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) == (ssize_t)sizeof(hello) || is_gone(errno)) return 0;
    snprintf(why, size, "greeting rank %d failed: %s", peer, strerror(errno));
    return -1;
}

/* The rank that is at the other end of a new connection, or -1 if it is none that we wait for. */
static int greet(struct bl_mesh *mesh, int fd, const unsigned char *cookies, size_t stride, uint64_t deadline) {
    struct hello hello;
    /* The greeting is sent right behind the connection: a stranger who sends none must not use up our time. */
    uint64_t soon = bl_clock_ns() + 2000000000u;
    if (!wait_for(mesh, fd, POLLIN, soon < deadline ? soon : deadline)) return -1;
    if (recv(fd, &hello, sizeof(hello), 0) != (ssize_t)sizeof(hello) || hello.magic != magic) return -1;
    if (hello.rank <= (uint32_t)mesh->rank || hello.rank >= (uint32_t)mesh->nranks) return -1;
    if (mesh->fd[hello.rank] >= 0) return -1;
    return memcmp(hello.cookie, cookies + hello.rank * stride, BL_MESH_COOKIE) ? -1 : (int)hello.rank;
}

int bl_mesh_accept(struct bl_mesh *mesh, const unsigned char *cookies, size_t stride, uint64_t deadline, int *missing,
                   char *why, size_t size) {
    for (;;) {
        *missing = mesh->nranks;
        for (int peer = mesh->rank + 1; peer < mesh->nranks && *missing == mesh->nranks; peer++)
            if (mesh->fd[peer] < 0) *missing = peer;
        if (*missing == mesh->nranks) break;
        if (!wait_for(mesh, mesh->listener, POLLIN, deadline)) {
            snprintf(why, size, "rank %d did not connect in time", *missing);
            return -1;
        }
        int fd = accept4(mesh->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EINTR || errno == EAGAIN || errno == ECONNABORTED) continue;
            snprintf(why, size, "accepting the connection of rank %d failed: %s", *missing, strerror(errno));
            return -1;
        }
        int peer = greet(mesh, fd, cookies, stride, deadline);
        if (peer < 0)
            close_fd(&fd);
        else
            mesh->fd[peer] = fd;
    }
    close_fd(&mesh->listener);
    return 0;
}

int bl_mesh_send(struct bl_mesh *mesh, int peer, uint32_t step, const void *data, size_t bytes, int fd,
                 uint64_t deadline, char *why, size_t size) {
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
        snprintf(why, size, "sending to rank %d failed: %s", peer, strerror(errno));
        return -1;
    }
    return 0;
}

int bl_mesh_receive(struct bl_mesh *mesh, int peer, uint32_t *step, void *data, size_t room, size_t *bytes, int *fd,
                    uint64_t deadline, char *why, size_t size) {
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
            snprintf(why, size, "rank %d did not answer in time", peer);
            return -1;
        }
        got = recvmsg(mesh->fd[peer], &message, MSG_CMSG_CLOEXEC);
        /* A reset comes before what the peer sent while it was there, and only once. */
    } while (got < 0 && (errno == EINTR || errno == EAGAIN || errno == ECONNRESET));
    if (got <= 0) {
        snprintf(why, size, "rank %d is gone%s%s", peer, got ? ": " : "", got ? strerror(errno) : "");
        return -1;
    }
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    if (rights && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS)
        memcpy(fd, CMSG_DATA(rights), sizeof(int));
    if ((size_t)got < sizeof(header) || header.magic != magic || message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        close_fd(fd);
        snprintf(why, size, "rank %d sent what cannot be read (out of file descriptors?)", peer);
        return -1;
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
    close_fd(&mesh->listener);
    for (int peer = 0; peer < BL_MAX_RANKS; peer++) close_fd(&mesh->fd[peer]);
}
