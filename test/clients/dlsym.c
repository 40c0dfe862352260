/* dlsym.c [NCCL] - prints what dlsym and dlerror do in many cases: the same lines with Beeline in front as without. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of this program too, so that RTLD_NEXT has something to pass over. */
int puts(const char *text) {
    return fprintf(stdout, "%s\n", text);
}

static const char *where(void *address) {
    Dl_info info;
    if (!address) return "nowhere";
    if (!dladdr(address, &info)) return "no library";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

static void look(const char *what, void *handle, const char *name) {
    dlerror();
    void *address = dlsym(handle, name);
    const char *error = dlerror();
    printf("%s %s: in %s, error: %s", what, name, where(address), error ? error : "none"); /* before the text goes */
    printf(", then: %s\n", dlerror() ? "another" : "none");
}

int main(int argc, char **argv) {
    static const char *const names[] = {"puts", "malloc", "dlsym", "ncclNoSuchFunction", "ncc", "n", "", "nosuch"};
    void *program = dlopen(NULL, RTLD_NOW), *libc = dlopen("libc.so.6", RTLD_NOW);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        look("libc", libc, names[i]);
        if (strcmp(names[i], "dlsym") == 0) continue; /* elsewhere the first is Beeline's, as meant */
        look("next", RTLD_NEXT, names[i]);
        look("default", RTLD_DEFAULT, names[i]);
        look("program", program, names[i]);
    }
    /* An error stays until it is asked for, whatever succeeds in between elsewhere; a success ends it. */
    dlsym(libc, "nosuch");
    look("after an error:", libc, "malloc");
    dlsym(libc, "nosuch");
    dlsym(libc, "malloc");
    printf("success after an error: %s\n", dlerror() ? "error" : "none");
    printf("dlvsym: in %s\n", where(dlvsym(libc, "malloc", "GLIBC_2.2.5")));
    printf("environ set: %d\n", getenv("PATH") != NULL);
    if (argc > 1) {
        void *nccl = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        look("nccl", nccl, "ncclNoSuchFunction");
        look("nccl", nccl, "pncclAllReduce");
        look("nccl", nccl, "malloc");
        dlsym(nccl, "ncclAllReduce");
        printf("after finding ncclAllReduce: %s\n", dlerror() ? "error" : "none");
    }
    return 0;
}
