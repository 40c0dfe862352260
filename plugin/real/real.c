/* real.c - finds the real NCCL and fills the table of its functions.
 *
 * A process may hold two NCCLs (PyTorch's own, and one that a client opened by path).  The first that is found or
 * adopted serves every call that comes through Beeline; a client that reaches the other by dlsym gets that one's
 * functions untouched, so no communicator of one is ever passed to the other.
 *
 * No lock is held while libraries are opened: their constructors may call back, and the loader has locks of its own.
 * Threads that come first together each make a table, and one of them is kept.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi.h"
#include "base/log.h"
#include "base/params.h"
#include "base/version.h"
#include "real.h"
#include "dlsym.h"

/* What every NCCL has; a library without them is none. */
static const char *const marks[] = {"ncclGetVersion", "ncclCommInitRank"};

struct loaded {
    struct bl_real functions;
    bool found, by_path, met_beeline;
    unsigned long long opened; /* how many objects the process had opened when none was found */
    char path[PATH_MAX];
    char searched[1024]; /* why each place was left, for the message if none is found */
};

static _Atomic(struct loaded *) current;
static struct loaded nothing; /* where memory is out: stand-ins only */

_Thread_local int bl_real_depth;

/* Exported, so that one Beeline knows another that lies beside it under another name. */
extern const char beeline_identity[] __attribute__((visibility("default")));
const char beeline_identity[] = "Beeline";

static void *function_of(const struct bl_real *functions, const struct bl_abi_row *row) {
    return *(void *const *)((const char *)functions + row->offset);
}

__attribute__((format(printf, 2, 3))) static void note(struct loaded *loaded, const char *format, ...) {
    size_t used = strlen(loaded->searched);
    va_list list;
    va_start(list, format);
    vsnprintf(loaded->searched + used, sizeof(loaded->searched) - used, format, list);
    va_end(list);
}

/* The loaded object that an address lies in. */
static struct link_map *object_of(void *address) {
    Dl_info info;
    struct link_map *map = NULL;
    return address && dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) ? map : NULL;
}

/* A handle for dlsym, to be closed; NULL if `map` cannot be opened again.  The link_map itself would not do: of what
 * came with the program, the loader makes the list to search only when it is opened. */
static void *open_object(const struct link_map *map) {
    return map ? dlopen(map->l_name[0] ? map->l_name : NULL, RTLD_LAZY | RTLD_NOLOAD) : NULL;
}

static bool is_beeline(const struct link_map *map) {
    void *handle = open_object(map);
    void *mark = handle ? bl_dlsym(handle, "beeline_identity") : NULL;
    bool is = mark && object_of(mark) == map; /* and not another object's that `map` needs */
    if (handle) dlclose(handle);
    return is;
}

static const char not_nccl[] = "not an NCCL", beeline_itself[] = "Beeline itself";

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A preload before Beeline's, which hands its calls on to Beeline.  (The program itself, the first of all, may be linked with
 * NCCL; and a preload may be the NCCL that somebody wants.) */
static bool stands_in_front(const struct link_map *map) {
    struct link_map *libc = NULL;
    const struct link_map *self = object_of((void *)beeline_identity), *at = self;
    void *home = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    if (home) {
        dlinfo(home, RTLD_DI_LINKMAP, &libc);
        dlclose(home);
    }
    while (at && at != libc) at = at->l_next;
    if (!at || strncmp(base_of(map->l_name), "libnccl.so", 10) == 0)
        return false; /* or we came after what the process began with */
    for (at = self->l_prev; at && at->l_prev; at = at->l_prev)
        if (at == map) return true;
    return false;
}

/* NULL if `handle` (of dlopen, or RTLD_NEXT) leads to a real NCCL, else why it does not. */
static const char *refusal(void *handle) {
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        void *address = bl_dlsym(handle, marks[i]);
        if (!address) return not_nccl;
        if (is_beeline(object_of(address))) return beeline_itself;
        if (stands_in_front(object_of(address))) return "a library before Beeline, which it serves";
    }
    return NULL;
}

