/* tree.c - see tree.h. */
#include "tree.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "hwloc.h"
#include "library.h"

static struct {
    unsigned (*version)(void);
    int (*init)(void **);
    int (*flags)(void *, unsigned long);
    int (*filter)(void *, int, int);
    int (*load)(void *);
    struct hw_object *(*object)(void *, int, unsigned);
    int (*weight)(const void *);
    int (*first)(const void *);
} hwloc;

static const struct bl_library_row functions[] = {
    {"hwloc_get_api_version", offsetof(__typeof__(hwloc), version), true},
    {"hwloc_topology_init", offsetof(__typeof__(hwloc), init), true},
    {"hwloc_topology_set_flags", offsetof(__typeof__(hwloc), flags), true},
    {"hwloc_topology_set_type_filter", offsetof(__typeof__(hwloc), filter), true},
    {"hwloc_topology_load", offsetof(__typeof__(hwloc), load), true},
    {"hwloc_get_obj_by_depth", offsetof(__typeof__(hwloc), object), true},
    {"hwloc_bitmap_weight", offsetof(__typeof__(hwloc), weight), true},
    {"hwloc_bitmap_first", offsetof(__typeof__(hwloc), first), true},
};

static void *topology; /* for good */
static const char *error;
static char version[16];

/* No OS devices: to look for them hwloc would ask CUDA, which is not ours to start. */
static int load(void) {
    if (hwloc.init(&topology)) return -1;
    hwloc.flags(topology, HW_DONT_CHANGE_BINDING); /* fails before hwloc 2.5 */
    return hwloc.filter(topology, HW_BRIDGE, HW_KEEP_IMPORTANT) ||
           hwloc.filter(topology, HW_PCI_DEVICE, HW_KEEP_IMPORTANT) ||
           hwloc.filter(topology, HW_OS_DEVICE, HW_KEEP_NONE) || hwloc.load(topology);
}

static void open_library(void) {
    static char text[160];
    error = text;
    if (!bl_library_open("libhwloc.so.15", functions, sizeof(functions) / sizeof(*functions), &hwloc, text,
                         sizeof(text)))
        return;
    const unsigned api = hwloc.version();
    if (api >> 16 != 2) {
        snprintf(text, sizeof(text), "libhwloc.so.15 has version %u of its interface, not 2", api >> 16);
        return;
    }
    if (load()) {
        snprintf(text, sizeof(text), "hwloc cannot read the machine");
        return;
    }
    snprintf(version, sizeof(version), "%u.%u", api >> 16, api >> 8 & 255);
    error = NULL;
}

const char *bl_tree_error(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_library);
    return error;
}

const char *bl_tree_version(void) {
    return bl_tree_error() ? NULL : version;
}

static const struct hw_object *find(const char *pci) {
    unsigned domain, bus, device, function;
    if (bl_tree_error() || sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) return NULL;
    const struct hw_object *object = hwloc.object(topology, HW_DEPTH_PCI_DEVICE, 0);
    for (; object; object = object->next_cousin) {
        const struct hw_pci *at = &object->attr->pci;
        if (at->domain == domain && at->bus == bus && at->device == device && at->function == function) break;
    }
    return object;
}

static bool is_io(const struct hw_object *object) {
    return object->type == HW_BRIDGE || object->type == HW_PCI_DEVICE;
}

/* Not one of a processor to its PCI buses. */
static bool is_pci_bridge(const struct hw_object *object) {
    return object->type == HW_BRIDGE && object->attr->bridge.upstream_type == HW_BRIDGE_PCI;
}

struct bl_place bl_tree_place(const char *pci) {
    struct bl_place place = {.numa = -1, .package = -1};
    const struct hw_object *object = find(pci);
    for (; object && is_io(object); object = object->parent)
        if (is_pci_bridge(object)) {
            const struct hw_pci *at = &object->attr->bridge.upstream;
            snprintf(place.port, sizeof(place.port), "%04x:%02x:%02x.%x", at->domain, at->bus, at->device,
                     at->function);
        }
    if (object && object->nodeset && hwloc.weight(object->nodeset) == 1) place.numa = hwloc.first(object->nodeset);
    while (object && object->type != HW_PACKAGE) object = object->parent;
    if (object) place.package = (int)object->os_index;
    return place;
}

static const struct hw_object *common(const struct hw_object *a, const struct hw_object *b) {
    for (; a; a = a->parent)
        for (const struct hw_object *other = b; other; other = other->parent)
            if (a == other) return a;
    return NULL;
}

enum bl_link bl_tree_path(const char *a, const char *b) {
    const struct hw_object *one = find(a), *other = find(b);
    if (!one || !other) return BL_LINK_PCIE;
    const struct hw_object *meet = common(one, other);
    if (meet && is_pci_bridge(meet)) return BL_LINK_PCIE_SWITCH;
    if (meet && meet->type == HW_BRIDGE) return BL_LINK_PCIE_HOST;
    return bl_tree_place(a).package == bl_tree_place(b).package ? BL_LINK_PCIE_HOST : BL_LINK_PCIE_SOCKET;
}
