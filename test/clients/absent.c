/* absent.c LIBRARY - calls functions of a Beeline that finds no real NCCL, or one that lacks the function: prints what
 * each returns.  Beeline is opened by name, so that no NCCL comes with it. */
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *handle = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!handle) {
        fprintf(stderr, "absent: %s\n", argc > 1 ? dlerror() : "want the library to open");
        return 1;
    }
#define FUNCTION(name)                                                                                                 \
    __typeof__(name) *my_##name;                                                                                       \
    if (!(*(void **)&my_##name = dlsym(handle, #name))) {                                                              \
        fprintf(stderr, "absent: %s\n", dlerror());                                                                    \
        return 1;                                                                                                      \
    }
    FUNCTION(ncclGetVersion)
    FUNCTION(ncclGetUniqueId)
    FUNCTION(ncclCommInitAll)
    FUNCTION(ncclCommWindowDeregister)
    FUNCTION(ncclGetErrorString)
    FUNCTION(ncclGetLastError)
    FUNCTION(pncclAllReduce)
    int version = -1;
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    printf("version %d\n", my_ncclGetVersion(&version));
    printf("id %d\n", my_ncclGetUniqueId(&id));
    printf("init %d\n", my_ncclCommInitAll(&comm, 1, NULL));
    printf("window %d\n", my_ncclCommWindowDeregister(NULL, NULL));
    printf("window again %d\n", my_ncclCommWindowDeregister(NULL, NULL));
    printf("all-reduce %d\n", my_pncclAllReduce(NULL, NULL, 0, ncclFloat, ncclSum, NULL, NULL));
    printf("text %s\n", my_ncclGetErrorString(ncclInvalidArgument));
    printf("odd text %s\n", my_ncclGetErrorString((ncclResult_t)1000));
    printf("last %s\n", my_ncclGetLastError(NULL));
    return 0;
}
