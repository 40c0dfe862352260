/* device.c - the GPUs of the emulated box. */
#include "emu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool emu_device_valid(CUdevice device) {
    return device >= 0 && device < emu_config.devices;
}

CUdevice emu_device_of_index(int index) {
    for (int i = 0; i < emu_config.devices; i++)
        if (emu_config.visible[i] == index) return i;
    return -1;
}

bool emu_peer_possible(int device, int peer) {
    return device == peer || emu_config.nvlinks[device][peer] ||
           (emu_config.topology != EMU_NONE && !emu_config.p2p_by_nvlink);
}

unsigned emu_nvlinks(int device) {
    unsigned most = 0, all = 0;
    for (int peer = 0; peer < emu_config.gpus; peer++) {
        all += emu_config.nvlinks[device][peer];
        if (emu_config.nvlinks[device][peer] > most) most = emu_config.nvlinks[device][peer];
    }
    return emu_config.nvswitch ? most : all;
}

static bool has_atomics(int device, int peer) {
    return emu_config.nvlinks[device][peer];
}

EMU_CALL(cuDeviceGetCount, 2000, (int *count), (count)) {
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    *count = emu_config.devices;
    return CUDA_SUCCESS;
}

EMU_CALL(cuDeviceGet, 2000, (CUdevice * device, int ordinal), (device, ordinal)) {
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    if (!emu_device_valid(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

EMU_CALL(cuDeviceGetName, 2000, (char *name, int length, CUdevice device), (name, length, device)) {
    if (!emu_device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (!name || length < 1) return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)length, "%s", emu_config.name);
    return CUDA_SUCCESS;
}

/* Equal in every process of the box. */
EMU_CALL(cuDeviceGetUuid_v2, 9020, (CUuuid * uuid, CUdevice device), (uuid, device)) {
    if (!emu_device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (!uuid) return CUDA_ERROR_INVALID_VALUE;
    memcpy(uuid->bytes, "beeline-emulated", 16);
    uuid->bytes[15] = (char)emu_config.visible[device];
    return CUDA_SUCCESS;
}

EMU_CALL(cuDeviceGetPCIBusId, 4010, (char *text, int length, CUdevice device), (text, length, device)) {
    if (!emu_device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (!text || length < 13) return CUDA_ERROR_INVALID_VALUE;
    snprintf(text, (size_t)length, "%s", emu_config.pci[emu_config.visible[device]]);
    return CUDA_SUCCESS;
}

EMU_CALL(cuDeviceGetByPCIBusId, 4010, (CUdevice * device, const char *text), (device, text)) {
    unsigned domain, bus, slot, function = 0;
    if (!device || !text) return CUDA_ERROR_INVALID_VALUE;
    if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        if (sscanf(text, "%x:%x.%x", &bus, &slot, &function) < 2) return CUDA_ERROR_INVALID_VALUE;
    }
    char wanted[16];
    CUdevice found = 0;
    snprintf(wanted, sizeof wanted, "%04x:%02x:%02x.%x", domain & 0xffff, bus & 0xff, slot & 0xff, function & 0xf);
    while (found < emu_config.devices && strcasecmp(emu_config.pci[emu_config.visible[found]], wanted) != 0) found++;
    if (found == emu_config.devices) return CUDA_ERROR_INVALID_DEVICE;
    *device = found;
    return CUDA_SUCCESS;
}

static const struct {
    CUdevice_attribute attribute;
    int value;
} attributes[] = {
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7fffffff},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, EMU_BLOCK_MEMORY},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, EMU_MOST_BLOCK_MEMORY},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, EMU_SM_MEMORY},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 0},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0},
    {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0},
};

EMU_CALL(cuDeviceGetAttribute, 2000, (int *value, CUdevice_attribute attribute, CUdevice device),
         (value, attribute, device)) {
    if (!emu_device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (!value || attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    const struct {
        CUdevice_attribute attribute;
        int value;
    } of_config[] = {
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, emu_config.sms},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, emu_config.max_threads},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, emu_config.max_threads},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, emu_config.max_threads},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, emu_config.max_threads},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, emu_config.max_threads},
        {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, (int)strtol(emu_config.pci[emu_config.visible[device]] + 5, NULL, 16)},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, emu_config.arch / 10},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, emu_config.arch % 10},
        {CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, emu_config.multicast},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, emu_config.fabric != EMU_FABRIC_OFF},
    };
    *value = 0;
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (attributes[i].attribute == attribute) *value = attributes[i].value;
    for (size_t i = 0; i < sizeof of_config / sizeof *of_config; i++)
        if (of_config[i].attribute == attribute) *value = of_config[i].value;
    return CUDA_SUCCESS;
}

EMU_CALL(cuDeviceTotalMem_v2, 3020, (size_t * bytes, CUdevice device), (bytes, device)) {
    if (!emu_device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    *bytes = emu_config.memory;
    return CUDA_SUCCESS;
}

EMU_CALL(cuDeviceCanAccessPeer, 4000, (int *can, CUdevice device, CUdevice peer), (can, device, peer)) {
    if (!emu_device_valid(device) || !emu_device_valid(peer)) return CUDA_ERROR_INVALID_DEVICE;
    if (!can) return CUDA_ERROR_INVALID_VALUE;
    *can = device != peer && emu_peer_possible(emu_config.visible[device], emu_config.visible[peer]);
    return CUDA_SUCCESS;
}

EMU_CALL(cuDeviceGetP2PAttribute, 8000, (int *value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer),
         (value, attribute, device, peer)) {
    if (!emu_device_valid(device) || !emu_device_valid(peer) || device == peer) return CUDA_ERROR_INVALID_DEVICE;
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    bool access = emu_peer_possible(emu_config.visible[device], emu_config.visible[peer]);
    bool atomics = has_atomics(emu_config.visible[device], emu_config.visible[peer]);
    switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK: *value = atomics ? 0 : 1; break;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED: *value = access; break;
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED: *value = atomics; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}
