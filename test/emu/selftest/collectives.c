/* collectives.c - every collective, datatype and operation; in place; custom operations; conversions. */
#include <cuda_fp8.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../nccl/convert.h"
#include "selftest.h"

enum kind { ALLREDUCE, ALLGATHER, REDUCESCATTER, BROADCAST, BCAST, REDUCE, ALLTOALL, GATHER, SCATTER, KINDS };
static const char *const kind_names[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Bcast",
                                         "Reduce",    "AlltoAll",  "Gather",        "Scatter"};
/* Blocks of `count` in the send and the receive buffer; -1: one a rank. */
static const int send_blocks[] = {1, 1, -1, 1, 0, 1, -1, 1, -1}, recv_blocks[] = {1, -1, 1, 1, 1, 1, -1, -1, 1};

static ncclResult_t run(enum kind kind, const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, CUstream stream) {
    switch (kind) {
    case ALLREDUCE: return ncclAllReduce(send, recv, count, type, op, comm, stream);
    case ALLGATHER: return ncclAllGather(send, recv, count, type, comm, stream);
    case REDUCESCATTER: return ncclReduceScatter(send, recv, count, type, op, comm, stream);
    case BROADCAST: return ncclBroadcast(send, recv, count, type, root, comm, stream);
    case BCAST: return ncclBcast(recv, count, type, root, comm, stream);
    case REDUCE: return ncclReduce(send, recv, count, type, op, root, comm, stream);
    case ALLTOALL: return ncclAlltoAll(send, recv, count, type, comm, stream);
    case GATHER: return ncclGather(send, recv, count, type, root, comm, stream);
    default: return ncclScatter(send, recv, count, type, root, comm, stream);
    }
}

/* What rank's receive buffer holds at element i; false if the call leaves it alone. */
static bool result_at(enum kind kind, int rank, int root, size_t count, size_t i, int op, ncclDataType_t type,
                      double *value) {
    int block = count ? (int)(i / count) : 0;
    if ((kind == REDUCE || kind == GATHER) && rank != root) return false;
    switch (kind) {
    case REDUCESCATTER: *value = expected((size_t)rank * count + i, op, type); break;
    case ALLREDUCE:
    case REDUCE: *value = expected(i, op, type); break;
    case BROADCAST:
    case BCAST: *value = input(root, i, op); break;
    case SCATTER: *value = input(root, (size_t)rank * count + i, op); break;
    case ALLTOALL: *value = input(block, (size_t)rank * count + i % count, op); break;
    default: *value = input(block, i % count, op); break;
    }
    return true;
}

static void test_collective(enum kind kind, size_t count, ncclDataType_t type, ncclRedOp_t op) {
    struct buffer send[MAX], recv[MAX];
    int root = (int)((count + type) % (size_t)nranks);
    foreach (l) {
        send[l] = make(type, count * (size_t)(send_blocks[kind] < 0 ? nranks : 1));
        recv[l] = make(type, count * (size_t)(recv_blocks[kind] < 0 ? nranks : 1));
        fill(&send[l], first + l, op);
        if (kind == BCAST) fill(&recv[l], first + l, op);
    }
    ncclGroupStart();
    foreach (l) run(kind, at(&send[l], 0), at(&recv[l], 0), count, type, op, root, comms[l], streams[l]);
    OK(ncclGroupEnd());
    synchronize();
    foreach (l) {
        double value;
        for (size_t i = 0; i < recv[l].n; i++)
            if (result_at(kind, first + l, root, count, i, op, type, &value)) store(host(&recv[l]), type, i, value);
        check(equal(&recv[l]), "nccl%s count %zu type %d op %d root %d on rank %d", kind_names[kind], count, type, op,
              root, first + l);
        check(equal(&send[l]), "nccl%s count %zu type %d changed its input", kind_names[kind], count, type);
        drop(&send[l]);
        drop(&recv[l]);
    }
}

static void test_all_kinds(void) {
    static const size_t counts[] = {0, 1, 3, 17, 1000};
    for (int type = 0; type < ncclNumTypes; type++) {
        for (int op = 0; op < ncclNumOps; op++) {
            test_collective(ALLREDUCE, 37, type, op);
            test_collective(REDUCESCATTER, 11, type, op);
            test_collective(REDUCE, 5, type, op);
        }
        for (int kind = 0; kind < KINDS; kind++) test_collective(kind, 7, type, ncclSum);
    }
    for (int kind = 0; kind < KINDS; kind++) {
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
            test_collective(kind, counts[c], ncclFloat, ncclSum);
        test_collective(kind, 100003, ncclInt32, ncclMax); /* several pieces */
    }
}

static void test_in_place(void) {
    struct buffer b[MAX];
    size_t n = 24;
    for (int kind = ALLREDUCE; kind <= REDUCESCATTER; kind++) {
        foreach (l) {
            b[l] = make(ncclInt64, n * (size_t)nranks);
            fill(&b[l], first + l, ncclSum);
        }
        ncclGroupStart();
        foreach (l) {
            void *mine = at(&b[l], n * (size_t)(first + l)), *all = at(&b[l], 0);
            run(kind, kind == ALLGATHER ? mine : all, kind == REDUCESCATTER ? mine : all,
                kind == ALLREDUCE ? n * (size_t)nranks : n, ncclInt64, ncclSum, 0, comms[l], streams[l]);
        }
        OK(ncclGroupEnd());
        synchronize();
        foreach (l) {
            for (size_t i = 0; i < b[l].n; i++) {
                int block = (int)(i / n);
                bool reduced = kind == ALLREDUCE || (kind == REDUCESCATTER && block == first + l);
                if (reduced) store(host(&b[l]), ncclInt64, i, expected(i, ncclSum, ncclInt64));
                if (kind == ALLGATHER) store(host(&b[l]), ncclInt64, i, input(block, i, ncclSum));
            }
            check(equal(&b[l]), "nccl%s in place", kind_names[kind]);
            drop(&b[l]);
        }
    }
}

