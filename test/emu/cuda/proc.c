/* proc.c - cuGetProcAddress: every call by name and by the CUDA version from which its form holds. */
#include "emu.h"

#include <string.h>

#undef cuGetProcAddress
#undef cuGetProcAddress_v2
#undef cuStreamUpdateCaptureDependencies
#undef cuGraphNodeGetDependencies

/* Name, first version, symbol; a name's rows in ascending order.  Forms older than CUDA 4 are not offered. */
#define ROWS                                                                                                           \
    ROW(cuCtxCreate, 3020, cuCtxCreate_v2)                                                                             \
    ROW(cuCtxCreate, 12050, cuCtxCreate_v4)                                                                            \
    ROW(cuCtxDestroy, 4000, cuCtxDestroy_v2)                                                                           \
    ROW(cuCtxDisablePeerAccess, 4000, cuCtxDisablePeerAccess)                                                          \
    ROW(cuCtxEnablePeerAccess, 4000, cuCtxEnablePeerAccess)                                                            \
    ROW(cuCtxFromGreenCtx, 12040, cuCtxFromGreenCtx)                                                                   \
    ROW(cuCtxGetApiVersion, 3020, cuCtxGetApiVersion)                                                                  \
    ROW(cuCtxGetCurrent, 4000, cuCtxGetCurrent)                                                                        \
    ROW(cuCtxGetId, 12000, cuCtxGetId)                                                                                 \
    ROW(cuCtxGetDevice, 2000, cuCtxGetDevice)                                                                          \
    ROW(cuCtxGetDevice, 13000, cuCtxGetDevice_v2)                                                                      \
    ROW(cuCtxGetFlags, 7000, cuCtxGetFlags)                                                                            \
    ROW(cuCtxGetStreamPriorityRange, 5050, cuCtxGetStreamPriorityRange)                                                \
    ROW(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2)                                                                     \
    ROW(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2)                                                                   \
    ROW(cuCtxSetCurrent, 4000, cuCtxSetCurrent)                                                                        \
    ROW(cuCtxSynchronize, 2000, cuCtxSynchronize)                                                                      \
    ROW(cuCtxSynchronize, 13000, cuCtxSynchronize_v2)                                                                  \
    ROW(cuDevResourceGenerateDesc, 12040, cuDevResourceGenerateDesc)                                                   \
    ROW(cuDevSmResourceSplitByCount, 12040, cuDevSmResourceSplitByCount)                                               \
    ROW(cuDeviceCanAccessPeer, 4000, cuDeviceCanAccessPeer)                                                            \
    ROW(cuDeviceGet, 2000, cuDeviceGet)                                                                                \
    ROW(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute)                                                              \
    ROW(cuDeviceGetByPCIBusId, 4010, cuDeviceGetByPCIBusId)                                                            \
    ROW(cuDeviceGetCount, 2000, cuDeviceGetCount)                                                                      \
    ROW(cuDeviceGetDevResource, 12040, cuDeviceGetDevResource)                                                         \
    ROW(cuDeviceGetName, 2000, cuDeviceGetName)                                                                        \
    ROW(cuDeviceGetP2PAttribute, 8000, cuDeviceGetP2PAttribute)                                                        \
    ROW(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId)                                                                \
    ROW(cuDeviceGetUuid, 9020, cuDeviceGetUuid_v2)                                                                     \
    ROW(cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState)                                                  \
    ROW(cuDevicePrimaryCtxRelease, 7000, cuDevicePrimaryCtxRelease_v2)                                                 \
    ROW(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain)                                                      \
    ROW(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2)                                                                   \
    ROW(cuDriverGetVersion, 2020, cuDriverGetVersion)                                                                  \
    ROW(cuEventCreate, 2000, cuEventCreate)                                                                            \
    ROW(cuEventDestroy, 2000, cuEventDestroy_v2)                                                                       \
    ROW(cuEventElapsedTime, 2000, cuEventElapsedTime_v2)                                                               \
    ROW(cuEventQuery, 2000, cuEventQuery)                                                                              \
    ROW(cuEventRecord, 2000, cuEventRecord)                                                                            \
    ROW(cuEventRecordWithFlags, 11010, cuEventRecordWithFlags)                                                         \
    ROW(cuEventSynchronize, 2000, cuEventSynchronize)                                                                  \
    ROW(cuFuncGetAttribute, 2020, cuFuncGetAttribute)                                                                  \
    ROW(cuFuncGetModule, 11000, cuFuncGetModule)                                                                       \
    ROW(cuFuncLoad, 12040, cuFuncLoad)                                                                                 \
    ROW(cuFuncSetAttribute, 9000, cuFuncSetAttribute)                                                                  \
    ROW(cuGetErrorName, 6000, cuGetErrorName)                                                                          \
    ROW(cuGetErrorString, 6000, cuGetErrorString)                                                                      \
    ROW(cuGetProcAddress, 11030, cuGetProcAddress)                                                                     \
    ROW(cuGetProcAddress, 12000, cuGetProcAddress_v2)                                                                  \
    ROW(cuGraphAddDependencies, 12030, cuGraphAddDependencies_v2)                                                      \
    ROW(cuGraphRemoveDependencies, 12030, cuGraphRemoveDependencies_v2)                                                \
    ROW(cuGraphAddEmptyNode, 10000, cuGraphAddEmptyNode)                                                               \
    ROW(cuGraphAddEventRecordNode, 11010, cuGraphAddEventRecordNode)                                                   \
    ROW(cuGraphAddEventWaitNode, 11010, cuGraphAddEventWaitNode)                                                       \
    ROW(cuGraphAddHostNode, 10000, cuGraphAddHostNode)                                                                 \
    ROW(cuGraphCreate, 10000, cuGraphCreate)                                                                           \
    ROW(cuGraphDestroy, 10000, cuGraphDestroy)                                                                         \
    ROW(cuGraphExecDestroy, 10000, cuGraphExecDestroy)                                                                 \
    ROW(cuGraphGetNodes, 10000, cuGraphGetNodes)                                                                       \
    ROW(cuGraphInstantiate, 12000, cuGraphInstantiateWithFlags)                                                        \
    ROW(cuGraphInstantiateWithFlags, 11040, cuGraphInstantiateWithFlags)                                               \
    ROW(cuGraphKernelNodeGetParams, 12000, cuGraphKernelNodeGetParams_v2)                                              \
    ROW(cuGraphLaunch, 10000, cuGraphLaunch)                                                                           \
    ROW(cuGraphNodeGetDependencies, 10000, cuGraphNodeGetDependencies)                                                 \
    ROW(cuGraphNodeGetDependencies, 12030, cuGraphNodeGetDependencies_v2)                                              \
    ROW(cuGraphNodeGetType, 10000, cuGraphNodeGetType)                                                                 \
    ROW(cuGraphUpload, 11010, cuGraphUpload)                                                                           \
    ROW(cuGreenCtxCreate, 12040, cuGreenCtxCreate)                                                                     \
    ROW(cuGreenCtxDestroy, 12040, cuGreenCtxDestroy)                                                                   \
    ROW(cuGreenCtxGetDevResource, 12040, cuGreenCtxGetDevResource)                                                     \
    ROW(cuGreenCtxStreamCreate, 12050, cuGreenCtxStreamCreate)                                                         \
    ROW(cuInit, 2000, cuInit)                                                                                          \
    ROW(cuKernelGetFunction, 12000, cuKernelGetFunction)                                                               \
    ROW(cuLaunchCooperativeKernel, 9000, cuLaunchCooperativeKernel)                                                    \
    ROW(cuLaunchHostFunc, 10000, cuLaunchHostFunc)                                                                     \
    ROW(cuLaunchKernel, 4000, cuLaunchKernel)                                                                          \
    ROW(cuLaunchKernelEx, 11060, cuLaunchKernelEx)                                                                     \
    ROW(cuLibraryGetKernel, 12000, cuLibraryGetKernel)                                                                 \
    ROW(cuLibraryGetModule, 12000, cuLibraryGetModule)                                                                 \
    ROW(cuLibraryLoadData, 12000, cuLibraryLoadData)                                                                   \
    ROW(cuLibraryUnload, 12000, cuLibraryUnload)                                                                       \
    ROW(cuMemAddressFree, 10020, cuMemAddressFree)                                                                     \
    ROW(cuMemAddressReserve, 10020, cuMemAddressReserve)                                                               \
    ROW(cuMemAlloc, 3020, cuMemAlloc_v2)                                                                               \
    ROW(cuMemAllocHost, 3020, cuMemAllocHost_v2)                                                                       \
    ROW(cuMemCreate, 10020, cuMemCreate)                                                                               \
    ROW(cuMemExportToShareableHandle, 10020, cuMemExportToShareableHandle)                                             \
    ROW(cuMemFree, 3020, cuMemFree_v2)                                                                                 \
    ROW(cuMemFreeHost, 2000, cuMemFreeHost)                                                                            \
    ROW(cuMemGetAccess, 10020, cuMemGetAccess)                                                                         \
    ROW(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2)                                                           \
    ROW(cuMemGetAllocationGranularity, 10020, cuMemGetAllocationGranularity)                                           \
    ROW(cuMemGetAllocationPropertiesFromHandle, 10020, cuMemGetAllocationPropertiesFromHandle)                         \
    ROW(cuMemGetInfo, 3020, cuMemGetInfo_v2)                                                                           \
    ROW(cuMemHostAlloc, 2020, cuMemHostAlloc)                                                                          \
    ROW(cuMemHostGetDevicePointer, 3020, cuMemHostGetDevicePointer_v2)                                                 \
    ROW(cuMemHostGetFlags, 2030, cuMemHostGetFlags)                                                                    \
    ROW(cuMemHostRegister, 4000, cuMemHostRegister_v2)                                                                 \
    ROW(cuMemHostUnregister, 4000, cuMemHostUnregister)                                                                \
    ROW(cuMemImportFromShareableHandle, 10020, cuMemImportFromShareableHandle)                                         \
    ROW(cuMemMap, 10020, cuMemMap)                                                                                     \
    ROW(cuMemRelease, 10020, cuMemRelease)                                                                             \
    ROW(cuMemRetainAllocationHandle, 11000, cuMemRetainAllocationHandle)                                               \
    ROW(cuMemSetAccess, 10020, cuMemSetAccess)                                                                         \
    ROW(cuMemUnmap, 10020, cuMemUnmap)                                                                                 \
    ROW(cuMemcpy, 4000, cuMemcpy)                                                                                      \
    ROW(cuMemcpyAsync, 4000, cuMemcpyAsync)                                                                            \
    ROW(cuMemcpyDtoD, 3020, cuMemcpyDtoD_v2)                                                                           \
    ROW(cuMemcpyDtoDAsync, 3020, cuMemcpyDtoDAsync_v2)                                                                 \
    ROW(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2)                                                                           \
    ROW(cuMemcpyDtoHAsync, 3020, cuMemcpyDtoHAsync_v2)                                                                 \
    ROW(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2)                                                                           \
    ROW(cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2)                                                                 \
    ROW(cuMemcpyPeerAsync, 4000, cuMemcpyPeerAsync)                                                                    \
    ROW(cuMemsetD16, 3020, cuMemsetD16_v2)                                                                             \
    ROW(cuMemsetD16Async, 3020, cuMemsetD16Async)                                                                      \
    ROW(cuMemsetD32, 3020, cuMemsetD32_v2)                                                                             \
    ROW(cuMemsetD32Async, 3020, cuMemsetD32Async)                                                                      \
    ROW(cuMemsetD8, 3020, cuMemsetD8_v2)                                                                               \
    ROW(cuMemsetD8Async, 3020, cuMemsetD8Async)                                                                        \
    ROW(cuModuleGetFunction, 2000, cuModuleGetFunction)                                                                \
    ROW(cuModuleLoadData, 2000, cuModuleLoadData)                                                                      \
    ROW(cuModuleLoadDataEx, 2010, cuModuleLoadDataEx)                                                                  \
    ROW(cuModuleLoadFatBinary, 2000, cuModuleLoadFatBinary)                                                            \
    ROW(cuModuleUnload, 2000, cuModuleUnload)                                                                          \
    ROW(cuMulticastAddDevice, 12010, cuMulticastAddDevice)                                                             \
    ROW(cuMulticastBindAddr, 12010, cuMulticastBindAddr)                                                               \
    ROW(cuMulticastBindMem, 12010, cuMulticastBindMem)                                                                 \
    ROW(cuMulticastCreate, 12010, cuMulticastCreate)                                                                   \
    ROW(cuMulticastGetGranularity, 12010, cuMulticastGetGranularity)                                                   \
    ROW(cuMulticastUnbind, 12010, cuMulticastUnbind)                                                                   \
    ROW(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, cuOccupancyMaxActiveBlocksPerMultiprocessor)                \
    ROW(cuPointerGetAttribute, 4000, cuPointerGetAttribute)                                                            \
    ROW(cuPointerGetAttributes, 7000, cuPointerGetAttributes)                                                          \
    ROW(cuStreamBatchMemOp, 8000, cuStreamBatchMemOp)                                                                  \
    ROW(cuStreamBatchMemOp, 11070, cuStreamBatchMemOp_v2)                                                              \
    ROW(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2)                                                          \
    ROW(cuStreamBeginCaptureToGraph, 12030, cuStreamBeginCaptureToGraph)                                               \
    ROW(cuStreamCreate, 2000, cuStreamCreate)                                                                          \
    ROW(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority)                                                  \
    ROW(cuStreamDestroy, 2000, cuStreamDestroy_v2)                                                                     \
    ROW(cuStreamEndCapture, 10000, cuStreamEndCapture)                                                                 \
    ROW(cuStreamGetCaptureInfo, 11030, cuStreamGetCaptureInfo_v2)                                                      \
    ROW(cuStreamGetCaptureInfo, 12030, cuStreamGetCaptureInfo_v3)                                                      \
    ROW(cuStreamGetCtx, 9020, cuStreamGetCtx)                                                                          \
    ROW(cuStreamGetCtx, 12050, cuStreamGetCtx_v2)                                                                      \
    ROW(cuStreamGetDevice, 12080, cuStreamGetDevice)                                                                   \
    ROW(cuStreamGetFlags, 5050, cuStreamGetFlags)                                                                      \
    ROW(cuStreamGetGreenCtx, 12040, cuStreamGetGreenCtx)                                                               \
    ROW(cuStreamGetId, 12000, cuStreamGetId)                                                                           \
    ROW(cuStreamGetPriority, 5050, cuStreamGetPriority)                                                                \
    ROW(cuStreamIsCapturing, 10000, cuStreamIsCapturing)                                                               \
    ROW(cuStreamQuery, 2000, cuStreamQuery)                                                                            \
    ROW(cuStreamSynchronize, 2000, cuStreamSynchronize)                                                                \
    ROW(cuStreamUpdateCaptureDependencies, 11030, cuStreamUpdateCaptureDependencies)                                   \
    ROW(cuStreamUpdateCaptureDependencies, 12030, cuStreamUpdateCaptureDependencies_v2)                                \
    ROW(cuStreamWaitEvent, 3020, cuStreamWaitEvent)                                                                    \
    ROW(cuStreamWaitValue32, 8000, cuStreamWaitValue32)                                                                \
    ROW(cuStreamWaitValue32, 11070, cuStreamWaitValue32_v2)                                                            \
    ROW(cuStreamWaitValue64, 9000, cuStreamWaitValue64)                                                                \
    ROW(cuStreamWaitValue64, 11070, cuStreamWaitValue64_v2)                                                            \
    ROW(cuStreamWriteValue32, 8000, cuStreamWriteValue32)                                                              \
    ROW(cuStreamWriteValue32, 11070, cuStreamWriteValue32_v2)                                                          \
    ROW(cuStreamWriteValue64, 9000, cuStreamWriteValue64)                                                              \
    ROW(cuStreamWriteValue64, 11070, cuStreamWriteValue64_v2)                                                          \
    ROW(cuThreadExchangeStreamCaptureMode, 10010, cuThreadExchangeStreamCaptureMode)

