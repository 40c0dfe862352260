#include "fuse.h"

#include "base/log.h"
#include "launch.h"
#include "pairs.h"

/* At INFO, once a communicator. */
static void tell_fused(struct bl_comm *comm, int calls, int launches) {
    if (comm->logged_fused || calls == launches || !bl_log_enabled(BL_LOG_INFO)) return;
    comm->logged_fused = true;
    bl_log(BL_LOG_INFO, "communicator %016llx rank %d: the %d calls of a group are fused into %d launch%s",
           (unsigned long long)comm->id, comm->rank, calls, launches, launches == 1 ? "" : "es");
}

/* The launches of one communicator, as they are planned. */
struct plan {
    struct bl_collected *calls;
    int first, last; /* launches, by their first calls; -1: none yet */
    int all, launches;
};

/* Whether it goes out with calls[first]. */
static bool goes_with(const struct bl_collected *calls, int i, int first) {
    return calls[i].call.comm == calls[first].call.comm && calls[i].when == calls[first].when;
}

static void begin_launch(struct plan *plan, int i) {
    plan->calls[i].lead = i;
    if (plan->last >= 0)
        plan->calls[plan->last].next_lead = i;
    else
        plan->first = i;
    plan->last = i;
    plan->launches++;
}

static void plan_collectives(struct plan *plan, const struct bl_table *table, int first, int count) {
    struct bl_collected *calls = plan->calls;
    struct bl_fuser fuser;
    struct bl_route route;
    bl_fuser_begin(&fuser, table);
    for (int i = first; i < count; i++) {
        if (!goes_with(calls, i, first) || bl_call_is_message(&calls[i].call.request)) continue;
        const int before = bl_fuser_add(&fuser, &calls[i].call.request, i, &route);
        if (before == BL_FUSE_BEGINS) {
            begin_launch(plan, i);
        } else {
            calls[i].lead = calls[before].lead;
            calls[calls[i].lead].call.route = route;
            calls[before].next = i;
        }
    }
}

/* Adds the calls of a launch, if all can be in the mix, and it has room for them.  Of a collective there is one launch: the thresholds say how much that
 * has. */
static bool joins(struct bl_mix *mix, const struct bl_collected *calls, int lead) {
    if (mix->collectives >> calls[lead].call.request.collective & 1) return false;
    struct bl_mix joined = *mix;
    for (int i = lead; i >= 0; i = calls[i].next)
        if (!bl_mix_add(&joined, &calls[i].call.request, &calls[lead].call.route)) return false;
    if (!bl_mix_fits(&joined)) return false;
    *mix = joined;
    return true;
}

/* Puts a launch's calls behind call `last` of another launch; returns the last of them. */
static int append_launch(struct bl_collected *calls, int last, int lead) {
    calls[last].next = lead;
    for (int i = lead; i >= 0; i = calls[i].next) {
        calls[i].lead = calls[last].lead;
        last = i;
    }
    return last;
}

static int last_of(const struct bl_collected *calls, int lead) {
    int last = lead;
    while (calls[last].next >= 0) last = calls[last].next;
    return last;
}

/* What follows of the launches, and can be one with this: whether that pays. */
static bool find_joining(const struct plan *plan, struct bl_mix *mix, int lead) {
    struct bl_collected *calls = plan->calls;
    for (int other = calls[lead].next_lead; other >= 0; other = calls[other].next_lead)
        calls[other].joins = joins(mix, calls, other);
    return bl_mix_pays(mix);
}

/* Becomes one with it. */
static void join_launches(struct plan *plan, int lead) {
    struct bl_collected *calls = plan->calls;
    int last = last_of(calls, lead);
    for (int before = lead, other; (other = calls[before].next_lead) >= 0;) {
        if (!calls[other].joins) {
            before = other;
            continue;
        }
        calls[before].next_lead = calls[other].next_lead;
        if (plan->last == other) plan->last = before;
        plan->launches--;
        last = append_launch(calls, last, other);
    }
}

/* Launches of several collectives, as few as can be. */
static void plan_mixed(struct plan *plan, const struct bl_table *table) {
    struct bl_mix mix;
    for (int lead = plan->first; lead >= 0 && plan->launches > 1; lead = plan->calls[lead].next_lead) {
        bl_mix_begin(&mix, table);
        if (!joins(&mix, plan->calls, lead) || !find_joining(plan, &mix, lead)) continue;
        join_launches(plan, lead);
        bl_mix_route(&mix, &plan->calls[lead].call.route);
    }
}

/* Two lists, each in order, as one. */
static int merge(struct bl_collected *calls, int a, int b) {
    int first = -1, *at = &first;
    while (a >= 0 && b >= 0) {
        const bool b_first = bl_pairs_before(&calls[b].call, calls[b].index, &calls[a].call, calls[a].index);
        int *const taken = b_first ? &b : &a;
        *at = *taken;
        at = &calls[*taken].next;
        *taken = *at;
    }
    *at = a >= 0 ? a : b;
    return first;
}

/* lists[k] has 2^k calls, or none. */
static int sort_pairs(struct bl_collected *calls, int list) {
    enum { LISTS = 32 };
    int lists[LISTS], used = 0, all = -1;
    while (list >= 0) {
        int one = list, k = 0;
        list = calls[list].next;
        calls[one].next = -1;
        for (; k < used && lists[k] >= 0; k++) {
            one = merge(calls, lists[k], one);
            lists[k] = -1;
        }
        lists[k] = one;
        if (k == used) used++;
    }
    for (int k = 0; k < used; k++) all = merge(calls, lists[k], all);
    return all;
}

