/* fiber.c - switching between the engine and the CUDA threads, and their stacks. */
#define _GNU_SOURCE
#include "simt.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* GUARDED: of more stacks than that the process would have more mappings than Linux allows (vm.max_map_count). */
enum { STACK = 64 << 10, GUARD = 4096, SLAB = 64, COLOURS = 16, COLOUR = 320, GUARDED = 24000 };

struct stack {
    struct stack *next; /* while free; at the top end, where a fiber begins */
};
static struct stack *free_stacks;
static unsigned stacks_made;

static bool more_stacks(void) {
    char *slab = mmap(NULL, (size_t)SLAB * (STACK + GUARD), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (slab == MAP_FAILED) return false;
    for (int i = 0; i < SLAB; i++) {
        char *low = slab + (size_t)i * (STACK + GUARD);
        if (stacks_made < GUARDED) mprotect(low, GUARD, PROT_NONE);
        /* Stacks at equal offsets of a page would fight for the same lines of the host's cache. */
        char *top = low + GUARD + STACK - 64 - (stacks_made++ % COLOURS) * COLOUR;
        struct stack *stack = (struct stack *)((uintptr_t)top & ~(uintptr_t)63);
        stack->next = free_stacks;
        free_stacks = stack;
    }
    return true;
}

#if (defined __x86_64__ || defined __aarch64__) && !defined BEELINE_EMU_UCONTEXT
static void *engine;

/* Keeps what a called function must keep on the stack that it leaves: words, that of the address to go on at among them. */
void emu_fiber_swap(void **save, void *to);
#ifdef __x86_64__
enum { KEPT = 8, RETURN = 6 }; /* one more: entry() sees the alignment of a called function */
__asm__(".text\n"
        ".hidden emu_fiber_swap\n"
        ".globl emu_fiber_swap\n"
        ".type emu_fiber_swap, @function\n"
        "emu_fiber_swap:\n"
        "    push %rbp\n"
        "    push %rbx\n"
        "    push %r12\n"
        "    push %r13\n"
        "    push %r14\n"
        "    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n"
        "    pop %r14\n"
        "    pop %r13\n"
        "    pop %r12\n"
        "    pop %rbx\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size emu_fiber_swap, . - emu_fiber_swap\n");
#else
enum { KEPT = 20, RETURN = 11 };
__asm__(".text\n"
        ".hidden emu_fiber_swap\n"
        ".globl emu_fiber_swap\n"
        ".type emu_fiber_swap, %function\n"
        "emu_fiber_swap:\n"
        "    stp x19, x20, [sp, #-160]!\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    ldp x19, x20, [sp], #160\n"
        "    ret\n"
        ".size emu_fiber_swap, . - emu_fiber_swap\n");
#endif

static void make(struct fiber *fiber, void (*entry)(void)) {
    void **sp = (void **)fiber->stack - KEPT;
    memset(sp, 0, KEPT * sizeof *sp);
    sp[RETURN] = (void *)(uintptr_t)entry;
    fiber->context = sp;
}

void fiber_resume(struct fiber *fiber) {
    emu_fiber_swap(&engine, fiber->context);
}
void fiber_give_way(struct fiber *fiber) {
    emu_fiber_swap(&fiber->context, engine);
}
static void unmake(struct fiber *fiber) {
    fiber->context = NULL;
}

#else /* any other machine: slower, and just as good */
#include <ucontext.h>
static ucontext_t engine;

static void make(struct fiber *fiber, void (*entry)(void)) {
    ucontext_t *context = malloc(sizeof *context);
    if (!context) return;
    getcontext(context);
    char *top = fiber->stack;
    context->uc_stack.ss_size = STACK - 64 - COLOURS * COLOUR;
    context->uc_stack.ss_sp = top - context->uc_stack.ss_size;
    context->uc_link = NULL;
    makecontext(context, entry, 0);
    fiber->context = context;
}

void fiber_resume(struct fiber *fiber) {
    swapcontext(&engine, fiber->context);
}
void fiber_give_way(struct fiber *fiber) {
    swapcontext(fiber->context, &engine);
}
static void unmake(struct fiber *fiber) {
    free(fiber->context);
    fiber->context = NULL;
}
#endif

bool fiber_start(struct fiber *fiber, void (*entry)(void)) {
    if (!free_stacks && !more_stacks()) return false;
    fiber->stack = free_stacks;
    free_stacks = free_stacks->next;
    make(fiber, entry);
    return fiber->context;
}

void fiber_stop(struct fiber *fiber) {
    if (!fiber->stack) return;
    unmake(fiber);
    struct stack *stack = fiber->stack;
    stack->next = free_stacks;
    free_stacks = stack;
    fiber->stack = NULL;
}
