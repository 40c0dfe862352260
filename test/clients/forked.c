/* forked.c - uses NCCL, forks, and uses it again in the child, which has a log of its own. */
#include <nccl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int use(const char *who) {
    int version = 0;
    ncclResult_t result = ncclGetVersion(&version);
    /* Not to be had without a communicator: makes Beeline and NCCL look at it. */
    ncclResult_t refused = ncclCommDestroy(NULL);
    fprintf(stderr, "%s %d: version %d, %s, destroy of nothing: %d\n", who, (int)getpid(), version,
            ncclGetErrorString(result), (int)refused);
    return result != ncclSuccess || version == 0;
}

int main(void) {
    int status = 0;
    if (use("parent")) return 1;
    pid_t child = fork();
    if (child == 0) _exit(use("child"));
    if (child < 0 || waitpid(child, &status, 0) != child) return 1;
    return !WIFEXITED(status) || WEXITSTATUS(status) || use("parent");
}
