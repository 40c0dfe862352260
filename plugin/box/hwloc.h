/* hwloc.h - the little of hwloc's header of that name that is needed, as it is in all of 2.x (libhwloc.so.15): it may not be
 * installed where Beeline is built.  Where it is, test/unit/hwloc_test.c compares.
 */
#ifndef BEELINE_HWLOC_H
#define BEELINE_HWLOC_H

#include <stdint.h>

enum { HW_PACKAGE = 1, HW_BRIDGE = 14, HW_PCI_DEVICE = 15, HW_OS_DEVICE = 16 }; /* hwloc_obj_type_t */
enum { HW_KEEP_NONE = 1, HW_KEEP_IMPORTANT = 3 };                               /* enum hwloc_type_filter_e */
enum { HW_DEPTH_PCI_DEVICE = -5 };                                              /* enum hwloc_get_type_depth_e */
enum { HW_BRIDGE_PCI = 1 };                                                     /* hwloc_obj_bridge_type_t */
enum { HW_DONT_CHANGE_BINDING = 1 << 6 };                                       /* enum hwloc_topology_flags_e */

struct hw_pci {
    uint16_t domain;
    uint8_t bus, device, function;
    uint16_t class_id, vendor, device_id, subvendor, subdevice;
    uint8_t revision;
    float speed;
};

struct hw_bridge {
    struct hw_pci upstream;
    int upstream_type;
};

struct hw_object {
    int type;
    char *subtype;
    unsigned os_index;
    char *name;
    uint64_t total_memory;
    union {
        struct hw_pci pci;
        struct hw_bridge bridge;
    } * attr;
    int depth;
    unsigned logical_index;
    struct hw_object *next_cousin, *prev_cousin, *parent;
    unsigned sibling_rank;
    struct hw_object *next_sibling, *prev_sibling;
    unsigned arity;
    struct hw_object **children, *first_child, *last_child;
    int symmetric_subtree;
    unsigned memory_arity;
    struct hw_object *memory_first_child;
    unsigned io_arity;
    struct hw_object *io_first_child;
    unsigned misc_arity;
    struct hw_object *misc_first_child;
    void *cpuset, *complete_cpuset, *nodeset; /* not those of I/O objects */
};

#endif
