/* glibc.c - stat and fstat, which have a newer name since glibc 2.33, by the name of old. */
#include <sys/stat.h>

#ifdef __x86_64__
#define LAYOUT 1 /* of struct stat */
#else
#define LAYOUT 0
#endif

int __xstat(int layout, const char *path, struct stat *out);
int __fxstat(int layout, int fd, struct stat *out);

int stat(const char *restrict path, struct stat *restrict out) {
    return __xstat(LAYOUT, path, out);
}

int fstat(int fd, struct stat *out) {
    return __fxstat(LAYOUT, fd, out);
}
