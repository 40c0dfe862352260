/* counting.c - a preload like many: counts allocations, and finds the next malloc by dlsym from inside malloc itself.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

static atomic_long calls;

void *malloc(size_t size) {
    static void *(*volatile next)(size_t);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "malloc");
    atomic_fetch_add(&calls, 1);
    return next(size);
}

__attribute__((destructor)) static void tell(void) {
    Dl_info info;
    void *next = dlsym(RTLD_NEXT, "malloc");
    if (getenv("BEELINE_TEST_COUNTING"))
        fprintf(stderr, "counted %s, next malloc in %s\n", atomic_load(&calls) ? "some" : "none",
                next && dladdr(next, &info) ? info.dli_fname : "?");
}
