/* perf.h - what the files of beeline-perf share.
 *
 * A run has nranks ranks.  A *part* is the ranks that one thread drives: `gpus` of them; a process has `threads` parts,
 * and there are `processes` processes.  Every part runs the same sequence of rows with the same decisions; where a
 * decision comes from a measurement, part 0 makes it and the others read it after a barrier. A *side* is what serves a
 * call: ncclX, which Beeline takes where it is loaded, or pncclX, the real NCCL. Errors: a function that returns int
 * gives 0, or -1 after it said what failed on stderr and marked the run as failed, so that every other part leaves its
 * next wait.
 */
#ifndef BEELINE_PERF_H
#define BEELINE_PERF_H

#include <cuda.h>
#include <nccl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include "dispatch.h"
#include "kernels.h"

enum { MAX_SAMPLES = 1000, MAX_CALLS = 1000, MAX_GROUP = 1024, MAX_OFFSETS = 16, MAX_TUNINGS = 64, GUARD = 4096 };
enum side { MEASURED, BASELINE, SIDES };
enum mode { EAGER, GRAPH, MODES };
enum place { OUT_OF_PLACE, IN_PLACE, PLACES };
enum { POISON = 0xa5 };

/* Of NCCL 2.28 and later: not every nccl.h has it, and not every library. */
ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                          cudaStream_t stream);
ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, cudaStream_t stream);

enum perf_trait { PERF_ONE_WAY = 1 << 16 }; /* a rank has one end of a message, or none */
enum {
#define PERF_CALL(CALL, name, ROUTES, traits) PERF_##CALL,
#include "calls.def"
    PERF_CALLS
};

struct options {
    unsigned collectives, datatypes, redops, modes, places; /* masks */
    uint64_t min_bytes, max_bytes, factor, step;            /* step 0: factor */
    bool odd;                                               /* each size once more with an odd count */
    uint64_t offset[MAX_OFFSETS];                           /* bytes past a 256-byte boundary */
    int offsets;
    int group; /* collectives a call, in one group */
    int root;
    int samples, calls, warmup;
    double seconds; /* about the most for the timing of one row */
    int gpus, threads, processes;
    bool spawn;
    int rank, local_rank; /* of this process, among processes */
    double timeout;       /* seconds for a result, and a quarter more at a barrier, before the run fails */
    const char *library, *baseline, *json, *id_file;
    char *tuning[MAX_TUNINGS]; /* files to measure with, one after another; none: as Beeline is set */
    int tunings;
    bool served; /* only what Beeline serves */
    bool check;  /* nothing is timed */
    bool expect; /* it is an error if Beeline does not serve */
    bool wide;   /* more columns */
    int argc;
    char **argv;
};

/* --- options.c --- */
extern const char perf_version[];                                  /* "0.1.0-1a2b3c4d5e6f" */
int options_parse(struct options *options, int argc, char **argv); /* 1: help was asked for and printed */

/* --- api.c: the driver and NCCL, found at run time --- */
struct cuda {
#define CUDA(function, version) __typeof__(function) *function;
#include "cuda.def"
#undef CUDA
};
struct nccl {
#define NCCL(name) __typeof__(nccl##name) *name;
#include "nccl.def"
#undef NCCL
};
extern struct cuda cuda;
extern struct nccl nccl[SIDES];
int api_load(const struct options *options);
const char *api_cuda_error(CUresult result);
const char *api_origin(enum side side); /* path of the library that serves this side */
/* The name of the collective's function that a library lacks; NULL if both sides have theirs. */
const char *api_lacks(int collective);
/* The algorithm that would serve the call; "nccl"; or "-" if there is no Beeline. */
const char *api_route(ncclComm_t comm, int collective, size_t count, int datatype, int redop);
bool api_serves(const char *route); /* whether that is an algorithm of Beeline's */
bool api_have_beeline(void);
const char *api_section(ncclComm_t comm); /* the line of tuning files for its box; NULL: none, or NCCL serves it */
const char *api_build(void);              /* Beeline's version and build; "?" if it does not say */
/* Why Beeline serves no call on the communicator, which there is on all ranks; NULL if it does. */
const char *api_left_why(ncclComm_t comm);

