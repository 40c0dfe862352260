/* api.c - finds the driver and NCCL at run time, in the way in which ctypes clients do: dlopen and dlsym.  So a
 * preloaded Beeline takes the ncclX that this program sees, and pncclX stays the real NCCL. */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <string.h>

#include "perf.h"

struct cuda cuda;
struct nccl nccl[SIDES];

static void *library;
static const char *(*route_of)(ncclComm_t comm, int collective, size_t count, int datatype, int redop);
static const char *(*left_why)(ncclComm_t comm);
static const char *(*section_of)(ncclComm_t comm);
static const char *(*build)(void);

static int load_cuda(void) {
    static const struct {
        const char *name;
        void **pointer;
        int version;
    } functions[] = {
#define CUDA(function, version) {#function, (void **)&cuda.function, version},
#include "cuda.def"
#undef CUDA
    };
    CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        fprintf(stderr, "beeline-perf: no CUDA driver: %s\n", dlerror());
        return -1;
    }
    *(void **)&get = dlsym(handle, "cuGetProcAddress_v2");
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        CUdriverProcAddressQueryResult found;
        if (!get || get(functions[i].name, functions[i].pointer, functions[i].version, 0, &found) != CUDA_SUCCESS ||
            !*functions[i].pointer) {
            fprintf(stderr, "beeline-perf: the CUDA driver lacks %s; CUDA 12 or later is needed\n", functions[i].name);
            return -1;
        }
    }
    return 0;
}

static int load_nccl(struct nccl *table, void *handle, const char *prefix) {
    static const struct {
        const char *name;
        bool optional;
    } functions[] = {
#define NCCL(name)          {#name, false},
#define NCCL_OPTIONAL(name) {#name, true},
#include "nccl.def"
#undef NCCL
    };
    void **pointer = (void **)table;
    char symbol[64];

    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        snprintf(symbol, sizeof symbol, "%s%s", prefix, functions[i].name);
        pointer[i] = dlsym(handle, symbol);
        if (!pointer[i] && !functions[i].optional) {
            fprintf(stderr, "beeline-perf: %s\n", dlerror());
            return -1;
        }
    }
    return 0;
}

static void *open_nccl(const char *path) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) fprintf(stderr, "beeline-perf: %s; --library PATH names another\n", dlerror());
    return handle;
}

/* Of Beeline's, which is preloaded or is the library. */
static void *find(void *handle, const char *symbol) {
    void *found = dlsym(RTLD_DEFAULT, symbol);
    return found || !handle ? found : dlsym(handle, symbol);
}

int api_load(const struct options *options) {
    if (load_cuda()) return -1;
    library = open_nccl(options->library);
    if (!library || load_nccl(&nccl[MEASURED], library, "nccl")) return -1;
    void *baseline = options->baseline ? open_nccl(options->baseline) : library;
    if (!baseline || load_nccl(&nccl[BASELINE], baseline, "pnccl")) return -1;
    *(void **)&route_of = find(library, "beelineRouteOf");
    *(void **)&left_why = find(library, "beelineLeftWhy");
    *(void **)&section_of = find(library, "beelineSectionOf");
    *(void **)&build = find(library, "beelineBuild");
    return 0;
}

const char *api_lacks(int collective) {
#define LACKS(name) !nccl[MEASURED].name ? "nccl" #name : !nccl[BASELINE].name ? "pnccl" #name : NULL
    switch (collective) {
    case PERF_ALLTOALL: return LACKS(AlltoAll);
    case PERF_GATHER: return LACKS(Gather);
    case PERF_SCATTER: return LACKS(Scatter);
    default: return NULL;
    }
#undef LACKS
}

bool api_serves(const char *route) {
    return strcmp(route, "nccl") != 0 && strcmp(route, "-") != 0;
}

bool api_have_beeline(void) {
    return route_of;
}

const char *api_build(void) {
    return build ? build() : "?";
}

const char *api_section(ncclComm_t comm) {
    return section_of ? section_of(comm) : NULL;
}

const char *api_left_why(ncclComm_t comm) {
    if (!route_of) return "it is not loaded; start with beeline run, or LD_PRELOAD=/path/to/libbeeline.so";
    return left_why ? left_why(comm) : NULL;
}

const char *api_route(ncclComm_t comm, int collective, size_t count, int datatype, int redop) {
    return route_of ? route_of(comm, collective_routes(collective), count, datatype, redop) : "-";
}

const char *api_origin(enum side side) {
    Dl_info info;
    return dladdr((void *)nccl[side].AllReduce, &info) && info.dli_fname ? info.dli_fname : "?";
}

const char *api_cuda_error(CUresult result) {
    const char *name = NULL;
    return cuda.cuGetErrorName(result, &name) == CUDA_SUCCESS && name ? name : "unknown error";
}
