/* dlsym.c - see dlsym.h. */
#define _GNU_SOURCE
#include "dlsym.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

_Atomic(bl_dlsym_function *) bl_dlsym_next;
static _Atomic(bl_dlsym_function *) libc_dlsym;

static void *find_none(void *handle, const char *name) {
    return NULL;
}

/* Filled in by the loader, before which no function of another library can be called. */
static void *volatile relocated = (void *)&relocated;

/* Before glibc 2.34 it was in a library of its own. */
static bool is_of_libc(bl_dlsym_function *function) {
    Dl_info info;
    if (!dladdr((void *)function, &info) || !info.dli_fname) return false;
    const char *slash = strrchr(info.dli_fname, '/'), *base = slash ? slash + 1 : info.dli_fname;
    return strncmp(base, "libc.so", 7) == 0 || strncmp(base, "libc-", 5) == 0 || strncmp(base, "libdl", 5) == 0;
}

bl_dlsym_function *bl_dlsym_resolve(void) {
    static _Atomic pid_t resolving;
    if (!relocated) return find_none;
    /* The search below may allocate, and a library that counts allocations may ask for malloc right then. */
    pid_t self = (pid_t)syscall(SYS_gettid);
    if (atomic_load(&resolving) == self) return find_none;
    atomic_store(&resolving, self);
    bl_dlsym_function *libc =
        (bl_dlsym_function *)dlvsym(RTLD_NEXT, "dlsym", BL_OLDEST_GLIBC); /* or another's that has versions */
    /* Another library that interposes dlsym, and comes behind us, is to be asked as it would be without us: its own is found
     * already, or by libc, where it has none of that version. */
    bl_dlsym_function *next = libc && is_of_libc(libc) ? (bl_dlsym_function *)libc(RTLD_NEXT, "dlsym") : libc;
    atomic_store(&resolving, 0);
    if (!libc) return find_none;
    atomic_store(&bl_dlsym_next, next ? next : libc);
    return next ? next : libc;
}

/* libc's own, whatever stands in front; before glibc 2.34 it was in a library of its own. */
static bl_dlsym_function *find_libc_dlsym(void) {
    static const char *const homes[] = {"libc.so.6", "libdl.so.2"};
    for (size_t i = 0; i < sizeof(homes) / sizeof(homes[0]); i++) {
        void *home = dlopen(homes[i], RTLD_LAZY | RTLD_NOLOAD);
        bl_dlsym_function *found = home ? (bl_dlsym_function *)dlvsym(home, "dlsym", BL_OLDEST_GLIBC) : NULL;
        if (home) dlclose(home);
        if (found) return found;
    }
    return bl_dlsym_resolve();
}

void *bl_dlsym(void *handle, const char *name) {
    bl_dlsym_function *libc = atomic_load_explicit(&libc_dlsym, memory_order_acquire);
    if (!libc) atomic_store(&libc_dlsym, libc = find_libc_dlsym());
    return libc(handle, name);
}
