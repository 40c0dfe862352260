/* config.c - the emulated box as its environment describes it.
 *
 *   BEELINE_EMU_GPUS=N         GPUs of the box (2); CUDA_VISIBLE_DEVICES picks among them
 *   BEELINE_EMU_TOPOLOGY=T     nvlink (all pairs, native atomics), pcie (without atomics), none (no peer access),
 *                              broken (packets, lines and copies from one GPU to another arrive changed), nvls (nvlink
 *                              that reports multicast), mixed (nvlink, but pcie between the last two GPUs)
 *   BEELINE_EMU_SMS=N          multiprocessors, each holds two blocks (4);  BEELINE_EMU_BLOCK=N threads of a block (32 for
 *                              each two GPUs, at least 64), or fewer by a kernel's launch bounds
 *   CUDA_DEVICE_MAX_CONNECTIONS=N  as ever (here each stream has a queue of its own if it is not set): queue.c
 *   BEELINE_EMU_DEPTH=N        entries that a stream has room for (1024): who brings one more waits
 *   BEELINE_EMU_ARCH=N         compute capability: 90 (default), below that without multicast, 100 has it for fp8, too
 *   BEELINE_EMU_NAME=TEXT      what the GPUs are called;  BEELINE_EMU_PCI="ADDRESS ..." where they are
 *   BEELINE_EMU_NVLINKS="N ..."     between GPU 0 and 0, 0 and 1, ... (the topology's pairs have 18);  BEELINE_EMU_NVSWITCH=1
 *                              they lead to switches, so these are a GPU's;  BEELINE_EMU_NVLINK_VERSION=N (4)
 *   BEELINE_EMU_P2P_BY_NVLINK=1     no peer access else;  BEELINE_EMU_NVML=0 libnvidia-ml.so.1 does not work
 *   BEELINE_EMU_MEMORY=BYTES   of a GPU (8 GiB)
 *   BEELINE_EMU_MULTICAST_SLOTS=N   multicast objects that the box has room for (64)
 *   BEELINE_EMU_MULTICAST_WAIT=MS   how long a call waits until all devices are added to one (10000)
 *   BEELINE_EMU_FABRIC=F       fabric handles: off (default), on, denied (the attribute claims them, their use fails)
 *   BEELINE_EMU_IMPLICIT_SYNC=W     whether calls that may wait for the context's work do: drawn (default), always, never
 *   BEELINE_EMU_SEED=N         of all interleavings and deliveries (1)
 *   BEELINE_EMU_KERNELS=FILE   the kernels (libbeeline-kernels.so beside this library)
 *   BEELINE_EMU_FAULT=LIST     calls that fail: function[@rank-or-device][#nth]=CUDA_ERROR_NAME, comma-separated
 *   BEELINE_EMU_LACKS=LIST     calls that cuGetProcAddress does not find, as an older driver's: names, comma-separated
 *   BEELINE_EMU_SPEEDS=FILE    made-up times, which events then tell of: speed.c
 *   BEELINE_EMU_DRIVER=N       the driver's CUDA version (13000): of calls that came later cuGetProcAddress finds none
 *   BEELINE_EMU_TRACE=FILE     a line for each driver call: process, name, result
 *   BEELINE_EMU_LEAKS=1|FILE   tells at exit, on stderr or in FILE, what was not given back
 */
#include "emu.h"
#include "emulated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct emu_config emu_config;

__attribute__((visibility("default"))) const char beeline_emulated_driver[] = "Beeline's emulated driver";

static long long number(const char *name, long long value, long long low, long long high) {
    const char *text = getenv(name);
    if (!text || !*text) return value;
    char *end;
    long long parsed = strtoll(text, &end, 0);
    if (*end || parsed < low || parsed > high) {
        emu_say("%s='%s' is not a number from %lld to %lld; %lld is used", name, text, low, high, value);
        return value;
    }
    return parsed;
}

