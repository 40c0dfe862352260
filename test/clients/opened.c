/* opened.c LIBRARY [global] - a client that opens NCCL and looks its functions up.
 * opened.c LIBRARY closed - so, and closes it: what Beeline has running then goes on for a while.
 * opened.c LIBRARY library - opens a library that is itself linked with NCCL, and calls its client_main.
 * opened.c LIBRARY deep - the same, RTLD_DEEPBIND. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client.h"

int main(int argc, char **argv) {
    const char *how = argc > 2 ? argv[2] : "local";
    const int deep = strcmp(how, "deep") == 0 ? RTLD_DEEPBIND : 0;
    void *handle =
        argc > 1 ? dlopen(argv[1], RTLD_NOW | deep | (strcmp(how, "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL)) : NULL;
    if (!handle) {
        fprintf(stderr, "opened: %s\n", argc > 1 ? dlerror() : "want the library to open");
        return 1;
    }
    if (strcmp(how, "library") == 0 || deep) {
        int (*client_main)(void);
        *(void **)&client_main = dlsym(handle, "client_main");
        return client_main ? client_main() : 1;
    }
    struct client_nccl nccl;
#define CLIENT_MEMBER(function)                                                                                        \
    if (!(*(void **)&nccl.function = dlsym(handle, #function))) {                                                      \
        fprintf(stderr, "opened: %s\n", dlerror());                                                                    \
        return 1;                                                                                                      \
    }
    CLIENT_FUNCTIONS(CLIENT_MEMBER)
    if (dlsym(handle, "ncclNoSuchFunction") || !dlerror()) {
        fprintf(stderr, "opened: a function that NCCL lacks is found, or leaves no error\n");
        return 1;
    }
    const int status = client_run(&nccl);
    if (strcmp(how, "closed") == 0) {
        dlclose(handle);
        sleep(2);
    }
    return status;
}
