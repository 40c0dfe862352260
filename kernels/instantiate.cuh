/* instantiate.cuh - one kernel for each datatype and for rank counts up to 2, 4, 8 and 16; see bl_kernel_symbol(). */
#ifndef BEELINE_INSTANTIATE_CUH
#define BEELINE_INSTANTIATE_CUH

#define BL_FOR_RANKS(name, function, symbol, type)                                                                     \
    BL_KERNEL(name##_##symbol##_2, function<type, 2>)                                                                  \
    BL_KERNEL(name##_##symbol##_4, function<type, 4>)                                                                  \
    BL_KERNEL(name##_##symbol##_8, function<type, 8>)                                                                  \
    BL_KERNEL(name##_##symbol##_16, function<type, 16>)

#define BL_INSTANTIATE(name, function)                                                                                 \
    BL_FOR_RANKS(name, function, i8, TypeI8)                                                                           \
    BL_FOR_RANKS(name, function, u8, TypeU8)                                                                           \
    BL_FOR_RANKS(name, function, i32, TypeI32)                                                                         \
    BL_FOR_RANKS(name, function, u32, TypeU32)                                                                         \
    BL_FOR_RANKS(name, function, i64, TypeI64)                                                                         \
    BL_FOR_RANKS(name, function, u64, TypeU64)                                                                         \
    BL_FOR_RANKS(name, function, f16, TypeF16)                                                                         \
    BL_FOR_RANKS(name, function, f32, TypeF32)                                                                         \
    BL_FOR_RANKS(name, function, f64, TypeF64)                                                                         \
    BL_FOR_RANKS(name, function, bf16, TypeBf16)                                                                       \
    BL_FOR_RANKS(name, function, e4m3, TypeE4M3)                                                                       \
    BL_FOR_RANKS(name, function, e5m2, TypeE5M2)

#endif