static const char *text_or_null(const char *name) {
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

/* The place of a variable's value among `count` words; 0, the default, if it is none of them. */
static int word(const char *name, const char *const *words, int count) {
    const char *text = text_or_null(name);
    for (int i = 0; text && i < count; i++)
        if (!strcmp(text, words[i])) return i;
    if (text) emu_say("%s='%s' is none of its words; %s is used", name, text, words[0]);
    return 0;
}

static void read_words(void) {
    static const char *const topologies[] = {[EMU_NVLINK] = "nvlink", [EMU_PCIE] = "pcie", [EMU_NONE] = "none",
                                             [EMU_BROKEN] = "broken", [EMU_NVLS] = "nvls", [EMU_MIXED] = "mixed"};
    static const char *const fabrics[] = {
        [EMU_FABRIC_OFF] = "off", [EMU_FABRIC_ON] = "on", [EMU_FABRIC_DENIED] = "denied"};
    static const char *const syncs[] = {
        [EMU_SYNC_DRAWN] = "drawn", [EMU_SYNC_ALWAYS] = "always", [EMU_SYNC_NEVER] = "never"};
    emu_config.sync = (enum emu_sync)word("BEELINE_EMU_IMPLICIT_SYNC", syncs, EMU_SYNC_NEVER + 1);
    emu_config.topology = (enum emu_topology)word("BEELINE_EMU_TOPOLOGY", topologies, EMU_MIXED + 1);
    emu_config.arch = (int)number("BEELINE_EMU_ARCH", 90, 50, 129);
    emu_config.multicast = emu_config.topology == EMU_NVLS && emu_config.arch >= 90;
    emu_config.p2p_by_nvlink = number("BEELINE_EMU_P2P_BY_NVLINK", 0, 0, 1);
    emu_config.fabric = (enum emu_fabric)word("BEELINE_EMU_FABRIC", fabrics, EMU_FABRIC_DENIED + 1);
}

static bool joined_by_nvlink(int a, int b) {
    const bool last_two = a + b == 2 * emu_config.gpus - 3;
    return a != b && emu_config.topology != EMU_PCIE && emu_config.topology != EMU_NONE &&
           !(emu_config.topology == EMU_MIXED && last_two);
}

/* How the GPUs are joined, and where they are: as the topology says, or one number for each pair, and an address for each GPU. */
static void read_links(void) {
    const char *links = text_or_null("BEELINE_EMU_NVLINKS"), *places = text_or_null("BEELINE_EMU_PCI");
    for (int a = 0; a < emu_config.gpus; a++) {
        for (int b = 0; b < emu_config.gpus; b++) {
            char *end = NULL;
            emu_config.nvlinks[a][b] = links ? (uint8_t)strtoul(links, &end, 10) : joined_by_nvlink(a, b) ? 18 : 0;
            if (links) links = end;
        }
        int length = 0;
        snprintf(emu_config.pci[a], sizeof emu_config.pci[a], "0000:%02X:00.0", (0x10 + a) & 0xff);
        if (places && sscanf(places, "%15s%n", emu_config.pci[a], &length) == 1) places += length;
    }
    emu_config.nvswitch = number("BEELINE_EMU_NVSWITCH", emu_config.topology != EMU_MIXED, 0, 1);
    emu_config.nvlink_version = (unsigned)number("BEELINE_EMU_NVLINK_VERSION", 4, 1, 9);
    emu_config.nvml = number("BEELINE_EMU_NVML", 1, 0, 1);
    emu_config.name = text_or_null("BEELINE_EMU_NAME") ? text_or_null("BEELINE_EMU_NAME") : "Beeline Emulated GPU";
}

/* As the real driver: a comma-separated list of indices that ends at the first bad one. */
static void read_visible(void) {
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    emu_config.devices = 0;
    if (!text) {
        for (int i = 0; i < emu_config.gpus; i++) emu_config.visible[emu_config.devices++] = i;
        return;
    }
    while (*text && emu_config.devices < EMU_MAX_DEVICES) {
        char *end;
        long index = strtol(text, &end, 10);
        if (end == text || index < 0 || index >= emu_config.gpus) return;
        emu_config.visible[emu_config.devices++] = (int)index;
        if (*end != ',') return;
        text = end + 1;
    }
}

void emu_config_read(void) {
    emu_config.gpus = (int)number("BEELINE_EMU_GPUS", 2, 0, EMU_MAX_DEVICES);
    emu_config.sms = (int)number("BEELINE_EMU_SMS", 4, 1, 1024);
    const int warps = (emu_config.gpus + 1) / 2; /* what some kernels need at least */
    emu_config.max_threads = (int)number("BEELINE_EMU_BLOCK", warps > 2 ? 32 * warps : 64, 1, 1024);
    emu_config.seed = (uint64_t)number("BEELINE_EMU_SEED", 1, 0, INT64_MAX);
    emu_config.memory = (uint64_t)number("BEELINE_EMU_MEMORY", 8ll << 30, 1 << 20, 1ll << 40);
    emu_config.local_rank = (int)number("LOCAL_RANK", -1, -1, 1 << 20);
    emu_config.multicast_slots = (int)number("BEELINE_EMU_MULTICAST_SLOTS", 64, 0, 1 << 16);
    emu_config.multicast_wait = (int)number("BEELINE_EMU_MULTICAST_WAIT", 10000, 0, 1 << 30);
    emu_config.connections = (int)number("CUDA_DEVICE_MAX_CONNECTIONS", 0, 1, 32);
    emu_config.depth = (uint64_t)number("BEELINE_EMU_DEPTH", 1024, 1, 1 << 30);
    emu_config.run = text_or_null("BEELINE_EMU_RUN");
    read_words();
    read_links();
    emu_config.kernels = text_or_null("BEELINE_EMU_KERNELS");
    emu_config.trace = text_or_null("BEELINE_EMU_TRACE");
    emu_config.faults = text_or_null("BEELINE_EMU_FAULT");
    emu_config.speeds = text_or_null("BEELINE_EMU_SPEEDS");
    emu_config.driver = (int)number("BEELINE_EMU_DRIVER", CUDA_VERSION, 12000, CUDA_VERSION);
    emu_config.lacks = text_or_null("BEELINE_EMU_LACKS");
    emu_config.leaks = text_or_null("BEELINE_EMU_LEAKS");
    read_visible();
}
