/* probe.c NAME LIBRARY|- [deep] - opens a library, or none, and prints whether NAME is found in every way in which a program tells
 * features: the same lines with Beeline in front as without. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    const int deep = argc > 3 ? RTLD_DEEPBIND : 0;
    const struct {
        const char *what;
        void *handle;
    } ways[] = {{"default", RTLD_DEFAULT}, {"next", RTLD_NEXT}, {"program", dlopen(NULL, RTLD_NOW)}};
    for (int round = 0; round < 2; round++) {
        void *library =
            round && argc > 2 && strcmp(argv[2], "-") ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL | deep) : NULL;
        for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
            dlerror();
            const int found = dlsym(ways[i].handle, name) != NULL, error = dlerror() != NULL;
            printf("%s: %s, %s\n", ways[i].what, found ? "found" : "not found", error ? "an error" : "no error");
        }
        if (library) printf("library: %s\n", dlsym(library, name) ? "found" : "not found");
    }
    return 0;
}
