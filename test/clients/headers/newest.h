/* newest.h - the same in the manner of later ones: attributes, macros in place of functions, more functions. */
/* clang-format off */
#ifndef NCCL_H_
#define NCCL_H_

#include <stddef.h>

#define NCCL_VERSION(X,Y,Z) (((X) <= 2 && (Y) <= 8) ? (X) * 1000 + (Y) * 100 + (Z) : \
    (X) * 10000 + (Y) * 100 + (Z))

#define NCCL_VERSION_CODE 22902

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUstream_st* cudaStream_t;
typedef struct ncclComm* ncclComm_t;
typedef struct { size_t size; } ncclConfig_t;
typedef struct ncclWindow_vidmem* ncclWindow_t;
typedef struct { char internal[128]; } ncclUniqueId;
typedef enum { ncclSuccess = 0, ncclSystemError = 2, ncclInvalidUsage = 5 } ncclResult_t;
typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;
typedef enum { ncclSum = 0, ncclMaxRedOp = 0x7fffffff>>(32-8*sizeof(ncclRedOp_dummy_t)) } ncclRedOp_t;
typedef enum { ncclInt8 = 0 } ncclDataType_t;

/* Return the version, like ncclAllReduce(nothing); in a comment. */
ncclResult_t  ncclGetVersion(int *version);
ncclResult_t pncclGetVersion(int *version);

/* Returns a string for each error code. */
const char*  ncclGetErrorString(ncclResult_t result);
const char* pncclGetErrorString(ncclResult_t result);

/* Creates a new communicator (multi thread/process version). */
ncclResult_t  ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);
ncclResult_t pncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);

ncclResult_t  ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
    ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
    ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);

ncclResult_t  ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
    ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
    ncclComm_t comm, cudaStream_t stream);

typedef struct { int opCnt, peer; } ncclWaitSignalDesc_t;
typedef struct ncclParamHandle* ncclParamHandle_t;
typedef struct { size_t size; float time; } ncclSimInfo_t;

ncclResult_t  ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm, void* config, int shrinkFlags);
ncclResult_t pncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm, void* config, int shrinkFlags);

const char*  ncclGetLastError(ncclComm_t comm);
const char* pncclGetLastError(ncclComm_t comm);

#ifdef NCCL_OS_LINUX
  /* Reload environment variables that determine logging. */
  __attribute__ ((deprecated("ncclResetDebugInit is not supported (and will be removed)")))
  void  ncclResetDebugInit();
  __attribute__ ((deprecated("pncclResetDebugInit is not supported (and will be removed)")))
  void pncclResetDebugInit();
#else
  #define ncclResetDebugInit()
  #define pncclResetDebugInit()
#endif

ncclResult_t ncclWaitSignal(int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclWaitSignal(int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm, cudaStream_t stream);

ncclResult_t ncclParamGetAllParameterKeys(const char*** table, int* tableLen);
ncclResult_t pncclParamGetAllParameterKeys(const char*** table, int* tableLen);
void ncclParamDumpAll(void);
void pncclParamDumpAll(void);

/* Not of any NCCL yet: other results, parameters without names, callbacks, arrays. */
ncclSimInfo_t ncclFutureInfo(ncclComm_t, int const [4], unsigned long);
ncclResult_t ncclFutureCallback(ncclComm_t comm, void (*function)(int, void*), void *data[2]);
ncclResult_t pncclFutureOnly(int value);

/* Old-style. */
ncclResult_t  ncclGroupStart();
ncclResult_t pncclGroupStart();

#ifdef __cplusplus
} // end extern "C"
#endif

#endif // end include guard