/* handle NULL: stand-ins only. */
static void fill(struct loaded *loaded, void *handle) {
    for (int i = 0; i < bl_abi_count; i++) {
        const struct bl_abi_row *row = &bl_abi_rows[i];
        void *address = handle ? bl_dlsym(handle, row->name) : NULL;
        /* An NCCL without the profiling names has the functions themselves. */
        if (handle && !address && row->name[0] == 'p') address = bl_dlsym(handle, row->name + 1);
        if (!address || address == row->own) address = row->lacks;
        *(void **)((char *)&loaded->functions + row->offset) = address;
    }
    loaded->found = handle != NULL;
    if (!handle) return;
    struct link_map *map = object_of(function_of(&loaded->functions, bl_abi_find(marks[0])));
    snprintf(loaded->path, sizeof(loaded->path), "%s", map->l_name[0] ? map->l_name : "the program itself");
}

/* Opens `path`; true if a real NCCL is there, and the table is filled from it. */
static bool try_open(struct loaded *loaded, const char *path, int flags) {
    void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL | flags);
    const char *reason = handle ? refusal(handle) : NULL;
    if (handle && !reason) {
        fill(loaded, handle);
        return true;
    }
    note(loaded, "%s%s (%s)", loaded->searched[0] ? "; " : "", path, handle ? reason : dlerror());
    if (reason == beeline_itself) loaded->met_beeline = true;
    if (handle) dlclose(handle);
    return false;
}

static bool find_by_parameter(struct loaded *loaded) {
    const char *path = bl_params()->nccl_path;
    if (!path) return false;
    if (try_open(loaded, path, 0)) return loaded->by_path = true;
    bl_warn("BEELINE_NCCL_PATH=%s does not serve: %s; want the path of a libnccl.so.2; looking elsewhere", path,
            loaded->searched);
    return false;
}

/* Behind Beeline in the search order: a program or library that is linked with NCCL.  Function by function, so that a
 * profiler's library between us and NCCL stays where it is. */
static bool find_next(struct loaded *loaded) {
    if (refusal(RTLD_NEXT)) return false;
    fill(loaded, RTLD_NEXT);
    return true;
}

struct scan {
    const char *prefix;
    char path[PATH_MAX];
    ElfW(Addr) self;
    int skip;
};

static int scan_object(struct dl_phdr_info *info, size_t size, void *data) {
    struct scan *scan = data;
    const char *base = base_of(info->dlpi_name);
    if (!*base || info->dlpi_addr == scan->self || strncmp(base, scan->prefix, strlen(scan->prefix)) != 0 ||
        scan->skip-- > 0)
        return 0;
    return snprintf(scan->path, sizeof(scan->path), "%s", info->dlpi_name) < (int)sizeof(scan->path);
}

/* Whether the functions are this very object's, and not those of one that it needs. */
static bool has_nccl_inside(const char *path) {
    void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    struct link_map *map = NULL;
    bool inside = handle && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0;
    for (size_t i = 0; inside && i < sizeof(marks) / sizeof(marks[0]); i++) {
        void *address = bl_dlsym(handle, marks[i]);
        inside = address && object_of(address) == map;
    }
    if (handle) dlclose(handle);
    return inside;
}

static bool find_among(struct loaded *loaded, const char *prefix) {
    struct link_map *self = object_of((void *)beeline_identity);
    for (int skip = 0;; skip++) {
        struct scan scan = {.prefix = prefix, .self = self ? self->l_addr : 0, .skip = skip};
        if (!dl_iterate_phdr(scan_object, &scan)) return false;
        if ((*prefix || has_nccl_inside(scan.path)) && try_open(loaded, scan.path, RTLD_NOLOAD)) return true;
    }
}

