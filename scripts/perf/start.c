/* start.c - how the program starts, by the name of old: that of glibc 2.34 would keep it from running with older ones.  The C
 * library runs the constructors where `init` is NULL, since then; there are none here. */
#ifdef __x86_64__
__asm__(".symver start_main, __libc_start_main@GLIBC_2.2.5");
#else
__asm__(".symver start_main, __libc_start_main@GLIBC_2.17");
#endif

typedef int main_function(int, char **, char **);
int start_main(main_function *main, int argc, char **argv, void (*init)(void), void (*fini)(void),
               void (*loader_fini)(void), void *stack);
int __libc_start_main(main_function *main, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*loader_fini)(void), void *stack);

/* Called by what the compiler links in front of main. */
int __libc_start_main(main_function *main, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*loader_fini)(void), void *stack) {
    return start_main(main, argc, argv, init, fini, loader_fini, stack);
}
