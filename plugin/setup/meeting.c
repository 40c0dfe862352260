/* meeting.c - names that only holders of a key can compute, and the first words that ranks exchange there. */
#define _GNU_SOURCE /* accept4, struct ucred */
#include "meeting.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/version.h"
#include "base/clock.h"

enum { SLICE_MS = 100, PROTOCOL = 1, NOBODY = -2 /* no rank's */ };
static const uint64_t GRACE_NS = 500000000; /* a stranger's */

/* Of fixed size and meaning for all versions: a rank can tell any other why it does not go on. */
struct hello {
    uint32_t magic, protocol;
    int32_t from, to; /* places */
    int32_t rank, nranks;
    int32_t outcome, culprit;
    unsigned char proof[BL_SHA256_BYTES]; /* that the sender has the key */
    char build[48];
    char why[240];
    unsigned char spare[160];
};
_Static_assert(sizeof(struct hello) == 512, "for good");

static const uint32_t hello_magic = 0xbee11e00;

/* --- keys --- */
static void derive(unsigned char *digest, const void *secret, size_t bytes, const char *what, const void *facts,
                   size_t size) {
    struct bl_sha256 hash;
    bl_sha256_begin(&hash);
    bl_sha256_add(&hash, what, strlen(what) + 1);
    bl_sha256_add(&hash, secret, bytes);
    bl_sha256_add(&hash, facts, size);
    bl_sha256_end(&hash, digest);
}

static void derive_from(const struct bl_meeting *meeting, unsigned char *digest, const char *what, const void *facts,
                        size_t size) {
    derive(digest, meeting->key, sizeof(meeting->key), what, facts, size);
}

uint64_t bl_meeting_id(const struct bl_meeting *meeting) {
    unsigned char digest[BL_SHA256_BYTES];
    uint64_t id;
    derive_from(meeting, digest, "id", "", 0);
    memcpy(&id, digest, sizeof(id));
    return id;
}

static socklen_t address_of(const struct bl_meeting *meeting, int place, struct sockaddr_un *address) {
    const int32_t at = place;
    unsigned char digest[BL_SHA256_BYTES];
    char *path = address->sun_path;
    derive_from(meeting, digest, "name", &at, sizeof(at));
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int used = 1 + sprintf(path + 1, "beeline-"); /* a leading zero byte: the abstract namespace */
    for (int i = 0; i < 16; i++) used += sprintf(path + used, "%02x", digest[i]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)used);
}

static void prove(const struct bl_meeting *meeting, int from, int to, unsigned char *proof) {
    derive_from(meeting, proof, "hello", (const int32_t[2]){from, to}, 2 * sizeof(int32_t));
}

