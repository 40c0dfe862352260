/* instantiate.cuh - one kernel for each datatype and for rank counts up to 2, 4, 8 and 16; see bl_kernel_symbol().
 * `args` is the type of its argument. */
#ifndef BEELINE_INSTANTIATE_CUH
#define BEELINE_INSTANTIATE_CUH

#define BL_FOR_RANKS(args, name, function, symbol, type)                                                               \
    BL_KERNEL_OF(args, name##_##symbol##_2, function<type, 2>)                                                         \
    BL_KERNEL_OF(args, name##_##symbol##_4, function<type, 4>)                                                         \
    BL_KERNEL_OF(args, name##_##symbol##_8, function<type, 8>)                                                         \
    BL_KERNEL_OF(args, name##_##symbol##_16, function<type, 16>)

#define BL_INSTANTIATE_OF(args, name, function)                                                                        \
    BL_FOR_RANKS(args, name, function, i8, TypeI8)                                                                     \
    BL_FOR_RANKS(args, name, function, u8, TypeU8)                                                                     \
    BL_FOR_RANKS(args, name, function, i32, TypeI32)                                                                   \
    BL_FOR_RANKS(args, name, function, u32, TypeU32)                                                                   \
    BL_FOR_RANKS(args, name, function, i64, TypeI64)                                                                   \
    BL_FOR_RANKS(args, name, function, u64, TypeU64)                                                                   \
    BL_FOR_RANKS(args, name, function, f16, TypeF16)                                                                   \
    BL_FOR_RANKS(args, name, function, f32, TypeF32)                                                                   \
    BL_FOR_RANKS(args, name, function, f64, TypeF64)                                                                   \
    BL_FOR_RANKS(args, name, function, bf16, TypeBf16)                                                                 \
    BL_FOR_RANKS(args, name, function, e4m3, TypeE4M3)                                                                 \
    BL_FOR_RANKS(args, name, function, e5m2, TypeE5M2)

#define BL_INSTANTIATE(name, function) BL_INSTANTIATE_OF(struct bl_kernel_args, name, function)

#endif
