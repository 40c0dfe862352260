/* hwloc_test.c - plugin/box/hwloc.h against hwloc's own header, where that is installed. */
#include <stddef.h>

#include "box/hwloc.h"
#include "check.h"

#if __has_include(<hwloc/autogen/config.h>) /* hwloc.h alone is there for another machine, too */
#include <hwloc.h>

#define SAME_PLACE(ours, theirs)                                                                                       \
    CHECK(offsetof(struct hw_object, ours) == offsetof(struct hwloc_obj, theirs), "%s is elsewhere", #ours)

int main(void) {
    SAME_PLACE(type, type);
    SAME_PLACE(os_index, os_index);
    SAME_PLACE(attr, attr);
    SAME_PLACE(next_cousin, next_cousin);
    SAME_PLACE(parent, parent);
    SAME_PLACE(memory_arity, memory_arity);
    SAME_PLACE(nodeset, nodeset);
    CHECK(offsetof(struct hw_pci, function) == offsetof(struct hwloc_pcidev_attr_s, func), "function");
    CHECK(offsetof(struct hw_bridge, upstream_type) == offsetof(struct hwloc_bridge_attr_s, upstream_type), "upstream");
    CHECK((int)HW_PACKAGE == HWLOC_OBJ_PACKAGE && (int)HW_BRIDGE == HWLOC_OBJ_BRIDGE &&
              (int)HW_PCI_DEVICE == HWLOC_OBJ_PCI_DEVICE && (int)HW_OS_DEVICE == HWLOC_OBJ_OS_DEVICE,
          "kinds of objects");
    CHECK((int)HW_KEEP_NONE == HWLOC_TYPE_FILTER_KEEP_NONE &&
              (int)HW_KEEP_IMPORTANT == HWLOC_TYPE_FILTER_KEEP_IMPORTANT,
          "filters");
#if HWLOC_API_VERSION >= 0x00020500
    CHECK((unsigned)HW_DONT_CHANGE_BINDING == HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING, "the flag");
#endif
    CHECK((int)HW_DEPTH_PCI_DEVICE == HWLOC_TYPE_DEPTH_PCI_DEVICE && (int)HW_BRIDGE_PCI == HWLOC_OBJ_BRIDGE_PCI,
          "numbers");
    return say_checks();
}
#else
int main(void) {
    puts("hwloc.h is not installed");
    return 77;
}
#endif