/* --- before the real init --- */
static int new_socket(void) {
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

void bl_meeting_none(struct bl_meeting *meeting, const char *why) {
    *meeting = (struct bl_meeting){.listener = -1};
    snprintf(meeting->why, sizeof(meeting->why), "%s", why);
}

static void open_at(struct bl_meeting *meeting, int place, int places) {
    struct sockaddr_un address;
    meeting->keyed = true;
    meeting->place = place;
    meeting->places = places;
    const socklen_t length = address_of(meeting, place, &address);
    meeting->listener = new_socket();
    if (meeting->listener < 0)
        snprintf(meeting->why, sizeof(meeting->why), "making a Unix socket failed: %s", strerror(errno));
    else if (bind(meeting->listener, (struct sockaddr *)&address, length) || listen(meeting->listener, SOMAXCONN)) {
        snprintf(meeting->why, sizeof(meeting->why), "listening on a Unix socket failed: %s", strerror(errno));
        bl_hang_up(&meeting->listener);
    }
}

void bl_meeting_of_ids(struct bl_meeting *meeting, const void *ids, size_t bytes, int rank, int nranks) {
    const int32_t of = nranks;
    bl_meeting_none(meeting, "");
    meeting->by_rank = true;
    derive(meeting->key, ids, bytes, "ids", &of, sizeof(of));
    if (nranks >= 2 && nranks <= BL_MAX_RANKS) {
        open_at(meeting, rank, nranks);
        return;
    }
    meeting->keyed = true;
    meeting->place = rank;
    meeting->places = nranks;
}

void bl_meeting_of_parent(struct bl_meeting *meeting, const struct bl_meeting *parent, int parent_rank,
                          int parent_nranks, const char *call, const void *facts, size_t bytes) {
    bl_meeting_none(meeting, "its parent is not known");
    if (!parent->keyed) return;
    derive_from(parent, meeting->key, call, facts, bytes);
    open_at(meeting, parent_rank, parent_nranks);
}

void bl_meeting_rekey(struct bl_meeting *meeting, const void *nonce, size_t bytes) {
    unsigned char key[BL_SHA256_BYTES];
    derive_from(meeting, key, "nonce", nonce, bytes);
    memcpy(meeting->key, key, sizeof(key));
}

void bl_meeting_close(struct bl_meeting *meeting) {
    bl_hang_up(&meeting->listener);
}

/* --- after it: greetings --- */
static bool is_of_our_user(int fd) {
    struct ucred peer;
    socklen_t size = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/* One rank's part, while it goes on. */
struct part {
    const struct bl_meeting *meeting;
    struct bl_mesh *mesh;
    struct bl_greetings *greetings;
    struct bl_verdict *mine;
};

static struct bl_contact *contact_at(const struct part *part, int place) {
    for (int i = 0; i < part->greetings->contact_count; i++)
        if (part->greetings->contact[i].place == place) return &part->greetings->contact[i];
    return NULL;
}

static struct bl_greeter *greeter_at(const struct part *part, int place) {
    for (int i = 0; i < part->greetings->greeter_count; i++)
        if (part->greetings->greeter[i].place == place) return &part->greetings->greeter[i];
    return NULL;
}

/* "rank 2", or of a child "a rank (2 of its parent)".  Returns the rank, or -1. */
static int name(const struct part *part, int place, char *text, size_t size) {
    const bool by_rank = part->meeting->by_rank;
    snprintf(text, size, by_rank ? "rank %d" : "a rank (%d of its parent)", place);
    return by_rank ? place : -1;
}

static void say_of(const struct part *part, int place, const char *what) {
    char who[60];
    const int culprit = name(part, place, who, sizeof(who));
    bl_verdict_say(part->mine, NOBODY, BL_FAILED, culprit, "%s %s", who, what);
}

/* What a holder of the key says.  True if the connection is kept. */
static bool heed(struct part *part, const struct hello *hello, int fd) {
    struct bl_greetings *greetings = part->greetings;
    const int own = part->mesh->rank, nranks = part->mesh->nranks, rank = hello->rank;
    bool known = rank < 0 || rank >= nranks || rank == own || hello->nranks != nranks;
    for (int i = 0; i < greetings->greeter_count; i++) known = known || greetings->greeter[i].rank == rank;
    if (hello->protocol != PROTOCOL || strcmp(hello->build, bl_build_name)) {
        bl_verdict_say(part->mine, own, BL_FAILED, -1, "rank %d runs another build of Beeline (%s) than rank %d (%s)",
                       rank, hello->build, own, bl_build_name);
    } else if (hello->outcome != BL_WELL) {
        const enum bl_outcome outcome = hello->outcome == BL_FAILED ? BL_FAILED : BL_DECLINED;
        const int culprit = hello->culprit >= 0 && hello->culprit < nranks ? hello->culprit : -1;
        bl_verdict_say(part->mine, NOBODY, outcome, culprit, "%s", hello->why);
    } else if (greeter_at(part, hello->from)) {
        return false;
    } else if (known || greetings->greeter_count == BL_MAX_RANKS) {
        bl_verdict_say(part->mine, own, BL_FAILED, -1, "a peer says that it is rank %d of %d", rank, hello->nranks);
    } else {
        greetings->greeter[greetings->greeter_count++] = (struct bl_greeter){hello->from, rank, fd};
        return true;
    }
    return false;
}

/* False as long as nothing came from there; else the connection is a greeter's, or closed. */
static bool hear_from(struct part *part, int fd) {
    const struct bl_meeting *meeting = part->meeting;
    struct hello hello;
    unsigned char proof[BL_SHA256_BYTES] = {0};
    ssize_t got;
    do /* a reset comes before what the peer sent while it was there, and only once */
        got = recv(fd, &hello, sizeof(hello), MSG_DONTWAIT);
    while (got < 0 && (errno == EINTR || errno == ECONNRESET));
    if (got < 0 && errno == EAGAIN) return false;
    bool known = got == (ssize_t)sizeof(hello) && hello.magic == hello_magic && hello.to == meeting->place &&
                 hello.from >= 0 && hello.from < meeting->places;
    if (known) prove(meeting, hello.from, hello.to, proof);
    known = known && !memcmp(proof, hello.proof, sizeof(proof));
    hello.build[sizeof(hello.build) - 1] = hello.why[sizeof(hello.why) - 1] = 0;
    if (!known || !heed(part, &hello, fd)) bl_hang_up(&fd);
    return true;
}

static void forget_stranger(struct bl_greetings *greetings, int i) {
    greetings->stranger[i] = greetings->stranger[--greetings->stranger_count];
}

/* Room for one more that has not said who it is; after some time they are thrown out. */
static bool has_room(struct bl_greetings *greetings) {
    const uint64_t now = bl_clock_ns();
    for (int i = 0; i < greetings->stranger_count && greetings->stranger_count == BL_STRANGERS; i++) {
        if (now - greetings->stranger[i].since < GRACE_NS) continue;
        bl_hang_up(&greetings->stranger[i].fd);
        forget_stranger(greetings, i--);
    }
    return greetings->stranger_count < BL_STRANGERS;
}

/* All that has come by now; false if strangers are in the way of more. */
static bool hear_all(struct part *part) {
    struct bl_greetings *greetings = part->greetings;
    for (int i = 0; i < greetings->stranger_count; i++)
        if (hear_from(part, greetings->stranger[i].fd)) forget_stranger(greetings, i--);
    while (has_room(greetings)) {
        int fd = accept4(part->meeting->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (fd < 0 && errno != EAGAIN)
            bl_verdict_say(part->mine, part->mesh->rank, BL_FAILED, part->mesh->rank,
                           "accepting a connection failed: %s", strerror(errno));
        if (fd < 0) return true;
        if (!is_of_our_user(fd))
            bl_hang_up(&fd);
        else if (!hear_from(part, fd))
            greetings->stranger[greetings->stranger_count++] = (struct bl_stranger){fd, bl_clock_ns()};
    }
    return false;
}

static bool cancelled(const struct part *part) {
    return part->mesh->cancel && atomic_load(part->mesh->cancel);
}

enum { ABSENT = -1, OWN_FAULT = -2 };

/* A connection to a place, ABSENT, or OWN_FAULT and errno. */
static int reach(struct part *part, int place, uint64_t deadline) {
    struct sockaddr_un address;
    const socklen_t length = address_of(part->meeting, place, &address);
    int fd = new_socket();
    if (fd < 0) return OWN_FAULT;
    while (connect(fd, (struct sockaddr *)&address, length)) {
        /* A full backlog is the one reason to try again: on a Unix socket everything else is final. */
        const bool full = errno == EAGAIN || errno == EINTR;
        if (full && bl_clock_ns() < deadline && !cancelled(part)) {
            if (part->meeting->listener >= 0) hear_all(part); /* ours may be full, too */
            poll(NULL, 0, 1);
            continue;
        }
        const int error = errno;
        close(fd);
        errno = error;
        return error == ECONNREFUSED ? ABSENT : OWN_FAULT;
    }
    if (is_of_our_user(fd)) return fd;
    close(fd);
    return ABSENT;
}

static void greet(const struct part *part, const struct bl_contact *contact) {
    const struct bl_verdict *mine = part->mine;
    struct hello hello = {.magic = hello_magic,
                          .protocol = PROTOCOL,
                          .from = part->meeting->place,
                          .to = contact->place,
                          .rank = part->mesh->rank,
                          .nranks = part->mesh->nranks,
                          .outcome = mine->outcome,
                          .culprit = mine->culprit};
    prove(part->meeting, hello.from, hello.to, hello.proof);
    memcpy(hello.build, bl_build_name, sizeof(hello.build));
    memcpy(hello.why, mine->why, sizeof(hello.why));
    send(contact->fd, &hello, sizeof(hello), MSG_NOSIGNAL); /* that a peer is gone shows when we hear from it */
}

static bool was_here(const struct part *part, int place) {
    return place == part->meeting->place || contact_at(part, place) || greeter_at(part, place);
}

static void say_who_is_missing(const struct part *part) {
    const int places = part->meeting->places, nranks = part->mesh->nranks;
    char who[100];
    int here = 0;
    for (int place = 0; place < places; place++) here += was_here(part, place);
    if (here >= nranks) return; /* one has left: why, another may have to tell */
    int used = snprintf(who, sizeof(who), "rank%s", nranks - here == 1 ? "" : "s");
    for (int place = 0; place < places && part->meeting->by_rank; place++)
        if (!was_here(part, place)) used += snprintf(who + used, sizeof(who) - (size_t)used, " %d", place);
    if (!part->meeting->by_rank) snprintf(who, sizeof(who), "%d of its %d ranks", nranks - here, nranks);
    bl_verdict_say(part->mine, part->mesh->rank, BL_DECLINED, -1,
                   "%s cannot be reached: without Beeline (or with BEELINE_ENABLE=0), on another host, in another "
                   "container's network, or another user's",
                   who);
}

void bl_meeting_greet(const struct bl_meeting *meeting, struct bl_mesh *mesh, struct bl_greetings *greetings,
                      struct bl_verdict *mine, uint64_t deadline) {
    struct part part = {meeting, mesh, greetings, mine};
    const int own = mesh->rank;
    *greetings = (struct bl_greetings){0};
    if (!meeting->keyed) {
        bl_verdict_say(mine, own, BL_DECLINED, -1, "%s", meeting->why);
        return;
    }
    if (meeting->listener < 0) bl_verdict_say(mine, own, BL_FAILED, own, "%s", meeting->why);
    for (int place = 0; place < meeting->places && greetings->contact_count < mesh->nranks - 1; place++) {
        if (place == meeting->place) continue;
        const int fd = reach(&part, place, deadline);
        if (fd >= 0)
            greetings->contact[greetings->contact_count++] = (struct bl_contact){place, fd};
        else if (fd == OWN_FAULT)
            bl_verdict_say(mine, own, BL_FAILED, own, "connecting to its peers failed: %s", strerror(errno));
    }
    if (mine->outcome == BL_WELL && greetings->contact_count < mesh->nranks - 1) {
        /* One that was here may have left already, with a word to us, maybe behind strangers. */
        while (!hear_all(&part) && mine->outcome == BL_WELL && bl_clock_ns() < deadline && !cancelled(&part))
            poll(NULL, 0, 1);
        say_who_is_missing(&part);
    }
    for (int i = 0; i < greetings->contact_count; i++) greet(&part, &greetings->contact[i]);
}

/* The place of one who has not greeted us, if there is one that has hung up; -1: all have. */
static int next_unheard(const struct part *part, bool *gone) {
    int unheard = -1;
    *gone = false;
    for (int i = 0; i < part->greetings->contact_count && !*gone; i++) {
        const struct bl_contact *contact = &part->greetings->contact[i];
        struct pollfd hung_up = {.fd = contact->fd};
        if (greeter_at(part, contact->place)) continue;
        unheard = contact->place;
        *gone = poll(&hung_up, 1, 0) > 0;
    }
    return unheard;
}

/* Until something may have come. */
static void wait(const struct part *part, int ms) {
    const struct bl_greetings *greetings = part->greetings;
    struct pollfd fds[1 + BL_STRANGERS + BL_MAX_RANKS];
    nfds_t count = 0;
    if (greetings->stranger_count < BL_STRANGERS)
        fds[count++] = (struct pollfd){.fd = part->meeting->listener, .events = POLLIN};
    for (int i = 0; i < greetings->stranger_count; i++)
        fds[count++] = (struct pollfd){.fd = greetings->stranger[i].fd, .events = POLLIN};
    for (int i = 0; i < greetings->contact_count; i++)
        if (!greeter_at(part, greetings->contact[i].place))
            fds[count++] = (struct pollfd){.fd = greetings->contact[i].fd};
    poll(fds, count, ms);
}

/* Of the two connections of a pair that is kept which the higher place made. */
static void settle(struct part *part) {
    struct bl_greetings *greetings = part->greetings;
    for (int i = 0; i < greetings->greeter_count; i++) {
        struct bl_greeter *greeter = &greetings->greeter[i];
        struct bl_contact *contact = contact_at(part, greeter->place);
        if (!contact) continue;
        int *kept = greeter->place > part->meeting->place ? &greeter->fd : &contact->fd;
        part->mesh->fd[greeter->rank] = *kept;
        *kept = -1;
    }
    for (int i = 0; i < greetings->greeter_count; i++) bl_hang_up(&greetings->greeter[i].fd);
    for (int i = 0; i < greetings->contact_count; i++) bl_hang_up(&greetings->contact[i].fd);
    for (int i = 0; i < greetings->stranger_count; i++) bl_hang_up(&greetings->stranger[i].fd);
}

void bl_meeting_hear(const struct bl_meeting *meeting, struct bl_mesh *mesh, struct bl_greetings *greetings,
                     struct bl_verdict *mine, uint64_t deadline) {
    struct part part = {meeting, mesh, greetings, mine};
    bool gone;
    int missing;
    while (mine->outcome == BL_WELL && (missing = next_unheard(&part, &gone)) >= 0) {
        gone = hear_all(&part) && gone; /* what one said before it left is there by now */
        if (mine->outcome != BL_WELL || greeter_at(&part, missing)) continue;
        const uint64_t now = bl_clock_ns(), left = now < deadline ? (deadline - now) / 1000000u + 1 : 0;
        if (gone)
            say_of(&part, missing, "is gone");
        else if (cancelled(&part))
            bl_verdict_say(mine, mesh->rank, BL_FAILED, mesh->rank, "the communicator is being destroyed");
        else if (!left)
            say_of(&part, missing, "did not connect in time");
        else
            wait(&part, left < SLICE_MS ? (int)left : SLICE_MS);
    }
    for (int i = 0; i < greetings->greeter_count; i++)
        if (!contact_at(&part, greetings->greeter[i].place)) say_of(&part, greetings->greeter[i].place, "is gone");
    settle(&part);
}