/* Loaded, but out of sight of RTLD_NEXT: PyTorch's comes in RTLD_LOCAL, in a library of its own, or linked into another. */
static bool find_loaded(struct loaded *loaded) {
    return find_among(loaded, "libnccl.so") || find_among(loaded, "");
}

/* Along the search path of `handle`: needed where the name libnccl.so.2 leads to Beeline. */
static bool find_along_path(struct loaded *loaded, void *handle) {
    Dl_serinfo head;
    if (!handle || dlinfo(handle, RTLD_DI_SERINFOSIZE, &head) != 0) return false;
    Dl_serinfo *info = calloc(1, head.dls_size);
    bool found = false;
    if (info && dlinfo(handle, RTLD_DI_SERINFOSIZE, info) == 0 && dlinfo(handle, RTLD_DI_SERINFO, info) == 0) {
        for (unsigned i = 0; i < info->dls_cnt && !found; i++) {
            char path[PATH_MAX];
            int length = snprintf(path, sizeof(path), "%s/libnccl.so.2", info->dls_serpath[i].dls_name);
            if (length < (int)sizeof(path) && access(path, F_OK) == 0) found = try_open(loaded, path, 0);
        }
    }
    free(info);
    return found;
}

static bool find_by_name(struct loaded *loaded) {
    loaded->met_beeline = false;
    if (try_open(loaded, "libnccl.so.2", 0)) return true;
    if (!loaded->met_beeline) return false;
    return find_along_path(loaded, dlopen(NULL, RTLD_LAZY)) ||
           find_along_path(loaded, open_object(object_of((void *)beeline_identity)));
}

static bool (*const finders[])(struct loaded *) = {find_by_parameter, find_next, find_loaded, find_by_name};

/* The last of them opens what the process has not. */
static bool find(struct loaded *loaded, bool by_name) {
    const size_t count = sizeof(finders) / sizeof(finders[0]) - !by_name;
    for (size_t i = 0; i < count && !loaded->found; i++) finders[i](loaded);
    return loaded->found;
}

/* Makes `loaded` the table unless another thread was first (`expected` is what it replaces); the one that holds now. */
static struct loaded *publish(struct loaded *expected, struct loaded *loaded) {
    struct loaded *before = expected;
    if (atomic_compare_exchange_strong(&current, &before, loaded)) {
        if (loaded->found) bl_info("Beeline %s, the real NCCL: %s", bl_build_name, loaded->path);
        return loaded;
    }
    if (loaded != &nothing) free(loaded);
    return before;
}

static struct loaded *new_loaded(void) {
    struct loaded *loaded = calloc(1, sizeof(*loaded));
    if (!loaded) fill(&nothing, NULL); /* the same words, whoever writes them */
    return loaded;
}

static int count_opened(struct dl_phdr_info *info, size_t size, void *data) {
    *(unsigned long long *)data = info->dlpi_adds;
    return 1;
}

static unsigned long long opened_so_far(void) {
    unsigned long long opened = 0;
    dl_iterate_phdr(count_opened, &opened);
    return opened;
}

/* In place of `before`, NULL or an empty one, which stays for those that still hold it. */
static struct loaded *load(struct loaded *before) {
    struct loaded *loaded = new_loaded();
    if (!loaded) return before ? before : publish(NULL, &nothing);
    if (!find(loaded, true)) {
        fill(loaded, NULL);
        loaded->opened = opened_so_far();
    }
    dlerror(); /* the client's next one is to tell of the client's calls */
    return publish(before, loaded);
}

/* A process that called before it had an NCCL may have one now. */
static struct loaded *get(void) {
    struct loaded *loaded = atomic_load_explicit(&current, memory_order_acquire);
    if (__builtin_expect(loaded && loaded->found, 1)) return loaded;
    return loaded && loaded->opened == opened_so_far() ? loaded : load(loaded);
}

