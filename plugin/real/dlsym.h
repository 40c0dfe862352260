/* dlsym.h - the dlsym that would be called without us, and libc's own.
 *
 * Threads: any.  Nothing here may be called before the loader has filled in this library's addresses, but bl_dlsym_resolve.
 */
#ifndef BEELINE_DLSYM_H
#define BEELINE_DLSYM_H

#include <stdatomic.h>

#if defined(__x86_64__)
#define BL_OLDEST_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define BL_OLDEST_GLIBC "GLIBC_2.17"
#endif

typedef void *bl_dlsym_function(void *handle, const char *name);

/* libc's own, whatever stands in front, for Beeline's look-ups: RTLD_NEXT is counted from Beeline. */
void *bl_dlsym(void *handle, const char *name);

/* The next one behind us: libc's, or that of another library that interposes dlsym. NULL until bl_dlsym_resolve has found it. */
extern _Atomic(bl_dlsym_function *) bl_dlsym_next __attribute__((visibility("hidden")));
bl_dlsym_function *bl_dlsym_resolve(void);

#endif