/* Those of the communicator, in their order in the group. */
static int list_pairs(struct bl_collected *calls, int first, int count) {
    int indices[2][BL_MAX_RANKS] = {{0}}, list = -1, *at = &list;
    for (int i = first; i < count; i++) {
        const struct bl_call *call = &calls[i].call;
        if (!goes_with(calls, i, first) || !bl_call_is_message(&calls[i].call.request)) continue;
        calls[i].index = indices[call->receives][call->request.root]++;
        *at = i;
        at = &calls[i].next;
    }
    return list;
}

static void plan_pairs(struct plan *plan, int first, int count) {
    struct bl_collected *calls = plan->calls;
    int of_launch = 0;
    for (int i = sort_pairs(calls, list_pairs(calls, first, count)), before = -1, next; i >= 0; i = next) {
        next = calls[i].next;
        calls[i].next = -1;
        if (of_launch == 0)
            begin_launch(plan, i);
        else {
            calls[i].lead = calls[before].lead;
            calls[before].next = i;
        }
        of_launch = (of_launch + 1) % BL_BATCH_MAX;
        before = i;
    }
}

/* The launches of calls[first] and of what goes out with it; returns the first of them. */
static int plan(struct bl_collected *calls, int first, int count) {
    struct bl_comm *comm = calls[first].call.comm;
    struct plan plan = {.calls = calls, .first = -1, .last = -1};
    bool collectives = false;
    for (int i = first; i < count; i++) {
        if (!goes_with(calls, i, first)) continue;
        collectives = collectives || !bl_call_is_message(&calls[i].call.request);
        calls[i].planned = true;
        calls[i].next = -1;
        calls[i].next_lead = -1;
        plan.all++;
    }
    if (collectives) { /* else the fuser's 7 KB need not be written */
        plan_collectives(&plan, &comm->table, first, count);
        plan_mixed(&plan, &comm->table);
    }
    plan_pairs(&plan, first, count);
    tell_fused(comm, plan.all, plan.launches);
    return plan.first;
}

/* A launch's calls, in order; returns how many. */
static int batch_of(const struct bl_collected *calls, int first, const struct bl_call *batch[BL_BATCH_MAX]) {
    int count = 0;
    for (int i = first; i >= 0 && count < BL_BATCH_MAX; i = calls[i].next) batch[count++] = &calls[i].call;
    return count;
}

static uint64_t id_of(const struct bl_collected *calls, int c) {
    return calls[calls[c].turn].call.comm->id;
}

/* Of the communicators that have launches left, that of the least id; -1: none has. */
static int next_communicator(const struct bl_collected *calls, int comms) {
    int least = -1;
    for (int c = 0; c < comms; c++)
        if (calls[c].turn >= 0 && (least < 0 || id_of(calls, c) < id_of(calls, least))) least = c;
    return least;
}

/* All launches of a communicator, of its ranks here in turn. */
static ncclResult_t launch_communicator(struct bl_collected *calls, int comms, uint64_t id) {
    const struct bl_call *batch[BL_BATCH_MAX];
    ncclResult_t result = ncclSuccess;
    for (bool left = true; left && result == ncclSuccess;) {
        left = false;
        for (int c = 0; c < comms && result == ncclSuccess; c++) {
            if (calls[c].turn < 0 || id_of(calls, c) != id) continue;
            struct bl_collected *const first = &calls[calls[c].turn];
            const int of_launch = batch_of(calls, calls[c].turn, batch);
            result = bl_launch_some(batch, of_launch, &first->done);
            if (first->done == first->call.request.count) calls[c].turn = first->next_lead;
            left = left || calls[c].turn >= 0;
        }
    }
    return result;
}

/* Returns how many communicators have some: calls[c].turn for c below it is, of each, and of each of its ranks here, the launch whose turn it
 * is; -1: all are launched. */
static int plan_all(struct bl_collected *calls, int count, enum bl_when when) {
    int comms = 0;
    for (int i = 0; i < count; i++) { /* a communicator may have ended since: its calls go nowhere */
        calls[i].planned = !atomic_load(&calls[i].call.comm->active) || calls[i].when != when;
        calls[i].lead = -1;
        calls[i].done = 0;
    }
    for (int i = 0; i < count; i++) {
        if (calls[i].planned) continue;
        const int first = plan(calls, i, count);
        calls[comms++].turn = first;
    }
    return comms;
}

static ncclResult_t check_all(const struct bl_collected *calls, int count) {
    const struct bl_call *batch[BL_BATCH_MAX];
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < count && result == ncclSuccess; i++)
        if (calls[i].lead == i) result = bl_launch_check(batch, batch_of(calls, i, batch));
    return result;
}

ncclResult_t bl_fuse_check(struct bl_collected *calls, int count, enum bl_when when) {
    plan_all(calls, count, when);
    return check_all(calls, count);
}

ncclResult_t bl_fuse_launch(struct bl_collected *calls, int count, enum bl_when when) {
    const int comms = plan_all(calls, count, when);
    ncclResult_t result = check_all(calls, count);
    for (int c; result == ncclSuccess && (c = next_communicator(calls, comms)) >= 0;)
        result = launch_communicator(calls, comms, id_of(calls, c));
    return result;
}
