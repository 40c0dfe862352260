/* checked.cuh - calls that end the program, with a line that says which, where they fail.  For programs of GPUs alone.  NCCL_OK needs nccl.h. */
#ifndef BEELINE_CHECKED_CUH
#define BEELINE_CHECKED_CUH

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#define CALL_OK(type, well, words, call)                                                                               \
    do {                                                                                                               \
        type result_ = call;                                                                                           \
        if (result_ != well) {                                                                                         \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, words(result_));                             \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define CUDA_OK(call) CALL_OK(cudaError_t, cudaSuccess, cudaGetErrorString, call)
#define NCCL_OK(call) CALL_OK(ncclResult_t, ncclSuccess, ncclGetErrorString, call)

#endif
