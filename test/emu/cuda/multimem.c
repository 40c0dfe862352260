/* multimem.c - what multimem instructions do: an access to an address of a multicast mapping is one to the same place in
 * the memory of each device of the team.
 *
 * A store or an addition arrives at each device at another time, as any store to a peer does; a load finds in each what a
 * relaxed load would.  Which device's value comes first the hardware decides, so here every load draws it anew.
 */
#include "simt.h"

/* The places behind a multicast address, and their ranges. */
struct places {
    int count;
    uintptr_t address[EMU_MAX_DEVICES];
};

static struct places places_of(uintptr_t address, unsigned size, bool write) {
    struct places places;
    const struct emu_range *range = emu_range_of(address);
    const struct emu_context *context = fiber_now->block->kernel->launch.context;
    if (!range || range->kind != EMU_MULTICAST || !emu_range_holds(range, address, size) ||
        !((write ? range->writable : range->readable) >> context->device & 1))
        simt_fault(CUDA_ERROR_ILLEGAL_ADDRESS, "multimem access outside multicast mappings", address, size);
    if (address % size) simt_fault(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned multimem access", address, size);
    if (!fiber_now->waited)
        simt_fault(CUDA_ERROR_LAUNCH_FAILED, "access before the stream's earlier work was waited for", address, size);
    places.count = emu_multicast_places(range, address, size, places.address);
    if (places.count < 0)
        simt_fault(CUDA_ERROR_ILLEGAL_ADDRESS, "multimem access where a device has nothing bound", address, size);
    return places;
}

static void to_all(uintptr_t address, const void *data, unsigned size, enum delivery_kind kind) {
    struct places places = places_of(address, size, true);
    for (int i = 0; i < places.count; i++) {
        const struct emu_range *range = emu_range_of(places.address[i]); /* others have run since the last one */
        if (!range) simt_fault(CUDA_ERROR_ILLEGAL_ADDRESS, "memory unbound under a multimem access", address, size);
        delivery_buffer(range, places.address[i], data, size, kind);
    }
}

void multimem_store(void *address, const uint64_t value[2], bool packet) {
    to_all((uintptr_t)address, value, 16, packet ? STORED_PACKET : STORED_WORD);
}

/* The release: before any device has it, all that the thread knows of has arrived. */
void multimem_add(uint64_t *address, uint64_t value) {
    delivery_drain();
    to_all((uintptr_t)address, &value, sizeof value, ADDED_WORD);
}

unsigned multimem_load(uint64_t (*values)[2], const void *address, unsigned size, int arch) {
    if (emu_config.arch < arch)
        simt_fault(CUDA_ERROR_ILLEGAL_INSTRUCTION, "multimem.ld_reduce of a type that the GPU lacks",
                   (uintptr_t)address, size);
    struct places places = places_of((uintptr_t)address, size, false);
    unsigned count = 0;
    for (int left = places.count; left; left--) {
        int pick = (int)(emu_random(&simt_random) % (uint64_t)left);
        uintptr_t place = places.address[pick];
        places.address[pick] = places.address[left - 1];
        unsigned char *value = (unsigned char *)values[count++];
        for (unsigned at = 0; at < size; at += 8)
            delivery_read(value + at, emu_range_of(place), place + at, size < 8 ? size : 8);
    }
    return count;
}
