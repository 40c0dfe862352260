/* pointer.c - see pointer.h. */
#include "pointer.h"

#include <stdint.h>

bool bl_pointer_reaches(const void *buffer, CUdevice device) {
    unsigned type = 0, managed = 0;
    CUdeviceptr reached = 0;
    int owner = -1;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *values[] = {&type, &managed, &reached, &owner};
    const unsigned count = sizeof(names) / sizeof(*names);
    /* Of an address that it does not know the driver says nothing, and no error. */
    if (bl_driver()->cuPointerGetAttributes(count, names, values, (CUdeviceptr)(uintptr_t)buffer)) return true;
    return reached && (type != CU_MEMORYTYPE_DEVICE || managed || owner == (int)device);
}
