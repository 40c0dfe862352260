/* interpose.c - our own dlsym, by which clients that open NCCL themselves (ctypes, CuPy, JAX, vLLM) find Beeline.
 *
 * All but look-ups of names in "nccl" and "pnccl" through a handle of dlopen go on to the next dlsym by a jump that leaves the
 * stack as it was: RTLD_NEXT and RTLD_DEFAULT mean something relative to the caller, whom dlsym knows by the return
 * address. There is no constructor; the next dlsym is found at the first call, which may come before other libraries
 * are ready.
 *
 * Clients tell features by what they find, so Beeline's own entry points, which stand in front of everything, are found only
 * where the process has an NCCL with such a function.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>

#include "abi.h"
#include "dlsym.h"
#include "real.h"

/* Called from the assembly below. */
bl_dlsym_function bl_dlsym_nccl;
bool bl_dlsym_lacks(const char *name);

#if defined(__x86_64__)
/* Around a call of ours in the middle: the caller's arguments are kept, and the stack is at a multiple of 16. */
#define KEEP                                                                                                           \
    "    pushq %rdi\n"                                                                                                 \
    ".cfi_adjust_cfa_offset 8\n"                                                                                       \
    "    pushq %rsi\n"                                                                                                 \
    ".cfi_adjust_cfa_offset 8\n"                                                                                       \
    "    subq $8, %rsp\n"                                                                                              \
    ".cfi_adjust_cfa_offset 8\n"
#define RESTORE                                                                                                        \
    "    addq $8, %rsp\n"                                                                                              \
    ".cfi_adjust_cfa_offset -8\n"                                                                                      \
    "    popq %rsi\n"                                                                                                  \
    ".cfi_adjust_cfa_offset -8\n"                                                                                      \
    "    popq %rdi\n"                                                                                                  \
    ".cfi_adjust_cfa_offset -8\n"
__asm__(".text\n"
        ".globl bl_interposed_dlsym, bl_interposed_dlsym_old\n"
        ".type bl_interposed_dlsym, @function\n"
        ".type bl_interposed_dlsym_old, @function\n"
        ".symver bl_interposed_dlsym, dlsym@@GLIBC_2.34, remove\n"
        ".symver bl_interposed_dlsym_old, dlsym@GLIBC_2.2.5, remove\n"
        ".p2align 4\n"
        "bl_interposed_dlsym:\n"
        "bl_interposed_dlsym_old:\n"
        ".cfi_startproc\n"
        "    endbr64\n"
        "    testq %rsi, %rsi\n"
        "    jz 1f\n"
        "    movq %rsi, %rax\n"
        "    cmpb $'p', (%rax)\n"
        "    jne 3f\n"
        "    incq %rax\n"
        "3:  cmpb $'n', (%rax)\n"
        "    jne 1f\n"
        "    cmpb $'c', 1(%rax)\n"
        "    jne 1f\n"
        "    cmpb $'c', 2(%rax)\n"
        "    jne 1f\n"
        "    cmpb $'l', 3(%rax)\n"
        "    jne 1f\n"
        "    leaq 1(%rdi), %rax\n" /* RTLD_NEXT is -1, RTLD_DEFAULT 0 */
        "    cmpq $1, %rax\n"
        "    ja bl_dlsym_nccl\n" KEEP "    movq %rsi, %rdi\n"
        "    call bl_dlsym_lacks\n" RESTORE "    testb %al, %al\n"
        "    jz 1f\n"
        "    xorl %eax, %eax\n"
        "    ret\n"
        "1:  movq bl_dlsym_next(%rip), %rax\n"
        "    testq %rax, %rax\n"
        "    jz 2f\n"
        "    jmp *%rax\n"
        "2:\n" KEEP "    call bl_dlsym_resolve\n" RESTORE "    jmp *%rax\n"
        ".cfi_endproc\n"
        ".size bl_interposed_dlsym, .-bl_interposed_dlsym\n"
        ".size bl_interposed_dlsym_old, .-bl_interposed_dlsym_old\n");
#elif defined(__aarch64__)
/* Around a call of ours in the middle: the caller's arguments are kept; its result is in x16 then. */
#define KEEP                                                                                                           \
    "    stp x29, x30, [sp, #-32]!\n"                                                                                  \
    ".cfi_def_cfa_offset 32\n"                                                                                         \
    ".cfi_offset 29, -32\n"                                                                                            \
    ".cfi_offset 30, -24\n"                                                                                            \
    "    stp x0, x1, [sp, #16]\n"