/* --- shared.c: what all parts of all processes see --- */
struct shared {
    _Atomic uint32_t ready; /* a magic number, once the rest is valid */
    _Atomic uint32_t failed, arrived, generation, attached;
    pid_t owner;
    ncclUniqueId id[SIDES];
    _Atomic uint64_t free_bytes;                     /* the least of all devices */
    double call_seconds;                             /* part 0's estimate for the row */
    double sample[SIDES][BL_MAX_RANKS][MAX_SAMPLES]; /* seconds per call */
    double event[SIDES][BL_MAX_RANKS];               /* seconds per call by the device's clock, eager */
    double host_min[SIDES][BL_MAX_RANKS], host_median[SIDES][BL_MAX_RANKS];
    uint64_t wrong[SIDES][BL_MAX_RANKS];
    double launch[BL_MAX_RANKS]; /* seconds on the host for one launch, by part */
    _Atomic bool launch_is_memset;
};
struct shared *shared_make(void);                            /* for this process and those it forks; NULL on failure */
struct shared *shared_attach(const struct options *options); /* one for all launched processes */
int shared_barrier(struct shared *shared, int parts, double timeout);
void shared_fail(struct shared *shared, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- pattern.c: inputs for which the result is known exactly --- */
struct pattern {
    int datatype, redop, nranks;
    size_t size, chunk;                 /* bytes of an element; elements of a chunk, whole periods */
    unsigned char *input[BL_MAX_RANKS]; /* chunk and a period more: element i lies at i % chunk */
    unsigned char *result;              /* the reduction */
};
enum { PATTERN_PERIOD = 16381 }; /* a prime: data that went to a wrong place shows */
int pattern_make(struct pattern *pattern, int datatype, int redop, int nranks);
void pattern_free(struct pattern *pattern);
/* Elements that differ from `want`, which starts at element `phase` of a table.  tolerance: how far, as a fraction. */
uint64_t pattern_count_wrong(const struct pattern *pattern, const void *got, const unsigned char *want, size_t count,
                             double tolerance, size_t *first);
/* How far NCCL's answer may be from the exact one: 0 but for averages that it cannot do exactly. */
double pattern_nccl_tolerance(const struct pattern *pattern);

/* --- rank.c --- */
struct rank {
    int rank, nranks;
    CUdevice device;
    CUcontext context;
    CUstream stream;
    ncclComm_t comm[SIDES];
    CUdeviceptr send, recv; /* allocations: GUARD bytes before and after the data */
    uint64_t room;          /* bytes of data each may hold */
    CUevent *event;         /* MAX_SAMPLES + 1 */
};
struct part {
    struct bench *bench;
    int index, count; /* among all parts; ranks here */
    struct rank rank[BL_MAX_RANKS];
    unsigned char *scratch; /* for copies to the host */
};
struct bench {
    struct options *options;
    struct shared *shared;
    int nranks, parts;
    struct pattern pattern; /* of the current datatype and operation; the process's first part makes it */
};
int part_open(struct part *part);
int part_reconnect(struct part *part); /* new communicators in place of its old ones */
void part_close(struct part *part);
int part_barrier(struct part *part);
int part_wait(struct part *part); /* until every stream of the part is idle and no communicator has an error */
int part_fail(struct part *part, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Of a call in words: its function's name. */
#define NAME_LENGTH(call) (int)strcspn(call, "(")
#define CUDA_TRY(part, call)                                                                                           \
    do {                                                                                                               \
        CUresult cuda_result_ = cuda.call;                                                                             \
        if (cuda_result_ != CUDA_SUCCESS)                                                                              \
            return part_fail(part, "%.*s: %s", NAME_LENGTH(#call), #call, api_cuda_error(cuda_result_));               \
    } while (0)
#define NCCL_TRY(part, side, call)                                                                                     \
    do {                                                                                                               \
        ncclResult_t nccl_result_ = nccl[side].call;                                                                   \
        if (nccl_result_ != ncclSuccess)                                                                               \
            return part_fail(part, "%s%.*s: %s; %s", (side) == MEASURED ? "nccl" : "pnccl", NAME_LENGTH(#call), #call, \
                             nccl[side].GetErrorString(nccl_result_), nccl[side].GetLastError(NULL));                  \
    } while (0)

/* --- row.c: one configuration --- */
struct row {
    int collective, datatype, redop; /* collective: PERF_<CALL> */
    enum mode mode;
    enum place place;
    uint64_t bytes, count; /* of the whole message, as nccl-tests has them; elements of the call's count argument */
    int group;             /* as many messages, one behind the other in each buffer, make one call */
    uint64_t offset;
    int root;           /* -1 if the collective has none */
    int samples, calls; /* after the time limit has been applied */
    const char *route;
};
int row_run(struct part *part, struct row *row); /* leaves its measurements in shared */

/* --- collective.c --- */
struct collective {
    bool in_place; /* it can be */
    int shares;    /* bytes on the bus: so often (n-1)/n of the message; 0: the message */
    int (*call)(struct part *part, const struct rank *rank, const struct row *row, enum side side, const void *send,
                void *recv);
};
extern const struct collective collectives[PERF_CALLS];
const char *collective_name(int collective);
int collective_routes(int collective);           /* Beeline's collective whose routes serve it */
bool collective_has(int collective, int traits); /* of several, any */
double collective_bus_factor(int collective, int nranks);
/* Of messages between two ranks: whom this one sends to, whom it receives from; -1: nobody.  Round a ring, as in nccl-tests, or
 * one way from each even rank to the next. */
int row_receiver(const struct rank *rank, const struct row *row);
int row_sender(const struct rank *rank, const struct row *row);
const char *row_redop_name(const struct row *row); /* "none" if it does not reduce */

/* --- buffers.c --- */
CUdeviceptr buffer_send(const struct rank *rank, const struct row *row, int index); /* of a message of the call */
CUdeviceptr buffer_recv(const struct rank *rank, const struct row *row, int index);
int buffers_fill(struct part *part, const struct row *row);                  /* inputs; outputs poisoned */
int buffers_check(struct part *part, const struct row *row, enum side side); /* adds to shared->wrong */

/* --- launch.c --- */
int launch_time(struct part *part); /* leaves it in shared */

/* --- report.c --- */
enum { MAX_ROUTES = 64 };
struct report {
    const struct bench *bench;
    FILE *text, *json;  /* NULL: no JSON */
    const char *tuning; /* the file that is measured with, or NULL */
    bool serves;        /* Beeline does: the measured side is its own */
    bool progress;      /* there is a line on stderr that says what is measured now */
    bool tolerant;      /* some of NCCL's results cannot be exact */
    bool lacking;       /* a collective was left out that was asked for */
    uint64_t wrong, rows, wrong_rows;
    double log_ratio; /* sum over rows, for the mean */
    const char *route[MAX_ROUTES];
    int routes; /* of Beeline's, so far */
};
int report_open(struct report *report, const struct bench *bench);
void report_left(struct report *report, const char *why, const char *section); /* why NULL: Beeline serves */
void report_launch(struct report *report);
void report_columns(struct report *report);                                         /* before the first row */
void report_tuning(struct report *report, const char *tuning);                      /* before its rows */
void report_collective(struct report *report, int collective, const char *lacking); /* before its rows */
void report_progress(struct report *report, const struct row *row);                 /* it begins */
void report_row(struct report *report, const struct row *row);
void report_note(struct report *report, const char *format, ...) __attribute__((format(printf, 2, 3)));
int report_close(struct report *report, bool failed); /* the exit status */

/* --- json.c: the same as JSON lines --- */
struct figures { /* seconds */
    double median, p99, event, host_min, host_median;
    uint64_t wrong;
};
enum { MAX_DEVICES = 64 };
struct machine {
    char date[64], host[72], arch[72], arguments[1024];
    char kernel_driver[32]; /* "580.159.04"; "" if it is not known */
    int driver, nccl[SIDES];
    int devices;
    struct device {
        char name[128], bus[32];
        int arch, sms;
    } device[MAX_DEVICES];
};
void json_run(FILE *json, const struct bench *bench, const struct machine *machine);
void json_box(FILE *json, const char *section, int nranks);
void json_launch(FILE *json, const char *what, int nranks, double seconds);
void json_row(const struct report *report, const struct row *row, const struct figures figures[SIDES]);

/* --- tunings.c --- */
int tunings_check(const struct options *options);  /* rank 0's process: whether they can be used */
int tunings_take(struct part *part, int index);    /* the next communicators are made with it */
void tunings_clear(const struct options *options); /* leaves the place as it was */

double now(void); /* seconds */
void sort_seconds(double *seconds, size_t count);

#endif
