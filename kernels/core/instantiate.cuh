/* instantiate.cuh - one kernel for each datatype and for rank counts up to 2, 4, 8 and 16, of those that take a batch up to
 * 2, 4 and 16, of some also for 3, or for all; see bl_kernel_symbol().
 *
 * With BL_SAMPLE, for code that is to compile and not to run, of these rank counts one each, and of the datatypes one of each kind of
 * types.cuh; all of them have a kernel of allreduce_oneshot_nvls.cu, which is never a sample. */
#ifndef BEELINE_INSTANTIATE_CUH
#define BEELINE_INSTANTIATE_CUH

#ifdef BL_SAMPLE
#define BL_UNSAMPLED(...)
#else
#define BL_UNSAMPLED(...) __VA_ARGS__
#endif

#define BL_FOR_RANKS(name, function, symbol, type)                                                                     \
    BL_UNSAMPLED(BL_KERNEL(name##_##symbol##_2, function<type, 2>))                                                    \
    BL_KERNEL(name##_##symbol##_4, function<type, 4>)                                                                  \
    BL_UNSAMPLED(BL_KERNEL(name##_##symbol##_8, function<type, 8>))                                                    \
    BL_UNSAMPLED(BL_KERNEL(name##_##symbol##_16, function<type, 16>))

/* For kernels that gain where the compiler knows the number of ranks: up to 4, N is it. */
#define BL_FOR_RANKS_EXACT(name, function, symbol, type)                                                               \
    BL_UNSAMPLED(BL_KERNEL(name##_##symbol##_3, function<type, 3>))                                                    \
    BL_FOR_RANKS(name, function, symbol, type)

/* For kernels that pay only with more than two ranks. */
#define BL_FOR_SOME_RANKS(name, function, symbol, type)                                                                \
    BL_KERNEL(name##_##symbol##_4, function<type, 4>)                                                                  \
    BL_KERNEL(name##_##symbol##_8, function<type, 8>)                                                                  \
    BL_KERNEL(name##_##symbol##_16, function<type, 16>)

/* For kernels that do not ask how many ranks there are. */
#define BL_FOR_ANY_RANKS(name, function, symbol, type) BL_KERNEL(name##_##symbol, function<type>)

#define BL_FOR_RANKS_BATCH(name, function, symbol, type)                                                               \
    BL_UNSAMPLED(BL_KERNEL_OF(struct bl_batch_args, name##_##symbol##_2, function<type, 2>))                           \
    BL_KERNEL_OF(struct bl_batch_args, name##_##symbol##_4, function<type, 4>)                                         \
    BL_UNSAMPLED(BL_KERNEL_OF(struct bl_batch_args, name##_##symbol##_16, function<type, 16>))
#define BL_FOR_RANKS_FEW(name, function, symbol, type)                                                                 \
    BL_UNSAMPLED(BL_KERNEL_OF(struct bl_batch_few_args, name##_##symbol##_2, function<type, 2>))                       \
    BL_KERNEL_OF(struct bl_batch_few_args, name##_##symbol##_4, function<type, 4>)                                     \
    BL_UNSAMPLED(BL_KERNEL_OF(struct bl_batch_few_args, name##_##symbol##_16, function<type, 16>))

/* clang-format off */
#define BL_FOR_TYPES(for_ranks, name, function)                                                                        \
    for_ranks(name, function, i8, TypeI8)                                                                              \
    BL_UNSAMPLED(for_ranks(name, function, u8, TypeU8))                                                                \
    for_ranks(name, function, i32, TypeI32)                                                                            \
    BL_UNSAMPLED(for_ranks(name, function, u32, TypeU32))                                                              \
    BL_UNSAMPLED(for_ranks(name, function, i64, TypeI64))                                                              \
    BL_UNSAMPLED(for_ranks(name, function, u64, TypeU64))                                                              \
    BL_UNSAMPLED(for_ranks(name, function, f16, TypeF16))                                                              \
    BL_UNSAMPLED(for_ranks(name, function, f32, TypeF32))                                                              \
    for_ranks(name, function, f64, TypeF64)                                                                            \
    for_ranks(name, function, bf16, TypeBf16)                                                                          \
    for_ranks(name, function, e4m3, TypeE4M3)                                                                          \
    BL_UNSAMPLED(for_ranks(name, function, e5m2, TypeE5M2))
/* clang-format on */

/* Of those that move bytes, whatever the datatype. */
#define BL_INSTANTIATE_BYTES(name, function)                                                                           \
    BL_KERNEL(name##_bytes_2, function<2>)                                                                             \
    BL_KERNEL(name##_bytes_4, function<4>)                                                                             \
    BL_KERNEL(name##_bytes_8, function<8>)                                                                             \
    BL_KERNEL(name##_bytes_16, function<16>)
#define BL_INSTANTIATE_BYTES_BATCH(name, function)                                                                     \
    BL_KERNEL_OF(struct bl_batch_args, name##_bytes_2, function<2>)                                                    \
    BL_KERNEL_OF(struct bl_batch_args, name##_bytes_4, function<4>)                                                    \
    BL_KERNEL_OF(struct bl_batch_args, name##_bytes_16, function<16>)
#define BL_INSTANTIATE_BYTES_FEW(name, function)                                                                       \
    BL_KERNEL_OF(struct bl_batch_few_args, name##_bytes_2, function<2>)                                                \
    BL_KERNEL_OF(struct bl_batch_few_args, name##_bytes_4, function<4>)                                                \
    BL_KERNEL_OF(struct bl_batch_few_args, name##_bytes_16, function<16>)

#define BL_INSTANTIATE(name, function)       BL_FOR_TYPES(BL_FOR_RANKS, name, function)
#define BL_INSTANTIATE_EXACT(name, function) BL_FOR_TYPES(BL_FOR_RANKS_EXACT, name, function)
#define BL_INSTANTIATE_SOME(name, function)  BL_FOR_TYPES(BL_FOR_SOME_RANKS, name, function)
#define BL_INSTANTIATE_ONE(name, function)   BL_FOR_TYPES(BL_FOR_ANY_RANKS, name, function)
#define BL_INSTANTIATE_BATCH(name, function) BL_FOR_TYPES(BL_FOR_RANKS_BATCH, name, function)
#define BL_INSTANTIATE_FEW(name, function)   BL_FOR_TYPES(BL_FOR_RANKS_FEW, name, function)

#endif
