/* interpose.c - our own dlsym, by which clients that open NCCL themselves (ctypes, CuPy, JAX, vLLM) find Beeline.
 *
 * All but look-ups of names in "nccl" through a handle of dlopen go on to the next dlsym by a jump that leaves the
 * stack as it was: RTLD_NEXT and RTLD_DEFAULT mean something relative to the caller, whom dlsym knows by the return
 * address. There is no constructor; the next dlsym is found at the first call, which may come before other libraries
 * are ready.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "abi.h"
#include "params.h"
#include "real.h"

typedef void *dlsym_function(void *handle, const char *name);

/* Called from the assembly below. */
dlsym_function *bl_dlsym_resolve(void);
dlsym_function bl_dlsym_nccl;
extern _Atomic(dlsym_function *) bl_dlsym_next;

_Atomic(dlsym_function *) bl_dlsym_next;
static _Atomic(dlsym_function *) libc_dlsym;

#if defined(__x86_64__)
#define OLDEST_GLIBC "GLIBC_2.2.5"
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        ".p2align 4\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "    endbr64\n"
        "    leaq 1(%rdi), %rax\n" /* RTLD_NEXT is -1, RTLD_DEFAULT 0 */
        "    cmpq $1, %rax\n"
        "    jbe 1f\n"
        "    testq %rsi, %rsi\n"
        "    jz 1f\n"
        "    cmpb $'n', (%rsi)\n"
        "    jne 1f\n"
        "    cmpb $'c', 1(%rsi)\n"
        "    jne 1f\n"
        "    cmpb $'c', 2(%rsi)\n"
        "    jne 1f\n"
        "    cmpb $'l', 3(%rsi)\n"
        "    je bl_dlsym_nccl\n"
        "1:  movq bl_dlsym_next(%rip), %rax\n"
        "    testq %rax, %rax\n"
        "    jz 2f\n"
        "    jmp *%rax\n"
        "2:  pushq %rdi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "    subq $8, %rsp\n" /* calls want the stack at a multiple of 16 */
        ".cfi_adjust_cfa_offset 8\n"
        "    call bl_dlsym_resolve\n"
        "    addq $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "    jmp *%rax\n"
        ".cfi_endproc\n"
        ".size dlsym, .-dlsym\n");
#elif defined(__aarch64__)
#define OLDEST_GLIBC "GLIBC_2.17"
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        ".p2align 4\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "    hint #34\n"       /* bti c */
        "    add x9, x0, #1\n" /* RTLD_NEXT is -1, RTLD_DEFAULT 0 */
        "    cmp x9, #1\n"
        "    b.ls 1f\n"
        "    cbz x1, 1f\n"
        "    ldrb w9, [x1]\n"
        "    cmp w9, #'n'\n"
        "    b.ne 1f\n"
        "    ldrb w9, [x1, #1]\n"
        "    cmp w9, #'c'\n"
        "    b.ne 1f\n"
        "    ldrb w9, [x1, #2]\n"
        "    cmp w9, #'c'\n"
        "    b.ne 1f\n"
        "    ldrb w9, [x1, #3]\n"
        "    cmp w9, #'l'\n"
        "    b.ne 1f\n"
        "    b bl_dlsym_nccl\n"
        "1:  adrp x16, bl_dlsym_next\n"
        "    ldr x16, [x16, #:lo12:bl_dlsym_next]\n"
        "    cbz x16, 2f\n"
        "    br x16\n"
        "2:  stp x29, x30, [sp, #-32]!\n"
        ".cfi_def_cfa_offset 32\n"
        ".cfi_offset 29, -32\n"
        ".cfi_offset 30, -24\n"
        "    stp x0, x1, [sp, #16]\n"
        "    bl bl_dlsym_resolve\n"
        "    mov x16, x0\n"
        "    ldp x0, x1, [sp, #16]\n"
        "    ldp x29, x30, [sp], #32\n"
        ".cfi_def_cfa_offset 0\n"
        ".cfi_restore 29\n"
        ".cfi_restore 30\n"
        "    br x16\n"
        ".cfi_endproc\n"
        ".size dlsym, .-dlsym\n");
#else
#error "interpose.c: dlsym is interposed in assembly: x86-64 and aarch64 are written"
#endif

static void *find_none(void *handle, const char *name) {
    return NULL;
}

/* Filled in by the loader, before which no function of another library can be called. */
static void *volatile relocated = (void *)&relocated;

dlsym_function *bl_dlsym_resolve(void) {
    static _Atomic pid_t resolving;
    if (!relocated) return find_none;
    /* The search below may allocate, and a library that counts allocations may ask for malloc right then. */
    pid_t self = (pid_t)syscall(SYS_gettid);
    if (atomic_load(&resolving) == self) return find_none;
    atomic_store(&resolving, self);
    dlsym_function *libc = (dlsym_function *)dlvsym(RTLD_NEXT, "dlsym", OLDEST_GLIBC);
    /* Another library that interposes dlsym, and comes behind us, is to be asked as it would be without us. */
    dlsym_function *next = libc ? (dlsym_function *)libc(RTLD_NEXT, "dlsym") : NULL;
    atomic_store(&resolving, 0);
    if (!libc) return find_none;
    atomic_store(&libc_dlsym, libc);
    atomic_store(&bl_dlsym_next, next ? next : libc);
    return next ? next : libc;
}

void *bl_dlsym(void *handle, const char *name) {
    if (!atomic_load_explicit(&libc_dlsym, memory_order_acquire)) bl_dlsym_resolve();
    dlsym_function *libc = atomic_load_explicit(&libc_dlsym, memory_order_acquire);
    return libc ? libc(handle, name) : NULL;
}

/* The look-up of a name in "nccl" through a handle.  What is found is found, and what is not is not, as without us:
 * clients tell features by it. */
void *bl_dlsym_nccl(void *handle, const char *name) {
    dlsym_function *next = atomic_load_explicit(&bl_dlsym_next, memory_order_acquire);
    if (!next) next = bl_dlsym_resolve();
    void *address = next(handle, name);
    const struct bl_abi_row *row = address ? bl_abi_find(name) : NULL;
    if (!row || address == row->own) return address;
    bool reaches = bl_real_adopt(row, address);
    dlerror(); /* a look-up that succeeded leaves no error behind, whatever adopting looked for */
    return reaches ? row->own : address;
}
