/* team.h - ranks that share a multicast object. */
#ifndef BEELINE_CUDATEST_TEAM_H
#define BEELINE_CUDATEST_TEAM_H

#include "cudatest.h"

struct test_member {
    int rank, n;
    CUcontext context;
    CUstream stream;
    CUmodule module;
    CUmemGenericAllocationHandle memory, multicast;
    CUdeviceptr result, own, all; /* all: the multicast mapping; TEST_STAGING bytes, as own */
};
CUresult test_member_launch(struct test_member *m, const char *kernel, unsigned threads, struct bl_kernel_args *args);

/* In one process. */
struct test_team {
    int n;
    struct test_member member[BL_MAX_RANKS];
};
void test_team_open(struct test_team *team, int n);
void test_team_close(struct test_team *team);

/* A process each. */
struct test_star {
    int rank, n;
    int socket[BL_MAX_RANKS]; /* rank 0 has one to each, the others socket[0] */
};
/* Runs it in all; rank `lost`, unless it is 0, is killed on the way. */
void test_star_run(int n, void (*body)(struct test_star *), int lost);
void test_star_meet(const struct test_star *star);
void test_star_join(struct test_star *star, struct test_member *m);
void test_star_leave(struct test_star *star, struct test_member *m);

CUmulticastObjectProp test_multicast_prop(unsigned devices, size_t size);

void test_send_fd(int socket, int fd);
int test_receive_fd(int socket);

#endif