#define RESTORE                                                                                                        \
    "    mov x16, x0\n"                                                                                                \
    "    ldp x0, x1, [sp, #16]\n"                                                                                      \
    "    ldp x29, x30, [sp], #32\n"                                                                                    \
    ".cfi_def_cfa_offset 0\n"                                                                                          \
    ".cfi_restore 29\n"                                                                                                \
    ".cfi_restore 30\n"
__asm__(".text\n"
        ".globl bl_interposed_dlsym, bl_interposed_dlsym_old\n"
        ".type bl_interposed_dlsym, @function\n"
        ".type bl_interposed_dlsym_old, @function\n"
        ".symver bl_interposed_dlsym, dlsym@@GLIBC_2.34, remove\n"
        ".symver bl_interposed_dlsym_old, dlsym@GLIBC_2.17, remove\n"
        ".p2align 4\n"
        "bl_interposed_dlsym:\n"
        "bl_interposed_dlsym_old:\n"
        ".cfi_startproc\n"
        "    hint #34\n" /* bti c */
        "    cbz x1, 1f\n"
        "    mov x10, x1\n"
        "    ldrb w9, [x10]\n"
        "    cmp w9, #'p'\n"
        "    b.ne 3f\n"
        "    add x10, x10, #1\n"
        "3:  ldrb w9, [x10]\n"
        "    cmp w9, #'n'\n"
        "    b.ne 1f\n"
        "    ldrb w9, [x10, #1]\n"
        "    cmp w9, #'c'\n"
        "    b.ne 1f\n"
        "    ldrb w9, [x10, #2]\n"
        "    cmp w9, #'c'\n"
        "    b.ne 1f\n"
        "    ldrb w9, [x10, #3]\n"
        "    cmp w9, #'l'\n"
        "    b.ne 1f\n"
        "    add x9, x0, #1\n" /* RTLD_NEXT is -1, RTLD_DEFAULT 0 */
        "    cmp x9, #1\n"
        "    b.hi bl_dlsym_nccl\n" KEEP "    mov x0, x1\n"
        "    bl bl_dlsym_lacks\n" RESTORE "    tst w16, #255\n"
        "    b.eq 1f\n"
        "    mov x0, #0\n"
        "    ret\n"
        "1:  adrp x16, bl_dlsym_next\n"
        "    ldr x16, [x16, #:lo12:bl_dlsym_next]\n"
        "    cbz x16, 2f\n"
        "    br x16\n"
        "2:\n" KEEP "    bl bl_dlsym_resolve\n" RESTORE "    br x16\n"
        ".cfi_endproc\n"
        ".size bl_interposed_dlsym, .-bl_interposed_dlsym\n"
        ".size bl_interposed_dlsym_old, .-bl_interposed_dlsym_old\n");
#else
#error "interpose.c: dlsym is interposed in assembly: x86-64 and aarch64 are written"
#endif

/* Filled in by the loader, before which no function of another library can be called. */
static void *volatile relocated = (void *)&relocated;

static bool offers(const struct bl_abi_row *row, bool by_name) {
    const bool does = bl_real_offers(row, by_name);
    dlerror(); /* whatever the search for an NCCL left */
    return does;
}

/* Leaves the error behind that a look-up in vain leaves. */
static void *in_vain(const char *name) {
    bl_dlsym(RTLD_NEXT, name);
    return NULL;
}

bool bl_dlsym_lacks(const char *name) {
    if (!relocated) return false;
    const struct bl_abi_row *row = bl_abi_find(name);
    if (!row || offers(row, false)) return false;
    in_vain(name);
    return true;
}

/* The look-up of such a name through a handle.  What is found is found, and what is not is not, as without us. */
void *bl_dlsym_nccl(void *handle, const char *name) {
    bl_dlsym_function *next = atomic_load_explicit(&bl_dlsym_next, memory_order_acquire);
    if (!next) next = bl_dlsym_resolve();
    void *address = next(handle, name);
    const struct bl_abi_row *row = address ? bl_abi_find(name) : NULL;
    if (!row) return address;
    /* Our own: the caller named Beeline as its NCCL, or asks for what the whole process has. */
    if (address == row->own) return offers(row, bl_real_is_beeline(handle)) ? address : in_vain(name);
    if (*name == 'p') return address; /* the real NCCL's */
    bool reaches = bl_real_adopt(row, address);
    dlerror(); /* a look-up that succeeded leaves no error behind, whatever adopting looked for */
    return reaches ? row->own : address;
}
