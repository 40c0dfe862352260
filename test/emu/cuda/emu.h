/* emu.h - the emulated CUDA driver's own structures, shared by its files.
 *
 * Threads: every structure below is guarded by emu.lock unless its comment says otherwise.  Objects are never freed,
 * only marked dead: code that looked one up may keep the pointer.  What a program holds of one is another matter (object.c).
 * Errors: functions that make up a driver call return its CUresult.
 */
#ifndef BEELINE_EMU_H
#define BEELINE_EMU_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Nothing but the driver calls is visible outside: the library lives beside others with such names. */
#pragma GCC visibility push(hidden)

enum { EMU_MAX_DEVICES = 16, EMU_GRANULE_SHIFT = 21 };
enum { EMU_SM_BLOCKS = 2 }; /* a multiprocessor holds: as real ones do of Beeline's largest blocks (BL_KERNEL) */
#define EMU_GRANULE ((size_t)1 << EMU_GRANULE_SHIFT)

/* --- config.c: the BEELINE_EMU_* variables, read once --- */
enum emu_topology { EMU_NVLINK, EMU_PCIE, EMU_NONE, EMU_BROKEN, EMU_NVLS, EMU_MIXED };
enum emu_sync { EMU_SYNC_DRAWN, EMU_SYNC_ALWAYS, EMU_SYNC_NEVER };
enum emu_fabric { EMU_FABRIC_OFF, EMU_FABRIC_ON, EMU_FABRIC_DENIED };

struct emu_config {
    int gpus;                     /* on the box */
    int visible[EMU_MAX_DEVICES]; /* CUdevice -> index on the box */
    int devices;                  /* visible ones */
    enum emu_topology topology;
    enum emu_fabric fabric;
    enum emu_sync sync;
    int arch;             /* 90: compute capability 9.0 */
    bool multicast;       /* the GPUs have it */
    int sms, max_threads; /* of one device */
    int connections;      /* queues of a GPU's streams; 0: as many as streams */
    uint64_t depth;       /* entries that a stream has room for */
    int multicast_slots;  /* of the box */
    int multicast_wait;   /* milliseconds that a call waits for devices to be added */
    const char *name;     /* of the GPUs */
    char pci[EMU_MAX_DEVICES][16];
    uint8_t nvlinks[EMU_MAX_DEVICES][EMU_MAX_DEVICES]; /* of a pair; with switches, of each of the two */
    unsigned nvlink_version;
    bool nvswitch, nvml;   /* NVLinks lead to switches; there is a libnvidia-ml.so.1 that works */
    bool p2p_by_nvlink;    /* only */
    const char *run;       /* names what the processes of the box share; NULL: there is one */
    uint64_t seed, memory; /* memory: bytes of one device */
    const char *kernels;   /* library, or NULL for the one beside us */
    const char *trace, *faults, *leaks, *lacks, *speeds;
    int driver;     /* the newest CUDA version that it knows */
    int local_rank; /* -1 if there is none */
};
extern struct emu_config emu_config;
void emu_config_read(void);

/* --- entry.c: what every driver call passes first and last --- */
struct emu_state {
    pthread_mutex_t lock;
    pthread_cond_t progress; /* some stream got further */
    _Atomic bool initialized, forked;
    int captures; /* under way */
};
extern struct emu_state emu;
CUresult emu_enter(const char *function);
CUresult emu_leave(const char *function, CUresult result);
size_t emu_base_length(const char *function);           /* of the name without _v2, _v3, ... */
const char *emu_call_name(void);                        /* of the call that this thread is in, likewise */
uint64_t emu_nanoseconds(void);                         /* of a clock that only goes forward */
bool emu_thread(void *(*body)(void *), void *argument); /* detached; false if there is none to be had */
static inline void emu_lock(void) {
    pthread_mutex_lock(&emu.lock);
}
static inline void emu_unlock(void) {
    pthread_mutex_unlock(&emu.lock);
}

/* What cuGetProcAddress finds (proc.c): each row is written where its call is. */
struct emu_row {
    const char *symbol; /* the name, perhaps with _v2 */
    int since;          /* the CUDA version from which this form holds; 0: cuGetProcAddress does not know it */
    void (*address)(void);
};
#define EMU_ROW(name, since, symbol)                                                                                   \
    static const struct emu_row name##_row = {#name, since, (void (*)(void))symbol};                                   \
    __attribute__((used, section("emu_rows"))) static const struct emu_row *const name##_in_table = &name##_row;

