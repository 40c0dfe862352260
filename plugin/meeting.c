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

#include "version.h"

enum { BACKLOG = 64, STRANGERS = 16, SLICE_MS = 100, PROTOCOL = 1, NOT_OURS = -2 /* nobody's rank */ };

/* Of fixed size and meaning for all versions: a rank can tell any other why it does not go on. */
struct hello {
    uint32_t magic, protocol;
    int32_t from, to; /* places */
    int32_t rank, nranks;
    int32_t fate, culprit;
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
static void close_fd(int *fd) {
    if (*fd < 0) return;
    shutdown(*fd, SHUT_RDWR); /* for a forked child, which has it, too */
    close(*fd);
    *fd = -1;
}

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
    else if (bind(meeting->listener, (struct sockaddr *)&address, length) || listen(meeting->listener, BACKLOG)) {
        snprintf(meeting->why, sizeof(meeting->why), "listening on a Unix socket failed: %s", strerror(errno));
        close_fd(&meeting->listener);
    }
}

void bl_meeting_of_ids(struct bl_meeting *meeting, const void *ids, size_t bytes, int rank, int nranks) {
    const int32_t of = nranks;
    bl_meeting_none(meeting, "");
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

void bl_meeting_close(struct bl_meeting *meeting) {
    close_fd(&meeting->listener);
}

/* --- after it: greetings --- */
enum { ABSENT = -1, OWN_FAULT = -2 };

static bool is_of_our_user(int fd) {
    struct ucred peer;
    socklen_t size = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/* A connection to a place, ABSENT, or OWN_FAULT and errno. */
static int reach(const struct bl_meeting *meeting, int place, const struct bl_mesh *mesh, uint64_t deadline) {
    struct sockaddr_un address;
    const socklen_t length = address_of(meeting, place, &address);
    int fd = new_socket();
    if (fd < 0) return OWN_FAULT;
    while (connect(fd, (struct sockaddr *)&address, length)) {
        /* A full backlog is the one reason to try again: on a Unix socket everything else is final. */
        const bool full = errno == EAGAIN || errno == EINTR;
        if (full && bl_clock_ns() < deadline && !(mesh->cancel && atomic_load(mesh->cancel))) {
            poll(NULL, 0, 1);
            continue;
        }
        const int error = errno;
        close(fd);
        errno = error;
        return full || error == ECONNREFUSED ? ABSENT : OWN_FAULT;
    }
    if (is_of_our_user(fd)) return fd;
    close(fd);
    return ABSENT;
}

static void greet(const struct bl_meeting *meeting, const struct bl_mesh *mesh, const struct bl_contact *contact,
                  const struct bl_verdict *mine) {
    struct hello hello = {.magic = hello_magic,
                          .protocol = PROTOCOL,
                          .from = meeting->place,
                          .to = contact->place,
                          .rank = mesh->rank,
                          .nranks = mesh->nranks,
                          .fate = mine->fate,
                          .culprit = mine->culprit};
    prove(meeting, hello.from, hello.to, hello.proof);
    memcpy(hello.build, bl_build_name, sizeof(hello.build));
    memcpy(hello.why, mine->why, sizeof(hello.why));
    send(contact->out, &hello, sizeof(hello), MSG_NOSIGNAL); /* that a peer is gone shows when we hear from it */
}

/* --- and what comes --- */
struct hearing {
    const struct bl_meeting *meeting;
    struct bl_mesh *mesh;
    struct bl_contact *contacts;
    int count;
    struct bl_verdict *mine;
    int stranger[STRANGERS]; /* connections that have said nothing yet; -1: none */
    int next;
    int *held, held_count;               /* where those go that are done with; NULL: they are closed */
    int greeter[BL_MAX_RANKS], greeters; /* places that said they are well, and are no contacts */
};

static void done_with(struct hearing *hearing, int fd) {
    if (hearing->held && hearing->held_count < BL_MAX_RANKS)
        hearing->held[hearing->held_count++] = fd;
    else
        close_fd(&fd);
}

static struct bl_contact *contact_of(const struct hearing *hearing, int place) {
    for (int i = 0; i < hearing->count; i++)
        if (hearing->contacts[i].place == place) return &hearing->contacts[i];
    return NULL;
}

/* Of the two connections of a pair, that which the higher place made is kept. */
static void settle(struct hearing *hearing, struct bl_contact *contact, int rank, int fd) {
    int *kept = contact->place < hearing->meeting->place ? &contact->out : &fd;
    hearing->mesh->fd[rank] = *kept;
    *kept = -1;
    contact->rank = rank;
    close_fd(&contact->out);
    close_fd(&fd);
}

/* What a holder of the key says. */
static void heed(struct hearing *hearing, const struct hello *hello, int fd) {
    const struct bl_mesh *mesh = hearing->mesh;
    struct bl_contact *contact = contact_of(hearing, hello->from);
    const int rank = hello->rank;
    if (hello->protocol != PROTOCOL || strcmp(hello->build, bl_build_name)) {
        bl_verdict_say(hearing->mine, mesh->rank, BL_FAILED, -1,
                       "rank %d runs another build of Beeline (%.47s) than rank %d (%s)", rank, hello->build,
                       mesh->rank, bl_build_name);
    } else if (hello->fate != BL_WELL) {
        bl_verdict_say(hearing->mine, NOT_OURS, hello->fate == BL_FAILED ? BL_FAILED : BL_DECLINED, hello->culprit,
                       "%s", hello->why);
    } else if (rank < 0 || rank >= mesh->nranks || rank == mesh->rank || mesh->fd[rank] >= 0 ||
               hello->nranks != mesh->nranks) {
        bl_verdict_say(hearing->mine, mesh->rank, BL_FAILED, -1, "a peer says that it is rank %d of %d", rank,
                       hello->nranks);
    } else if (contact && contact->rank < 0) {
        settle(hearing, contact, rank, fd);
        return;
    } else if (!contact && hearing->greeters < BL_MAX_RANKS) {
        hearing->greeter[hearing->greeters++] = hello->from;
    }
    done_with(hearing, fd);
}

/* False as long as nothing came from there. */
static bool hear_from(struct hearing *hearing, int fd) {
    const struct bl_meeting *meeting = hearing->meeting;
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
    if (known)
        heed(hearing, &hello, fd);
    else
        close_fd(&fd);
    return true;
}

/* All that has come by now.  Whoever says nothing waits for its turn to be thrown out. */
static void hear_all(struct hearing *hearing) {
    for (int i = 0; i < STRANGERS; i++)
        if (hearing->stranger[i] >= 0 && hear_from(hearing, hearing->stranger[i])) hearing->stranger[i] = -1;
    for (;;) {
        int fd = accept4(hearing->meeting->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (fd < 0 && errno != EAGAIN)
            bl_verdict_say(hearing->mine, hearing->mesh->rank, BL_FAILED, hearing->mesh->rank,
                           "accepting a connection failed: %s", strerror(errno));
        if (fd < 0) return;
        if (!is_of_our_user(fd)) {
            close_fd(&fd);
        } else if (!hear_from(hearing, fd)) {
            int *place = &hearing->stranger[hearing->next++ % STRANGERS];
            close_fd(place);
            *place = fd;
        }
    }
}

static struct hearing begin(const struct bl_meeting *meeting, struct bl_mesh *mesh, struct bl_contact *contacts,
                            int count, struct bl_verdict *mine) {
    struct hearing hearing = {.meeting = meeting, .mesh = mesh, .contacts = contacts, .count = count, .mine = mine};
    for (int i = 0; i < STRANGERS; i++) hearing.stranger[i] = -1;
    return hearing;
}

static void end(struct hearing *hearing) {
    for (int i = 0; i < STRANGERS; i++) close_fd(&hearing->stranger[i]);
}

/* "rank 2", or of a child "a rank (2 of its parent)".  Returns the rank, or -1. */
static int name(const struct hearing *hearing, int place, char *text, size_t size) {
    const bool by_rank = hearing->meeting->places == hearing->mesh->nranks;
    snprintf(text, size, by_rank ? "rank %d" : "a rank (%d of its parent)", place);
    return by_rank ? place : -1;
}

static void say_gone(const struct hearing *hearing, int place) {
    char who[60];
    const int culprit = name(hearing, place, who, sizeof(who));
    bl_verdict_say(hearing->mine, NOT_OURS, BL_FAILED, culprit, "%s is gone", who);
}

static bool is_contact(const struct bl_contact *contacts, int count, int place) {
    for (int i = 0; i < count; i++)
        if (contacts[i].place == place) return true;
    return false;
}

static bool was_here(const struct hearing *hearing, const struct bl_contact *contacts, int count, int place) {
    bool here = place == hearing->meeting->place || is_contact(contacts, count, place);
    for (int i = 0; i < hearing->greeters; i++) here = here || hearing->greeter[i] == place;
    return here;
}

static void say_who_is_missing(const struct hearing *hearing, const struct bl_contact *contacts, int count) {
    const int places = hearing->meeting->places, rank = hearing->mesh->rank, nranks = hearing->mesh->nranks;
    char who[100];
    int here = 0;
    for (int place = 0; place < places; place++) here += was_here(hearing, contacts, count, place);
    int used = snprintf(who, sizeof(who), "rank%s", nranks - here == 1 ? "" : "s");
    for (int place = 0; place < places && places == nranks; place++)
        if (!was_here(hearing, contacts, count, place))
            used += snprintf(who + used, sizeof(who) - (size_t)used, " %d", place);
    for (int i = 0; i < hearing->greeters && here >= nranks; i++)
        if (!is_contact(contacts, count, hearing->greeter[i])) say_gone(hearing, hearing->greeter[i]);
    if (places != nranks) snprintf(who, sizeof(who), "%d of its %d ranks", nranks - here, nranks);
    bl_verdict_say(hearing->mine, rank, BL_DECLINED, -1,
                   "%s cannot be reached: without Beeline (or with BEELINE_ENABLE=0), on another host, in another "
                   "container's network, or another user's",
                   who);
}

void bl_meeting_greet(const struct bl_meeting *meeting, struct bl_mesh *mesh, struct bl_contact *contacts, int *count,
                      struct bl_verdict *mine, uint64_t deadline) {
    int held[BL_MAX_RANKS];
    struct hearing early = begin(meeting, mesh, NULL, 0, mine);
    early.held = held;
    *count = 0;
    if (!meeting->keyed) {
        bl_verdict_say(mine, mesh->rank, BL_DECLINED, -1, "%s", meeting->why);
        return;
    }
    if (meeting->listener < 0) bl_verdict_say(mine, mesh->rank, BL_FAILED, mesh->rank, "%s", meeting->why);
    for (int place = 0; place < meeting->places && *count < mesh->nranks - 1; place++) {
        if (place == meeting->place) continue;
        const int fd = reach(meeting, place, mesh, deadline);
        if (fd == ABSENT) continue;
        if (fd == OWN_FAULT) {
            bl_verdict_say(mine, mesh->rank, BL_FAILED, mesh->rank, "connecting to its peers failed: %s",
                           strerror(errno));
            continue;
        }
        contacts[(*count)++] = (struct bl_contact){.place = place, .rank = -1, .out = fd};
    }
    if (mine->fate == BL_WELL && *count < mesh->nranks - 1) {
        hear_all(&early); /* one that was here may have left already, with a word to us */
        say_who_is_missing(&early, contacts, *count);
    }
    for (int i = 0; i < *count; i++) greet(meeting, mesh, &contacts[i], mine);
    /* Only now: who sees that we hang up is to have our greeting. */
    for (int i = 0; i < early.held_count; i++) close_fd(&held[i]);
    end(&early);
}

/* Until something may have come. */
static void wait(const struct hearing *hearing, int ms) {
    struct pollfd fds[1 + STRANGERS + BL_MAX_RANKS];
    nfds_t count = 0;
    fds[count++] = (struct pollfd){.fd = hearing->meeting->listener, .events = POLLIN};
    for (int i = 0; i < STRANGERS; i++)
        if (hearing->stranger[i] >= 0) fds[count++] = (struct pollfd){.fd = hearing->stranger[i], .events = POLLIN};
    for (int i = 0; i < hearing->count; i++)
        if (hearing->contacts[i].rank < 0) fds[count++] = (struct pollfd){.fd = hearing->contacts[i].out};
    poll(fds, count, ms);
}

static bool hung_up(const struct bl_contact *contact) {
    struct pollfd fd = {.fd = contact->out};
    return contact->rank < 0 && poll(&fd, 1, 0) > 0;
}

static const struct bl_contact *next_unheard(const struct hearing *hearing) {
    for (int i = 0; i < hearing->count; i++)
        if (hearing->contacts[i].rank < 0) return &hearing->contacts[i];
    return NULL;
}

void bl_meeting_hear(const struct bl_meeting *meeting, struct bl_mesh *mesh, struct bl_contact *contacts, int count,
                     struct bl_verdict *mine, uint64_t deadline) {
    struct hearing hearing = begin(meeting, mesh, contacts, count, mine);
    const struct bl_contact *missing;
    char who[60];
    while (mine->fate == BL_WELL && (missing = next_unheard(&hearing))) {
        bool gone[BL_MAX_RANKS];
        for (int i = 0; i < count; i++) gone[i] = hung_up(&contacts[i]);
        hear_all(&hearing); /* what one said before it left is there by now */
        for (int i = 0; i < count; i++) {
            if (!gone[i] || contacts[i].rank >= 0) continue;
            say_gone(&hearing, contacts[i].place);
        }
        if (mine->fate != BL_WELL || !(missing = next_unheard(&hearing))) break;
        const uint64_t now = bl_clock_ns();
        const int culprit = name(&hearing, missing->place, who, sizeof(who));
        if (mesh->cancel && atomic_load(mesh->cancel))
            bl_verdict_say(mine, mesh->rank, BL_FAILED, mesh->rank, "the communicator is being destroyed");
        else if (now >= deadline)
            bl_verdict_say(mine, NOT_OURS, BL_FAILED, culprit, "%s did not connect in time", who);
        else
            wait(&hearing, deadline - now < SLICE_MS * 1000000u ? (int)((deadline - now) / 1000000u) + 1 : SLICE_MS);
    }
    end(&hearing);
    for (int i = 0; i < count; i++) close_fd(&contacts[i].out);
}
