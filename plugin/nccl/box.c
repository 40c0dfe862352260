/* box.c - beelineBox: what the library knows of this box, as JSON. */
#include "beeline.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "entry.h"
#include "base/params.h"
#include "base/version.h"
#include "base/why.h"
#include "box/link.h"
#include "box/nvml.h"
#include "box/tree.h"
#include "launch/copy.h"
#include "real/real.h"
#include "setup/steps.h"

struct text {
    char *at;
    size_t size, used;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...) {
    const size_t used = text->used < text->size ? text->used : text->size;
    va_list arguments;
    va_start(arguments, format);
    const int more = vsnprintf(text->at ? text->at + used : NULL, text->size - used, format, arguments);
    va_end(arguments);
    if (more > 0) text->used += (size_t)more;
}

/* As a JSON string; NULL or "" is null. */
static void add_string(struct text *text, const char *string) {
    if (!string || !*string) {
        add(text, "null");
        return;
    }
    add(text, "\"");
    for (; *string; string++) {
        const unsigned char c = (unsigned char)*string;
        add(text, c == '"' || c == '\\' ? "\\%c" : c < 0x20 ? "\\u%04x" : "%c", c);
    }
    add(text, "\"");
}

static void add_member(struct text *text, const char *name, const char *string) {
    add(text, ",\"%s\":", name);
    add_string(text, string);
}

/* -1 and, with `positive`, 0: not known. */
static void add_number(struct text *text, const char *name, long long number, bool positive) {
    if (number < 0 || (positive && !number))
        add(text, ",\"%s\":null", name);
    else
        add(text, ",\"%s\":%lld", name, number);
}

static const char *truth(bool is) {
    return is ? "true" : "false";
}

struct box {
    int gpus;
    struct bl_identity *all;
    struct bl_place *place;
    enum bl_link *link; /* gpus x gpus */
};

static enum bl_link link_of(const struct box *box, int a, int b) {
    return box->link[a * box->gpus + b];
}

static bool look(struct box *box) {
    const struct bl_driver *cu = bl_driver();
    int count = 0;
    if (!cu || cu->cuInit(0) != CUDA_SUCCESS || cu->cuDeviceGetCount(&count) != CUDA_SUCCESS || count < 1) return true;
    box->all = calloc((size_t)count, sizeof(*box->all));
    box->place = calloc((size_t)count, sizeof(*box->place));
    box->link = calloc((size_t)count * (size_t)count, sizeof(*box->link));
    if (!box->all || !box->place || !box->link) return false;
    box->gpus = count;
    for (int i = 0; i < count; i++) {
        bl_identity_fill(&box->all[i], i);
        box->all[i].offered = box->all[i].staging;
        box->all[i].copy_engines = bl_params()->copy_engines;
        box->all[i].copy_possible = bl_copy_possible();
        box->place[i] = bl_tree_place(box->all[i].pci);
    }
    for (int a = 0; a < count; a++)
        for (int b = 0; b < count; b++) {
            const struct bl_identity *one = &box->all[a], *other = &box->all[b];
            if (a == b) continue;
            enum bl_link link = bl_link_of(a, one->uuid, other->uuid);
            if (link == BL_LINK_PCIE) link = bl_tree_path(one->pci, other->pci);
            if (link == BL_LINK_PCIE) link = bl_nvml_path(one->uuid, other->uuid);
            if (link == BL_LINK_NVLINK && one->nvswitch && other->nvswitch) link = BL_LINK_NVSWITCH;
            box->link[a * count + b] = link;
        }
    return true;
}

/* Of the first so many. */
static enum bl_link class_of(const struct box *box, int gpus) {
    struct bl_links links = {BL_LINK_NVSWITCH, BL_LINK_NONE};
    for (int a = 0; a < gpus; a++)
        for (int b = 0; b < gpus; b++)
            if (a != b) bl_links_add(&links, (struct bl_links){(int)link_of(box, a, b), (int)link_of(box, a, b)});
    return bl_link_class((enum bl_link)links.worst, (enum bl_link)links.best);
}

