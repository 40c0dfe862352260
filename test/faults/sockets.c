/* sockets.c - preloaded behind Beeline: lets a socket call of one rank go wrong at a chosen time.
 *
 *   TEST_SOCKETS=function@rank#nth=what     function: socket, connect, accept4, sendmsg, recvmsg; nth counts from 1 and
 * is of the sockets that Beeline uses (SOCK_SEQPACKET); what: kill, hang (20 seconds, then exit), or EPERM
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* True if the call is to fail with EPERM; does not come back from kill. */
static bool goes_wrong(const char *function) {
    static atomic_int calls;
    const char *text = getenv("TEST_SOCKETS"), *rank = getenv("RANK");
    char name[16], what[16];
    int at, nth;
    if (!text || sscanf(text, "%15[a-z0-9]@%d#%d=%15s", name, &at, &nth, what) != 4) return false;
    if (strcmp(name, function) || !rank || atoi(rank) != at) return false;
    if (atomic_fetch_add(&calls, 1) + 1 != nth) return false;
    if (!strcmp(what, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(what, "hang")) {
        sleep(20);
        _exit(0);
    }
    errno = EPERM;
    return true;
}

static bool is_beelines(int fd) {
    int type = 0;
    socklen_t size = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

#define REAL(function) ((__typeof__(function) *)dlsym(RTLD_NEXT, #function))

int socket(int domain, int type, int protocol) {
    if ((type & 0xf) == SOCK_SEQPACKET && goes_wrong("socket")) return -1;
    return REAL(socket)(domain, type, protocol);
}

int connect(int fd, const struct sockaddr *address, socklen_t length) {
    if (is_beelines(fd) && goes_wrong("connect")) return -1;
    return REAL(connect)(fd, address, length);
}

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags) {
    if (is_beelines(fd) && goes_wrong("accept4")) return -1;
    return REAL(accept4)(fd, address, length, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    if (is_beelines(fd) && goes_wrong("sendmsg")) return -1;
    return REAL(sendmsg)(fd, message, flags);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    if (is_beelines(fd) && goes_wrong("recvmsg")) return -1;
    return REAL(recvmsg)(fd, message, flags);
}
