/* proc.c - cuGetProcAddress: every call by name and by the CUDA version from which its form holds.  Forms older than CUDA 4
 * are not offered. */
#include "emu.h"

#include <string.h>

#undef cuGetProcAddress
#undef cuGetProcAddress_v2

/* All rows, in no order: the linker puts them between these. */
extern const struct emu_row *const __start_emu_rows[], *const __stop_emu_rows[];

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

static bool is_of(const struct emu_row *row, const char *name) {
    const size_t length = emu_base_length(row->symbol);
    return row->since && strlen(name) == length && !strncmp(row->symbol, name, length);
}

/* The newest form that is not newer than `version`. */
static CUdriverProcAddressQueryResult find(const char *name, int version, void **address) {
    const struct emu_row *newest = NULL;
    bool known = false;
    for (const struct emu_row *const *row = __start_emu_rows; row != __stop_emu_rows; row++) {
        if (!is_of(*row, name) || lacks(name) || (*row)->since > emu_config.driver) continue;
        known = true;
        if ((*row)->since <= version && (!newest || (*row)->since > newest->since)) newest = *row;
    }
    *address = newest ? *(void *const *)&newest->address : NULL;
    return newest  ? CU_GET_PROC_ADDRESS_SUCCESS
           : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                   : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
}

static CUresult get(const char *name, void **address, int version, CUdriverProcAddressQueryResult *status) {
    if (!name || !address || version > emu_config.driver) return CUDA_ERROR_INVALID_VALUE;
    CUdriverProcAddressQueryResult found = find(name, version, address);
    if (status) *status = found;
    return found == CU_GET_PROC_ADDRESS_SUCCESS || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

EMU_CALL(cuGetProcAddress, 11030, (const char *name, void **address, int version, cuuint64_t flags),
         (name, address, version, flags)) {
    return get(name, address, version, NULL);
}

EMU_CALL(cuGetProcAddress_v2, 12000,
         (const char *name, void **address, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status),
         (name, address, version, flags, status)) {
    return get(name, address, version, status);
}