static bool shares_port(const struct box *box, int gpu) {
    for (int i = 0; i < box->gpus; i++)
        if (i != gpu && box->place[i].port[0] && !strcmp(box->place[i].port, box->place[gpu].port)) return true;
    return false;
}

static void add_gpu(struct text *text, const struct box *box, int i) {
    const struct bl_identity *gpu = &box->all[i];
    const struct bl_nvml_gpu more = bl_nvml_gpu(gpu->uuid);
    const struct bl_driver *cu = bl_driver();
    size_t bytes = 0;
    cu->cuDeviceTotalMem(&bytes, i);
    add(text, "%s{\"ordinal\":%d", i ? "," : "", i);
    add_member(text, "name", gpu->gpu);
    add(text, ",\"uuid\":\"GPU-");
    for (int b = 0; b < 16; b++) add(text, "%s%02x", b == 4 || b == 6 || b == 8 || b == 10 ? "-" : "", gpu->uuid[b]);
    add(text, "\"");
    add_member(text, "pci", gpu->pci);
    add_number(text, "arch", gpu->arch, true);
    add_number(text, "sms", gpu->sms, true);
    add_number(text, "copy_engines", bl_driver_attribute(i, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT), false);
    add_number(text, "memory", (long long)bytes, true);
    add_number(text, "nvlinks", more.known ? (int)more.nvlinks : -1, false);
    add_number(text, "nvlink_version", more.nvlink_version, true);
    add(text, ",\"nvswitch\":%s,\"mig\":%s", more.known ? truth(more.nvswitch) : "null",
        more.known ? truth(more.mig) : "null");
    add(text, ",\"confidential\":%s", bl_nvml_error() ? "null" : truth(bl_nvml_confidential()));
    add(text, ",\"multicast\":%s", truth(bl_driver_attribute(i, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED)));
    add(text, ",\"fabric\":%s", truth(bl_driver_attribute(i, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)));
    add_number(text, "numa", box->place[i].numa, false);
    add_number(text, "package", box->place[i].package, false);
    add_member(text, "switch", shares_port(box, i) ? box->place[i].port : NULL);
    add_member(text, "lacks", gpu->capable ? NULL : gpu->reason);
    add(text, "}");
}

/* Why NCCL serves all calls of the first n GPUs; NULL: it does not. */
static const char *refusal(const struct box *box, int n, struct bl_staging_layout *layout) {
    enum bl_reason why;
    if (bl_identity_judge(box->all, n) != BL_WELL || bl_identity_layout(box->all, n, layout)) return bl_why();
    return bl_link_serves(class_of(box, n), &why) ? NULL : bl_reason_text(why);
}

/* Of a communicator of the first n GPUs. */
static void add_routes(struct text *text, const struct box *box, int n, bool first) {
    struct bl_staging_layout layout;
    struct bl_table *table = calloc(1, sizeof(*table));
    const char *refused = refusal(box, n, &layout);
    if (!table) return;
    if (!refused) bl_tables_make(box->all, bl_tables_facts(box->all, n, class_of(box, n), &layout), first, table, NULL);
    for (int c = 0; c < BL_COLLECTIVES; c++) {
        char ranges[1024] = "0.. nccl";
        if (!refused) bl_table_describe(table, (enum bl_collective)c, ranges, sizeof(ranges));
        add(text, "%s{\"ranks\":%d", first && !c ? "" : ",", n);
        add_member(text, "collective", bl_collective_name(c));
        add_member(text, "ranges", ranges);
        add_member(text, "source", refused ? refused : table->source[c]);
        add(text, "}");
    }
    free(table);
}

/* What is off, and why: texts of "WHAT: WHY". */
static void add_off(struct text *text, const struct box *box) {
    int count = 0;
    const char *forbidden = bl_params_multicast_forbidden();
    add(text, ",\"off\":[");
    if (!bl_params()->enable) add(text, "%s\"Beeline: BEELINE_ENABLE=0\"", count++ ? "," : "");
    if (forbidden) add(text, "%s\"multicast: %s\"", count++ ? "," : "", forbidden);
    if (!bl_params()->copy_engines) add(text, "%s\"copy engines: BEELINE_COPY_ENGINES=0\"", count++ ? "," : "");
    for (int i = 0; i < box->gpus; i++)
        if (!box->all[i].capable) add(text, "%s\"GPU %d: %s\"", count++ ? "," : "", i, box->all[i].reason);
    add(text, "]");
}