/* The forms differ in their arguments: what matters here is the address. */
#define ROW(name, version, symbol) extern const char at_##symbol[] __asm__(#symbol);
ROWS
#undef ROW

    static const struct {
    const char *name;
    int version;
    const void *address;
} rows[] = {
#define ROW(name, version, symbol) {#name, version, at_##symbol},
    ROWS
#undef ROW
};

/* BEELINE_EMU_LACKS: names, comma-separated. */
static bool lacks(const char *name) {
    size_t length = strlen(name);
    for (const char *at = emu_config.lacks; at && *at;) {
        size_t here = strcspn(at, ",");
        if (here == length && !strncmp(at, name, length)) return true;
        at += here + (at[here] == ',');
    }
    return false;
}

static CUdriverProcAddressQueryResult find(const char *name, int version, void **address) {
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    *address = NULL;
    if (lacks(name)) return status;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].name, name)) continue;
        if (rows[i].version <= version) {
            *address = (void *)(uintptr_t)rows[i].address;
            status = CU_GET_PROC_ADDRESS_SUCCESS;
        } else if (!*address) {
            status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        }
    }
    return status;
}

static CUresult get(const char *name, void **address, int version, CUdriverProcAddressQueryResult *status) {
    if (!name || !address || version > CUDA_VERSION) return CUDA_ERROR_INVALID_VALUE;
    CUdriverProcAddressQueryResult found = find(name, version, address);
    if (status) *status = found;
    return found == CU_GET_PROC_ADDRESS_SUCCESS || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

EMU_CALL(cuGetProcAddress, (const char *name, void **address, int version, cuuint64_t flags),
         (name, address, version, flags)) {
    return get(name, address, version, NULL);
}

EMU_CALL(cuGetProcAddress_v2,
         (const char *name, void **address, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status),
         (name, address, version, flags, status)) {
    return get(name, address, version, status);
}
