/* team.c - ranks that share a multicast object, all in one process or each in its own: the same steps, in the same order,
 * which in processes are apart by barriers. */
#define _GNU_SOURCE
#include "team.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

CUmulticastObjectProp test_multicast_prop(unsigned devices, size_t size) {
    return (CUmulticastObjectProp){
        .numDevices = devices, .size = size, .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
}

static void member_open(struct test_member *m, int rank, int n) {
    CUmemAllocationProp prop = test_prop(rank);
    memset(m, 0, sizeof *m);
    m->rank = rank;
    m->n = n;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&m->context, rank));
    OK(cuCtxSetCurrent(m->context));
    OK(cuStreamCreate(&m->stream, CU_STREAM_NON_BLOCKING));
    OK(cuModuleLoadData(&m->module, "any image"));
    OK(cuMemAlloc(&m->result, TEST_RESULT));
    OK(cuMemCreate(&m->memory, TEST_STAGING, &prop, 0));
    m->own = test_map_for(m->memory, TEST_STAGING, rank);
    OK(settled(cuMemsetD8(m->own, 0, TEST_STAGING)));
    OK(cuCtxSynchronize());
}

static void member_create(struct test_member *m) {
    CUmulticastObjectProp prop = test_multicast_prop((unsigned)m->n, TEST_STAGING);
    OK(cuMulticastCreate(&m->multicast, &prop));
}

static int member_export(struct test_member *m) {
    int fd = -1;
    OK(cuMemExportToShareableHandle(&fd, m->multicast, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return fd;
}

static void member_import(struct test_member *m, int fd) {
    OK(cuMemImportFromShareableHandle(&m->multicast, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
}

static void member_add(struct test_member *m) {
    OK(cuMulticastAddDevice(m->multicast, m->rank));
}

static void member_bind(struct test_member *m) {
    OK(cuMulticastBindMem(m->multicast, 0, m->memory, 0, TEST_STAGING, 0));
    OK(cuMemRelease(m->memory)); /* the binding keeps it */
    m->all = test_map_for(m->multicast, TEST_STAGING, m->rank);
}

static void member_close(struct test_member *m) {
    OK(cuCtxSetCurrent(m->context));
    test_unmap(m->all, TEST_STAGING);
    OK(cuMulticastUnbind(m->multicast, m->rank, 0, TEST_STAGING));
    OK(cuMemRelease(m->multicast));
    test_unmap(m->own, TEST_STAGING);
    OK(cuMemFree(m->result));
    OK(cuModuleUnload(m->module));
    OK(cuStreamDestroy(m->stream));
    OK(cuDevicePrimaryCtxRelease(m->rank));
}

CUresult test_member_launch(struct test_member *m, const char *kernel, unsigned threads, struct bl_kernel_args *args) {
    CUfunction function = NULL;
    void *parameters[] = {args};
    args->rank = (uint32_t)m->rank;
    args->nranks = (uint32_t)m->n;
    args->recvbuff = (void *)(uintptr_t)m->result;
    args->staging[m->rank] = (unsigned char *)(uintptr_t)m->own;
    args->timeout_ns = 5000000000ull;
    OK(cuCtxSetCurrent(m->context));
    OK(cuModuleGetFunction(&function, m->module, kernel));
    return cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, m->stream, parameters, NULL);
}

void test_team_open(struct test_team *team, int n) {
    team->n = n;
    for (int r = 0; r < n; r++) member_open(&team->member[r], r, n);
    member_create(&team->member[0]);
    for (int r = 1; r < n; r++) member_import(&team->member[r], member_export(&team->member[0]));
    for (int r = 0; r < n; r++) member_add(&team->member[r]);
    for (int r = 0; r < n; r++) member_bind(&team->member[r]);
}

void test_team_close(struct test_team *team) {
    for (int r = 0; r < team->n; r++) member_close(&team->member[r]);
}

/* --- processes: rank 0 is the centre of a star of sockets --- */
void test_send_fd(int socket, int fd) {
    char byte = 0, control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec io = {&byte, 1};
    struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    CHECK(sendmsg(socket, &message, 0) == 1);
}

int test_receive_fd(int socket) {
    int fd = -1;
    char byte, control[CMSG_SPACE(sizeof fd)];
    struct iovec io = {&byte, 1};
    struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    CHECK(recvmsg(socket, &message, 0) == 1);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header) memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return fd;
}

void test_star_meet(const struct test_star *star) {
    char byte = 0;
    for (int r = 1; r < star->n && !star->rank; r++) CHECK(read(star->socket[r], &byte, 1) == 1);
    if (star->rank) CHECK(write(star->socket[0], &byte, 1) == 1 && read(star->socket[0], &byte, 1) == 1);
    for (int r = 1; r < star->n && !star->rank; r++) CHECK(write(star->socket[r], &byte, 1) == 1);
}

void test_star_run(int n, void (*body)(struct test_star *), int lost) {
    struct test_star star = {.n = n};
    pid_t child[BL_MAX_RANKS] = {0};
    int pair[2], status = 1;
    char text[8];
    for (int r = 1; r < n && !star.rank; r++) {
        CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
        child[r] = fork(); /* before cuInit: each has a driver of its own */
        if (child[r]) {
            close(pair[1]);
            star.socket[r] = pair[0];
            continue;
        }
        for (int other = 1; other < r; other++) close(star.socket[other]);
        close(pair[0]);
        star.rank = r;
        star.socket[0] = pair[1];
    }
    snprintf(text, sizeof text, "%d", star.rank);
    setenv("LOCAL_RANK", text, 1);
    body(&star);
    if (star.rank) exit(test_failures != 0); /* what is left is told at exit */
    for (int r = 1; r < n; r++)
        CHECK(waitpid(child[r], &status, 0) == child[r] && (r == lost ? WIFSIGNALED(status) : status == 0));
}

void test_star_join(struct test_star *star, struct test_member *m) {
    member_open(m, star->rank, star->n);
    if (star->rank) {
        member_import(m, test_receive_fd(star->socket[0]));
    } else {
        member_create(m);
        int fd = member_export(m);
        for (int r = 1; r < star->n; r++) test_send_fd(star->socket[r], fd);
        close(fd);
    }
    member_add(m);
    member_bind(m); /* waits for the others to add theirs */
    test_star_meet(star);
}

void test_star_leave(struct test_star *star, struct test_member *m) {
    test_star_meet(star);
    member_close(m);
}