/* Returns from a driver call whose part fails. */
#define EMU_TRY(call)                                                                                                  \
    do {                                                                                                               \
        const CUresult tried_ = (call);                                                                                \
        if (tried_ != CUDA_SUCCESS) return tried_;                                                                     \
    } while (0)

/* Defines driver call `symbol`: fault injection, the check for cuInit and fork, and the trace are around the body. */
#define EMU_AROUND(symbol, since, parameters, before, body, after)                                                     \
    static CUresult symbol##_body parameters;                                                                          \
    __attribute__((visibility("default"))) CUresult symbol parameters;                                                 \
    EMU_ROW(symbol, since, symbol)                                                                                     \
    CUresult symbol parameters {                                                                                       \
        CUresult result = emu_enter(#symbol);                                                                          \
        if (result == CUDA_SUCCESS) {                                                                                  \
            before;                                                                                                    \
            result = body;                                                                                             \
            after;                                                                                                     \
        }                                                                                                              \
        return emu_leave(#symbol, result);                                                                             \
    }                                                                                                                  \
    static CUresult symbol##_body parameters
#define EMU_CALL(symbol, since, parameters, arguments)                                                                 \
    EMU_AROUND(symbol, since, parameters, (void)0, symbol##_body arguments, (void)0)
/* The body has the lock. */
#define EMU_LOCKED(symbol, since, parameters, arguments)                                                               \
    EMU_AROUND(symbol, since, parameters, emu_lock(), symbol##_body arguments, emu_unlock())

/* --- object.c --- */
enum emu_kind {
    EMU_CONTEXT = 1,
    EMU_STREAM,
    EMU_EVENT,
    EMU_MODULE,
    EMU_FUNCTION,
    EMU_GRAPH,
    EMU_NODE,
    EMU_EXEC,
    EMU_HANDLE,
    EMU_RANGE,
    EMU_CAPTURE,
    EMU_GREEN,
    EMU_PLACE,
    EMU_KINDS
};

struct emu_object {
    uint64_t magic;
    enum emu_kind kind;
    uint32_t size;
    uint64_t number; /* the how-many-th of its kind */
    bool alive;
    bool orphan;              /* not freed by its owner, but with its context */
    struct emu_object *later; /* the next one made of this kind */
    struct place *place;      /* that its handle points to; NULL: the handle is the object */
};
void *emu_object_new(enum emu_kind kind, size_t size); /* zeroed, alive; NULL if out of memory */
void *emu_object_handle(void *object);                 /* makes the handle of a new stream or event; NULL likewise */
/* NULL if it is none of that kind.  One that has been destroyed ends the process. */
void *emu_object_get(const void *handle, enum emu_kind kind);
void *emu_object_find(const void *handle, enum emu_kind kind);                          /* the same, alive or dead */
__attribute__((noreturn)) void emu_object_gone(const void *object, const void *handle); /* that end */
void emu_object_end(void *object);
void *emu_object_next(const void *object);                   /* walks all, dead ones too, from NULL */
void *emu_object_of(enum emu_kind kind, const void *object); /* those of one kind */

/* --- context.c --- */
struct emu_stream;
struct emu_context {
    struct emu_object object;
    CUdevice device;
    bool primary;
    uint64_t id;             /* another one when it comes back */
    struct emu_green *green; /* of which this is the CUcontext; NULL: it is a context of its own */
    int retained;
    CUresult sticky;        /* an error that a kernel left; every later call returns it */
    int waits;              /* for values, under way on its streams */
    _Atomic bool abandoned; /* it ends although these may wait for ever: its work drains undone */
    uint32_t peers;         /* devices whose plain memory it may reach */
    struct emu_stream *legacy;
    struct emu_queue *queues; /* as many as there are connections; NULL where nobody said how many */
    unsigned streams;         /* made so far */
    struct emu_stream *left;  /* destroyed with work under way since the last one was made */
};
struct emu_context *emu_current(void);            /* NULL if none; of a green one, the primary */
struct emu_green *emu_current_green(void);        /* NULL if none, or none such */
CUresult emu_context_need(struct emu_context **); /* the current one, or why there is none */
/* With the lock held. */
struct emu_context *emu_primary_retain(CUdevice device);
void emu_primary_release(struct emu_context *context);
int emu_device_now(void); /* of the current context, -1 if none; takes no lock */

/* --- green.c --- */
struct emu_sms { /* the multiprocessors of a device that a launch may have */
    unsigned first, count;
};
struct emu_green {
    struct emu_object object;
    struct emu_context *primary, *context; /* context: what cuCtxFromGreenCtx tells */
    struct emu_sms sms;
};

/* --- address.c: one arena of addresses; a granule belongs to at most one range --- */
enum emu_range_kind { EMU_PLAIN, EMU_HOST, EMU_MANAGED, EMU_RESERVED, EMU_MAPPED, EMU_MULTICAST, EMU_REGISTERED };

struct emu_handle;
struct emu_range {
    struct emu_object object;
    enum emu_range_kind kind;
    uintptr_t base;
    size_t size;
    uintptr_t outer; /* with guards and padding */
    size_t outer_size;
    int device;                  /* owner's index on the box; -1 for host memory */
    uint32_t readable, writable; /* CUdevices that may */
    struct emu_context *context;
    struct emu_handle *handle; /* of a mapping, of memory or of a multicast object */
    size_t offset;             /* of a mapping, in the handle's memory */
    uint64_t id;
};
extern _Atomic(struct emu_range *) *emu_granules;
extern uintptr_t emu_arena;
extern size_t emu_arena_size;
CUresult emu_arena_open(void);
uintptr_t emu_arena_take(size_t bytes, size_t alignment); /* reserved, inaccessible; 0 if full */
void emu_arena_give(uintptr_t base, size_t bytes);
void emu_arena_set(uintptr_t base, size_t bytes, struct emu_range *range);
/* The range that holds the address, or NULL; takes no lock within the arena. */
struct emu_range *emu_range_of(uintptr_t address);
bool emu_range_holds(const struct emu_range *range, uintptr_t address, size_t bytes);
CUresult emu_register(struct emu_range *range);
void emu_unregister(struct emu_range *range);

/* --- memory.c, vmm.c --- */
struct emu_multicast;
struct emu_handle { /* cuMemCreate memory: a memfd named after its device; or a multicast object */
    struct emu_object object;
    int fd;
    uint64_t identity; /* of the memory, however many handles there are */
    size_t size;
    int device;     /* index on the box */
    int references; /* handles given out */
    int mappings;   /* and bindings */
    bool imported;
    unsigned types;                  /* CU_MEM_HANDLE_TYPE_*, as which it may be exported */
    struct emu_multicast *multicast; /* NULL: it is memory */
};
extern uint64_t emu_used[EMU_MAX_DEVICES]; /* bytes, by CUdevice */
void emu_poison(void *memory, size_t bytes);
bool emu_poison_fd(int fd, size_t bytes);
void emu_context_free_memory(struct emu_context *context);

/* These are called with emu.lock held. */
struct emu_handle *emu_handle_new(int fd, size_t size, int device);
struct emu_handle *emu_handle_get(CUmemGenericAllocationHandle handle); /* NULL if it is none */
void emu_handle_drop(struct emu_handle *handle);                        /* ends it where nothing holds it any more */
CUresult emu_handle_types(unsigned types);                              /* does the box offer all of these? */

/* --- share.c: handles on their way from process to process --- */
#define EMU_NAME_GPU       "beeline-emu-gpu"
#define EMU_NAME_MULTICAST "beeline-emu-multicast"
int emu_open_of(int pid, int fd, uint64_t identity); /* a descriptor of another process, if it still is that memory */

/* --- multicast.c --- */
CUresult emu_multicast_import(int fd, struct emu_handle **handle); /* owns fd if it succeeds */
void emu_multicast_end(struct emu_multicast *multicast);           /* its last handle here is gone */
/* Until all devices are added, for a time.  Gives emu.lock up meanwhile. */
CUresult emu_multicast_complete(struct emu_handle *handle);
bool emu_multicast_has(const struct emu_multicast *multicast, int device);
/* Where each device of the team has what the address of a multicast mapping stands for, as addresses here; how many. -1
 * if some device has nothing bound there. */
int emu_multicast_places(const struct emu_range *range, uintptr_t address, unsigned bytes,
                         uintptr_t places[EMU_MAX_DEVICES]);

/* --- device.c --- */
bool emu_device_valid(CUdevice device);
bool emu_peer_possible(int device, int peer); /* indices on the box, as from here on */
unsigned emu_nvlinks(int device);             /* active ones */
CUdevice emu_device_of_index(int index);      /* -1 if not visible */

/* --- op.c: what streams and graphs execute --- */
struct emu_event;
struct emu_plan;
struct emu_function;
enum emu_op_kind {
    EMU_OP_EMPTY,
    EMU_OP_KERNEL,
    EMU_OP_COPY,
    EMU_OP_SET,
    EMU_OP_HOST,
    EMU_OP_RECORD,
    EMU_OP_WAIT,
    EMU_OP_MEMOP,
    EMU_OP_GRAPH
};

struct emu_op {
    enum emu_op_kind kind;
    struct emu_context *context;
    struct emu_sms sms; /* of kernels */
    uint64_t takes;     /* nanoseconds by the stream's made-up clock */
    union {
        struct {
            struct emu_function *function;
            unsigned grid[3], block[3];
            bool early;      /* programmatic dependent launch */
            unsigned memory; /* of each block */
            void *args;
        } kernel; /* owns args */
        struct {
            void *dst;
            const void *src;
            size_t bytes;
            void *staged;
            unsigned late_us; /* until it begins */
        } copy;               /* owns staged */
        struct {
            void *dst;
            size_t count;
            unsigned width;
            uint32_t value;
            unsigned late_us;
        } set;
        struct {
            CUhostFn function;
            void *argument;
            unsigned holds; /* multiprocessors, as a kernel; 0: it is none */
        } host;
        struct {
            struct emu_event *event;
            uint64_t version;
        } event;
        struct {
            CUstreamBatchMemOpParams *list;
            unsigned count;
        } memop; /* owns list */
        struct {
            struct emu_plan *plan;
            uint64_t *versions;
        } graph; /* owns versions, and a use of the plan */
    };
};
/* Who does it: an eager stream, or a node of the graph that runs on the stream. */
struct emu_issuer {
    struct emu_stream *stream;
    const struct emu_plan *plan; /* NULL if eager */
    int node;
};
/* Without the lock; returns when it is done. */
CUresult emu_op_run(struct emu_op *op, const struct emu_issuer *by);
void emu_op_submit(const struct emu_op *op, void (*done)(void *, CUresult),
                   void *argument); /* a kernel, to the engine */
struct emu_op emu_op_copy(const struct emu_op *op);
void emu_op_free(struct emu_op *op);
void emu_graph_run(struct emu_plan *plan, const uint64_t *versions, struct emu_stream *stream); /* replay.c */

/* --- memop.c --- */
CUresult emu_memop_run(const struct emu_op *op, const struct emu_issuer *by);

/* --- late.c: writes that others see late; it has a lock of its own, taken after emu.lock --- */
bool emu_late_is(const struct emu_context *context, const void *place); /* are writes there? */
void emu_late_store(const struct emu_issuer *by, const struct emu_context *context, void *to, const void *from,
                    size_t bytes);
void emu_late_flush(const struct emu_issuer *by); /* delivers all that came before */
void emu_late_flush_place(const struct emu_issuer *by, const void *place, size_t bytes);
void emu_late_flush_stream(const struct emu_stream *stream);
void emu_late_leave_graph(const struct emu_stream *stream);       /* its graph is done: what it wrote is the stream's */
void emu_late_forget(const struct emu_range *range);              /* which is unmapped and no longer found */
bool emu_late_load(const void *word, bool wide, uint64_t *value); /* false if nothing is mapped there */

/* --- queue.c: the few queues of the hardware that streams may share --- */
struct emu_queue {
    uint64_t put, taken;    /* operations */
    pthread_cond_t further; /* one was taken */
};
struct emu_queue *emu_queue_next(struct emu_context *context); /* of a new stream; NULL: it shares none */
void emu_queue_wait(struct emu_queue *queue, uint64_t number); /* until the operation is at its head */
void emu_queue_take(struct emu_queue *queue,
                    uint64_t number);          /* it leaves, if it has not: what is behind is at the head */
bool emu_queue_holds(const struct emu_op *op); /* it leaves when it is done; others, when they begin */

/* --- stream.c --- */
struct emu_node;
struct emu_capture;
struct emu_stream {
    struct emu_object object;
    struct emu_context *context;
    struct emu_green *green; /* NULL: it has all multiprocessors */
    unsigned flags;
    int priority;
    uint64_t id;
    bool legacy, blocking;
    struct emu_entry *head, **tail;
    uint64_t submitted, completed;
    uint64_t clock;               /* made up: what its work took so far */
    pthread_cond_t work, further; /* something was submitted; completed */
    bool worker, ending;
    struct emu_queue *queue;     /* NULL: it shares none */
    uint64_t running;            /* number there of what runs */
    bool in_kernel;              /* what runs is a launch */
    struct emu_stream *heir;     /* which has its queue now; NULL: none */
    struct emu_stream *left;     /* destroyed before it, and has none either */
    struct emu_capture *capture; /* NULL while eager */
    struct emu_node **deps;      /* where the next captured node hangs */
    int ndeps;
};
/* The stream behind a handle, NULL and the special ones included.  With the lock held. */
CUresult emu_stream_of(CUstream handle, struct emu_stream **stream);
CUresult emu_stream_usable(CUstream handle, struct emu_stream **stream); /* the same, if work may go there */
/* Puts op behind the stream's work, or into its capture; owns op's parts from here, also when it fails.  Takes the
 * lock. */
CUresult emu_enqueue(CUstream handle, struct emu_op *op);
CUresult emu_enqueue_and_wait(CUstream handle, struct emu_op *op);
void emu_push(struct emu_stream *stream, struct emu_op *op); /* with the lock held */
/* Makes later work of stream wait for another's, as far as submitted; with the lock held. */
void emu_push_after(struct emu_stream *stream, struct emu_stream *other, uint64_t submitted);
void emu_wait_until(struct emu_stream *stream, uint64_t submitted); /* with the lock held */
struct emu_stream *emu_stream_new(struct emu_context *context, unsigned flags, int priority);
CUresult emu_stream_create(CUstream *out, struct emu_context *context, struct emu_green *green, unsigned flags,
                           int priority); /* takes the lock */
void emu_stream_end(struct emu_stream *stream);
/* For all that was submitted before, with the lock held. */
void emu_context_wait(struct emu_context *context);
void emu_context_may_wait(struct emu_context *context); /* or not, as a call may that synchronises implicitly */
void emu_context_drain(struct emu_context *context); /* the same, but gives up waits for values that seem to be vain */

/* --- speed.c: made-up times, by which the clocks of streams go that events tell of --- */
uint64_t emu_speed_of(const char *name, uint64_t bytes); /* nanoseconds; 0 where no line has the name */
uint64_t emu_speed_of_kernel(const struct emu_function *function, const void *args);
void emu_speed_pass(struct emu_stream *stream, uint64_t nanoseconds); /* takes the lock */

/* --- event.c --- */
struct emu_event {
    struct emu_object object;
    struct emu_context *context;
    unsigned flags;
    uint64_t recorded, completed; /* versions: cuEventRecord calls made, and the last before which all have happened */
    uint64_t *early;              /* later ones that have happened too: records may be on several streams */
    int nearly;
    pthread_cond_t further; /* one has happened */
    uint64_t nanoseconds;
    struct emu_capture *capture; /* the last record was in this capture */
    struct emu_node **deps;
    int ndeps;
};
bool emu_event_done(const struct emu_event *event, uint64_t version); /* with the lock held */
void emu_event_complete(struct emu_event *event, uint64_t version, const struct emu_stream *stream);
void emu_event_wait(struct emu_event *event, uint64_t version, struct emu_stream *stream);

/* --- capture.c --- */
struct emu_graph;
struct emu_capture {
    struct emu_object object; /* alive while capturing */
    uint64_t id;
    struct emu_graph *graph;
    struct emu_stream *origin;
    CUstreamCaptureMode mode;
    pthread_t thread;
    bool invalid;
    bool into_existing; /* cuStreamBeginCaptureToGraph */
};
/* All with the lock held. */
CUresult emu_capture_add(struct emu_stream *stream, struct emu_op *op); /* owns op */
CUresult emu_capture_record(struct emu_stream *stream, struct emu_event *event);
CUresult emu_capture_wait(struct emu_stream *stream, struct emu_event *event, bool *handled);
CUresult emu_capture_unsafe(void); /* may this thread make a call that is unsafe in a capture? */
CUresult emu_capture_legacy(const struct emu_stream *stream); /* may work go to it, if it is the legacy stream? */
CUresult emu_capture_refuse(struct emu_stream *stream);       /* of a call that a stream does not bear which captures */
bool emu_capture_any(const struct emu_context *context, bool invalidate);
void emu_set_deps(struct emu_node ***deps, int *ndeps, struct emu_node *const *from, int count);

/* --- graph.c: nodes and edges; exec.c: what is launched --- */
struct emu_node {
    struct emu_object object;
    struct emu_graph *graph;
    int index;
    struct emu_op op;
    struct emu_node **deps;
    int ndeps;
};
struct emu_graph {
    struct emu_object object;
    struct emu_node **nodes;
    int count, space;
};
struct emu_plan {
    int uses; /* launches that are not over, and the exec that has it */
    int count;
    struct emu_op *ops;
    int **next, *nnext, *indegree; /* edges by index */
};
struct emu_exec {
    struct emu_object object;
    struct emu_plan *plan;
    struct emu_stream *last_stream; /* launches of one exec never overlap */
    uint64_t last_submitted;
};
void emu_plan_done(struct emu_plan *plan);              /* one of its uses is over; with the lock held */
CUgraphNodeType emu_node_type(const struct emu_op *op); /* as programs see it */
struct emu_graph *emu_graph_new(void);
CUresult emu_graph_check(const struct emu_graph *graph, const CUgraphNode *nodes,
                         size_t count); /* are they its nodes? */
void emu_graph_end(struct emu_graph *graph);
struct emu_node *emu_graph_add(struct emu_graph *graph, struct emu_op *op, struct emu_node *const *deps, int ndeps);

/* --- module.c --- */
struct emu_module {
    struct emu_object object;
    struct emu_context *context; /* NULL for a CUlibrary */
    const void *image;
    void *library;
    struct emu_function *functions; /* those that were asked for, the last first */
};
void emu_module_end(struct emu_module *module); /* and all its functions; under the lock */
struct emu_function {
    struct emu_object object;
    struct emu_module *module;
    const char *name;
    void (*entry)(const void *args);
    unsigned argument_size;
    int most_threads;          /* of a block */
    unsigned most_memory;      /* of a block, as asked for */
    int carveout;              /* percent of a multiprocessor's for blocks, that it would like; -1: said nothing */
    struct emu_function *next; /* of its module */
};

/* --- simt.c, dispatch.c: kernels --- */
/* Of a block, unless more is asked for; at most; of a multiprocessor, of which each block has 1 KB for itself.  As H200 have it. */
enum {
    EMU_BLOCK_MEMORY = 48 << 10,
    EMU_MOST_BLOCK_MEMORY = 227 << 10,
    EMU_SM_MEMORY = 228 << 10,
    EMU_OWN_MEMORY = 1 << 10
};
struct emu_launch {
    struct emu_function *function;
    struct emu_context *context;
    struct emu_sms sms;
    unsigned grid[3], block[3];
    unsigned memory; /* of each block */
    bool early; /* may start before what came before on its stream is over: it must wait before it touches memory */
    const void *args;
    void (*done)(void *argument, CUresult result); /* on the engine's thread */
    void *argument;
};
void emu_simt_submit(const struct emu_launch *launch);
/* What runs on the calling thread has so many multiprocessors to itself from the return of the first to the second.  Waits for
 * them, behind all that was submitted before. */
struct kernel *emu_simt_hold(struct emu_context *context, struct emu_sms sms, unsigned multiprocessors);
void emu_simt_release(struct kernel *kernel);

/* --- leaks.c, error.c --- */
void emu_leaks_report(void);
const char *emu_error_name(CUresult result);
CUresult emu_error_value(const char *name); /* CUDA_ERROR_UNKNOWN if there is none such */
void emu_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Seeded numbers: splitmix64, good enough for schedules. */
static inline uint64_t emu_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

#pragma GCC visibility pop

#endif