static void add_links(struct text *text, const struct box *box) {
    enum bl_reason why;
    add(text, ",\"links\":[");
    for (int a = 0; a < box->gpus; a++) {
        add(text, "%s[", a ? "," : "");
        for (int b = 0; b < box->gpus; b++)
            add(text, "%s\"%s\"", b ? "," : "", a == b ? "self" : bl_link_name(link_of(box, a, b)));
        add(text, "]");
    }
    add(text, "]");
    if (box->gpus < 2) return;
    const enum bl_link class = class_of(box, box->gpus);
    add_member(text, "class", bl_link_name(class));
    add_member(text, "class_text", bl_link_words(class));
    add_member(text, "not_served", bl_link_serves(class, &why) ? NULL : bl_reason_text(why));
    if (!bl_link_serves(class, &why)) return; /* nothing is tuned there */
    const struct bl_staging_layout none = {0};
    const struct bl_facts facts = bl_tables_facts(box->all, box->gpus, class, &none);
    char section[BL_SECTION];
    bl_facts_section(&facts, section);
    add_member(text, "fingerprint", section);
}

static void add_versions(struct text *text, const struct box *box) {
    const int nccl = bl_real_version();
    const struct bl_driver *cu = bl_driver();
    int cuda = 0;
    const char *dash = strrchr(bl_build_name, '-');
    add(text, "{\"version\":\"%.*s\",\"build\":\"%s\"", (int)(dash - bl_build_name), bl_build_name, dash + 1);
    if (cu) cu->cuDriverGetVersion(&cuda);
    if (cuda) {
        add(text, ",\"driver\":{\"cuda\":\"%d.%d\"", cuda / 1000, cuda % 1000 / 10);
        add_member(text, "version", bl_nvml_driver());
        add(text, "}");
    } else {
        add(text, ",\"driver\":null");
    }
    if (nccl) {
        const bool may = box->gpus && box->all[0].nccl_nvls;
        add(text, ",\"nccl\":{\"version\":\"%d.%d.%d\"", nccl / 10000, nccl / 100 % 100, nccl % 100);
        add_member(text, "path", bl_real_path());
        add(text, ",\"nvls\":\"%s\"", may ? "on" : "off");
        add_member(text, "why",
                   may                      ? NULL
                   : !bl_params_nccl_nvls() ? "NCCL_NVLS_ENABLE=0"
                                            : "the GPUs have no multicast");
        add(text, "}");
    } else {
        add(text, ",\"nccl\":null");
    }
    add(text, ",\"sources\":{\"driver\":");
    add_string(text, cu ? "ok" : bl_driver_error());
    add_member(text, "nvml", bl_nvml_error() ? bl_nvml_error() : "ok");
    add_member(text, "hwloc", bl_tree_error() ? bl_tree_error() : bl_tree_version());
    add(text, "}");
}

BL_EXPORT int beelineBox(char *json, size_t size) {
    struct text text = {json, json ? size : 0, 0};
    struct box box = {0};
    if (look(&box)) {
        add_versions(&text, &box);
        add(&text, ",\"gpus\":[");
        for (int i = 0; i < box.gpus; i++) add_gpu(&text, &box, i);
        add(&text, "]");
        add_links(&text, &box);
        add(&text, ",\"routes\":[");
        for (int n = 2; n <= box.gpus && n <= BL_MAX_RANKS; n++) add_routes(&text, &box, n, n == 2);
        add(&text, "]");
        add_off(&text, &box);
        add(&text, "}");
    }
    free(box.all);
    free(box.place);
    free(box.link);
    return box.all || !box.gpus ? (int)text.used : -1;
}
