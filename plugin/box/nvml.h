/* nvml.h - what NVIDIA's management library tells of a GPU that the driver does not: its NVLinks, MIG, confidential computing.
 *
 * The library is found at run time, opened and initialised at the first question, and kept: it takes long.  Where it is not there,
 * every answer is that nothing is known.  GPUs are named by UUID, so also those that CUDA_VISIBLE_DEVICES hides.
 * Threads: any.
 */
#ifndef BEELINE_NVML_H
#define BEELINE_NVML_H

#include <stdbool.h>

#include "dispatch.h"

struct bl_nvml_gpu {
    bool known;
    unsigned nvlinks, nvlink_version; /* active links; of the first */
    bool nvswitch;                    /* they lead to switches */
    bool mig;
};

struct bl_nvml_gpu bl_nvml_gpu(const unsigned char uuid[16]);

/* NONE, PCIE, NVLINK or UNKNOWN. */
enum bl_link bl_nvml_pair(const unsigned char a[16], const unsigned char b[16]);

/* What GPUs that are joined by PCIe have in common: PCIE_SWITCH, PCIE_HOST, PCIE_SOCKET, or PCIE if that is not known. */
enum bl_link bl_nvml_path(const unsigned char a[16], const unsigned char b[16]);

bool bl_nvml_confidential(void);
const char *bl_nvml_driver(void); /* "580.159.04"; "" if it is not known */
const char *bl_nvml_error(void);  /* why it is not there; NULL: it is */

#endif