bool bl_real_offers(const struct bl_abi_row *row, bool by_name) {
    static _Atomic unsigned long long vain; /* how many objects were opened when none of them was an NCCL */
    struct loaded *loaded = atomic_load_explicit(&current, memory_order_acquire);
    if (by_name || bl_params()->nccl_path) loaded = get();
    const unsigned long long opened = opened_so_far();
    if ((!loaded || !loaded->found) && atomic_load(&vain) != opened) {
        struct loaded *found = new_loaded();
        if (found && find(found, false)) {
            loaded = publish(loaded, found);
        } else {
            atomic_store(&vain, opened);
            free(found);
        }
    }
    return loaded && loaded->found && function_of(&loaded->functions, row) != row->lacks;
}

bool bl_real_is_beeline(void *handle) {
    struct link_map *map = NULL;
    return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map == object_of((void *)beeline_identity);
}

const struct bl_real *bl_real(void) {
    return &get()->functions;
}

bool bl_real_adopt(const struct bl_abi_row *row, void *address) {
    struct loaded *loaded = atomic_load_explicit(&current, memory_order_acquire);
    if (!loaded && bl_params()->nccl_path) loaded = load(NULL);
    if (loaded && loaded->by_path) return true; /* the user said which NCCL is to serve */
    /* A process that called before it had an NCCL gets one now; the empty table stays for those that still hold it. */
    if (!loaded || !loaded->found) {
        void *handle = open_object(object_of(address)); /* kept, whatever the client does with its own */
        struct loaded *adopted = handle && !refusal(handle) ? new_loaded() : NULL;
        if (adopted) {
            fill(adopted, handle);
            loaded = publish(loaded, adopted);
        } else if (handle)
            dlclose(handle);
    }
    return loaded && loaded->found && function_of(&loaded->functions, row) == address;
}

int bl_real_version(void) {
    static atomic_int known;
    int version = atomic_load(&known);
    if (!version && get()->found && BL_REAL(ncclGetVersion, &version) == ncclSuccess) atomic_store(&known, version);
    return version;
}

const char *bl_real_path(void) {
    return get()->path;
}

ncclResult_t bl_real_lacks(const char *function, atomic_bool *logged) {
    static atomic_bool told_none;
    const struct loaded *loaded = get();
    if (!loaded->found) {
        if (!atomic_exchange(&told_none, true))
            bl_warn(
                "%s: there is no real NCCL; searched: libraries of this process; %s; set BEELINE_NCCL_PATH to its path",
                function, loaded->searched);
        return ncclSystemError;
    }
    if (!atomic_exchange(logged, true)) {
        int version = bl_real_version();
        bl_warn("%s is not in the real NCCL, version %d.%d.%d (%s): the call fails", function, version / 10000,
                version / 100 % 100, version % 100, loaded->path);
    }
    return ncclInvalidUsage;
}

/* Stand-ins whose callers want a text. */
const char *bl_lacks_ncclGetErrorString(ncclResult_t result);
const char *bl_lacks_ncclGetLastError(ncclComm_t comm);

const char *bl_lacks_ncclGetErrorString(ncclResult_t result) {
    static const char *const texts[] = {
        [ncclSuccess] = "no error",
        [ncclUnhandledCudaError] = "unhandled cuda error",
        [ncclSystemError] = "unhandled system error",
        [ncclInternalError] = "internal error",
        [ncclInvalidArgument] = "invalid argument",
        [ncclInvalidUsage] = "invalid usage",
        [6] = "remote process exited or there was a network error", /* names that older headers lack */
        [7] = "NCCL operation in progress",
    };
    return (unsigned)result < sizeof(texts) / sizeof(texts[0]) ? texts[result] : "unknown result code";
}

const char *bl_lacks_ncclGetLastError(ncclComm_t comm) {
    return get()->found ? "" : "Beeline: there is no real NCCL; set BEELINE_NCCL_PATH to its path";
}