static void test_premulsum(void) {
    struct buffer b[MAX], scalar[MAX];
    ncclRedOp_t op[MAX];
    for (int residence = 0; residence < 2; residence++) {
        foreach (l) {
            double factor = first + l + 2;
            b[l] = make(ncclFloat, 33);
            fill(&b[l], first + l, ncclSum);
            scalar[l] = make(ncclFloat, 1);
            store(host(&scalar[l]), ncclFloat, 0, factor);
            upload(&scalar[l]);
            OK(ncclRedOpCreatePreMulSum(&op[l], residence == ncclScalarDevice ? at(&scalar[l], 0) : host(&scalar[l]),
                                        ncclFloat, (ncclScalarResidence_t)residence, comms[l]));
            check(op[l] >= ncclNumOps, "custom operation %d", op[l]);
        }
        ncclGroupStart();
        foreach (l) ncclAllReduce(at(&b[l], 0), at(&b[l], 0), 33, ncclFloat, op[l], comms[l], streams[l]);
        OK(ncclGroupEnd());
        synchronize();
        foreach (l) {
            OK(ncclRedOpDestroy(op[l], comms[l]));
            IS(ncclRedOpDestroy(op[l], comms[l]), ncclInvalidArgument);
            IS(ncclAllReduce(at(&b[l], 0), at(&b[l], 0), 1, ncclFloat, op[l], comms[l], streams[l]),
               ncclInvalidArgument);
            for (size_t i = 0; i < 33; i++) {
                double sum = 0;
                for (int r = 0; r < nranks; r++) sum += input(r, i, ncclSum) * (r + 2);
                store(host(&b[l]), ncclFloat, i, sum);
            }
            check(equal(&b[l]), "premulsum, residence %d", residence);
            drop(&b[l]);
            drop(&scalar[l]);
        }
    }
}

/* The largest number on every rank has itself as the average, of every type of floats, where 1/n is exact. */
static void test_average(void) {
    static const struct {
        ncclDataType_t type;
        double largest;
    } rows[] = {{ncclFloat16, 0xffep5},        {ncclBfloat16, 0xffp120},
                {ncclFloat32, 0x1.fffffep127}, {ncclFloat64, 0x1.fffffffffffffp1023},
                {ncclFloat8e5m2, 57344},       {ncclFloat8e4m3, 448}};
    struct buffer b[MAX];
    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        const ncclDataType_t type = rows[row].type;
        foreach (l) {
            b[l] = make(type, 5);
            for (size_t i = 0; i < 5; i++) store(host(&b[l]), type, i, i % 2 ? rows[row].largest : -rows[row].largest);
            upload(&b[l]);
        }
        ncclGroupStart();
        foreach (l) ncclAllReduce(at(&b[l], 0), at(&b[l], 0), 5, type, ncclAvg, comms[l], streams[l]);
        OK(ncclGroupEnd());
        synchronize();
        foreach (l) {
            check(nranks & (nranks - 1) || equal(&b[l]), "average of type %d overflows", type);
            drop(&b[l]);
        }
    }
}

void test_collectives(void) {
    test_average();
    test_all_kinds();
    test_in_place();
    test_premulsum();
}

/* ---- conversions ---- */

static bool same_float(float a, float b) {
    return memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

/* Against the compiler's half precision and the host's side of CUDA's own header. */
void test_convert(void) {
    int wrong[5] = {0};
    for (uint32_t bits = 0; bits < 0xffffff00u; bits += 0xff) { /* all exponents, both signs, many mantissas */
        float value = emu_bits_float(bits);
        _Float16 half = (_Float16)value;
        uint16_t half_bits;
        memcpy(&half_bits, &half, sizeof half_bits);
        bool nan = value != value;
        wrong[0] += emu_narrow(value, emu_float16) != (nan ? 0x7fff : half_bits);
        wrong[1] += emu_narrow(value, emu_float8e4m3) != __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
        wrong[2] += emu_narrow(value, emu_float8e5m2) != __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E5M2);
        uint32_t b = emu_narrow_bfloat16(value);
        float back = emu_widen_bfloat16(b), up = emu_widen_bfloat16(b + 1), down = emu_widen_bfloat16(b - 1);
        if (nan)
            wrong[3] += b != 0x7fff;
        else if (isfinite(back) && isfinite(up) && b & 0x7fff)
            wrong[3] += fabs((double)back - value) > fabs((double)up - value) ||
                        fabs((double)back - value) > fabs((double)down - value) ||
                        ((b & 1) && fabs((double)back - value) == fabs((double)up - value));
    }
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        uint16_t half_bits = (uint16_t)bits;
        _Float16 half;
        memcpy(&half, &half_bits, sizeof half);
        wrong[4] += !same_float(emu_widen(bits, emu_float16), (float)half);
        if (bits > 0xff) continue;
        for (int e5m2 = 0; e5m2 < 2; e5m2++) {
            __half_raw raw = __nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)bits, e5m2 ? __NV_E5M2 : __NV_E4M3);
            wrong[4] +=
                !same_float(emu_widen(bits, e5m2 ? emu_float8e5m2 : emu_float8e4m3), emu_widen(raw.x, emu_float16));
        }
    }
    for (int i = 0; i < 5; i++) check(wrong[i] == 0, "%d conversions differ (%d)", wrong[i], i);
}
