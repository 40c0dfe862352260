/* elsewhere.c - preloaded behind Beeline: makes a rank seem to be on another host, or another user's.
 *
 *   TEST_HOST=NAME       sockets in the abstract namespace are those of the processes with the same NAME alone
 *   TEST_USER=UID        what this process is told of itself (geteuid), and others of it (SO_PEERCRED)
 *   TEST_LINGER_MS=N     so long after it listens nothing else happens
 *   TEST_LATE_MS=N       so long before it connects to anyone
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define REAL(function) ((__typeof__(function) *)dlsym(RTLD_NEXT, #function))

static void rest(const char *ms) {
    if (ms) nanosleep(&(struct timespec){.tv_sec = atoi(ms) / 1000, .tv_nsec = atoi(ms) % 1000 * 1000000L}, NULL);
}

/* The address as it is on this host. */
static socklen_t here(const struct sockaddr *address, socklen_t length, struct sockaddr_un *moved) {
    const char *host = getenv("TEST_HOST");
    if (address->sa_family != AF_UNIX || length > sizeof *moved) return 0;
    memcpy(moved, address, length);
    if (!host || length <= offsetof(struct sockaddr_un, sun_path) || moved->sun_path[0]) return 0;
    const size_t used = length - offsetof(struct sockaddr_un, sun_path), room = sizeof moved->sun_path - used;
    return length + (socklen_t)snprintf(moved->sun_path + used, room, "@%s", host);
}

int bind(int fd, const struct sockaddr *address, socklen_t length) {
    struct sockaddr_un moved;
    const socklen_t size = here(address, length, &moved);
    return size ? REAL(bind)(fd, (struct sockaddr *)&moved, size) : REAL(bind)(fd, address, length);
}

int connect(int fd, const struct sockaddr *address, socklen_t length) {
    static atomic_bool rested;
    struct sockaddr_un moved;
    if (!atomic_exchange(&rested, true)) rest(getenv("TEST_LATE_MS"));
    const socklen_t size = here(address, length, &moved);
    return size ? REAL(connect)(fd, (struct sockaddr *)&moved, size) : REAL(connect)(fd, address, length);
}

int listen(int fd, int backlog) {
    const int result = REAL(listen)(fd, backlog);
    rest(getenv("TEST_LINGER_MS"));
    return result;
}

uid_t geteuid(void) {
    const char *user = getenv("TEST_USER");
    return user ? (uid_t)atoi(user) : REAL(geteuid)();
}

static uid_t user_of(pid_t pid, uid_t real) {
    static char text[1 << 17];
    static const char variable[] = "TEST_USER=";
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) close(fd);
    if (got <= 0) return real;
    text[got] = 0;
    for (const char *at = text; at < text + got; at += strlen(at) + 1)
        if (!strncmp(at, variable, sizeof variable - 1)) return (uid_t)atoi(at + sizeof variable - 1);
    return real;
}

int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict size) {
    const int result = REAL(getsockopt)(fd, level, name, value, size);
    if (result || level != SOL_SOCKET || name != SO_PEERCRED) return result;
    struct ucred *peer = value;
    peer->uid = user_of(peer->pid, peer->uid);
    return 0;
}
