/* glibc.h - included by the compiler before every file of the library and of beeline-perf, so that what is linked here runs with
 * glibc 2.28, too: names that have a newer version, by the version of old.  scripts/build/check-glibc finds what lacks here.
 *
 * Not dlsym, which the library defines; a program (BL_PROGRAM) does not. */
#ifndef BL_GLIBC_H
#define BL_GLIBC_H

#if defined(__x86_64__)
#define BL_FORMER(name, former, x86_64) __asm__(".symver " #name "," #former "@GLIBC_" x86_64);
#elif defined(__aarch64__)
#define BL_FORMER(name, former, x86_64) __asm__(".symver " #name "," #former "@GLIBC_2.17");
#else
#error "glibc.h: versions for x86-64 and aarch64 are written"
#endif
#define BL_OLD(name, x86_64) BL_FORMER(name, name, x86_64)

BL_OLD(dladdr, "2.2.5")
BL_OLD(dladdr1, "2.3.3")
BL_OLD(dlclose, "2.2.5")
BL_OLD(dlerror, "2.2.5")
BL_OLD(dlinfo, "2.3.3")
BL_OLD(dlopen, "2.2.5")
BL_OLD(dlvsym, "2.2.5")
BL_OLD(pthread_create, "2.2.5")
BL_OLD(pthread_detach, "2.2.5")
BL_OLD(pthread_join, "2.2.5")
BL_OLD(pthread_key_create, "2.2.5")
BL_OLD(pthread_mutex_consistent, "2.12")
BL_OLD(pthread_mutexattr_destroy, "2.2.5")
BL_OLD(pthread_mutexattr_init, "2.2.5")
BL_OLD(pthread_mutexattr_setpshared, "2.2.5")
BL_OLD(pthread_mutexattr_setrobust, "2.12")
BL_OLD(pthread_once, "2.2.5")
BL_OLD(pthread_setspecific, "2.2.5")
BL_OLD(pthread_sigmask, "2.2.5")
/* As headers since glibc 2.38 call them. */
BL_FORMER(__isoc23_sscanf, __isoc99_sscanf, "2.7")
BL_FORMER(__isoc23_strtol, strtol, "2.2.5")
BL_FORMER(__isoc23_strtoll, strtoll, "2.2.5")
BL_FORMER(__isoc23_strtoul, strtoul, "2.2.5")
BL_FORMER(__isoc23_strtoull, strtoull, "2.2.5")
#ifdef BL_PROGRAM
BL_OLD(dlsym, "2.2.5")
BL_OLD(exp, "2.2.5")
BL_OLD(log, "2.2.5")
#endif

#endif
