/* box.c - beelineBox: what the library knows of this box, as JSON. */
#include "beeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "entry.h"
#include "base/json.h"
#include "base/params.h"
#include "base/version.h"
#include "base/why.h"
#include "box/link.h"
#include "box/nvml.h"
#include "box/tree.h"
#include "launch/copy.h"
#include "real/real.h"
#include "setup/steps.h"

/* NULL or "" is null. */
static void add_string(FILE *out, const char *string) {
    if (string && *string)
        bl_json_string(out, string);
    else
        fputs("null", out);
}

static void add_member(FILE *out, const char *name, const char *string) {
    fprintf(out, ",\"%s\":", name);
    add_string(out, string);
}

/* -1 and, with `positive`, 0: not known. */
static void add_number(FILE *out, const char *name, long long number, bool positive) {
    if (number < 0 || (positive && !number))
        fprintf(out, ",\"%s\":null", name);
    else
        fprintf(out, ",\"%s\":%lld", name, number);
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

static void add_gpu(FILE *out, const struct box *box, int i) {
    const struct bl_identity *gpu = &box->all[i];
    const struct bl_nvml_gpu more = bl_nvml_gpu(gpu->uuid);
    const struct bl_driver *cu = bl_driver();
    size_t bytes = 0;
    cu->cuDeviceTotalMem(&bytes, i);
    fprintf(out, "%s{\"ordinal\":%d", i ? "," : "", i);
    add_member(out, "name", gpu->gpu);
    fprintf(out, ",\"uuid\":\"GPU-");
    for (int b = 0; b < 16; b++) fprintf(out, "%s%02x", b == 4 || b == 6 || b == 8 || b == 10 ? "-" : "", gpu->uuid[b]);
    fprintf(out, "\"");
    add_member(out, "pci", gpu->pci);
    add_number(out, "arch", gpu->arch, true);
    add_number(out, "sms", gpu->sms, true);
    add_number(out, "copy_engines", bl_driver_attribute(i, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT), false);
    add_number(out, "memory", (long long)bytes, true);
    add_number(out, "nvlinks", more.known ? (int)more.nvlinks : -1, false);
    add_number(out, "nvlink_version", more.nvlink_version, true);
    fprintf(out, ",\"nvswitch\":%s,\"mig\":%s", more.known ? truth(more.nvswitch) : "null",
            more.known ? truth(more.mig) : "null");
    fprintf(out, ",\"confidential\":%s", bl_nvml_error() ? "null" : truth(bl_nvml_confidential()));
    fprintf(out, ",\"multicast\":%s", truth(bl_driver_attribute(i, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED)));
    fprintf(out, ",\"fabric\":%s", truth(bl_driver_attribute(i, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)));
    add_number(out, "numa", box->place[i].numa, false);
    add_number(out, "package", box->place[i].package, false);
    add_member(out, "switch", shares_port(box, i) ? box->place[i].port : NULL);
    add_member(out, "lacks", gpu->capable ? NULL : gpu->reason);
    fprintf(out, "}");
}

/* Why NCCL serves all calls of the first n GPUs; NULL: it does not. */
static const char *refusal(const struct box *box, int n, struct bl_staging_layout *layout) {
    if (bl_identity_judge(box->all, n) != BL_WELL || bl_identity_layout(box->all, n, layout)) return bl_why();
    const enum bl_link class = class_of(box, n);
    return bl_link_serves(class) ? NULL : bl_reason_text(bl_link_why(class));
}

/* Of a communicator of the first n GPUs. */
static void add_routes(FILE *out, const struct box *box, int n, bool first) {
    struct bl_staging_layout layout;
    struct bl_table *table = calloc(1, sizeof(*table));
    const char *refused = refusal(box, n, &layout);
    if (!table) return;
    if (!refused) bl_tables_make(box->all, bl_tables_facts(box->all, n, class_of(box, n), &layout), first, table, NULL);
    for (int c = 0; c < BL_COLLECTIVES; c++) {
        char ranges[1024] = "0.. nccl";
        if (!refused) bl_table_describe(table, (enum bl_collective)c, ranges, sizeof(ranges));
        fprintf(out, "%s{\"ranks\":%d", first && !c ? "" : ",", n);
        add_member(out, "collective", bl_collective_name(c));
        add_member(out, "ranges", ranges);
        add_member(out, "source", refused ? refused : table->source[c]);
        fprintf(out, "}");
    }
    free(table);
}

/* What is off, and why: texts of "WHAT: WHY". */
static void add_off(FILE *out, const struct box *box) {
    int count = 0;
    const char *forbidden = bl_params_multicast_forbidden();
    fprintf(out, ",\"off\":[");
    if (!bl_params()->enable) fprintf(out, "%s\"Beeline: BEELINE_ENABLE=0\"", count++ ? "," : "");
    if (forbidden) fprintf(out, "%s\"multicast: %s\"", count++ ? "," : "", forbidden);
    if (!bl_params()->copy_engines) fprintf(out, "%s\"copy engines: BEELINE_COPY_ENGINES=0\"", count++ ? "," : "");
    for (int i = 0; i < box->gpus; i++)
        if (!box->all[i].capable) fprintf(out, "%s\"GPU %d: %s\"", count++ ? "," : "", i, box->all[i].reason);
    fprintf(out, "]");
}

static void add_links(FILE *out, const struct box *box) {
    fprintf(out, ",\"links\":[");
    for (int a = 0; a < box->gpus; a++) {
        fprintf(out, "%s[", a ? "," : "");
        for (int b = 0; b < box->gpus; b++)
            fprintf(out, "%s\"%s\"", b ? "," : "", a == b ? "self" : bl_link_name(link_of(box, a, b)));
        fprintf(out, "]");
    }
    fprintf(out, "]");
    if (box->gpus < 2) return;
    const enum bl_link class = class_of(box, box->gpus);
    add_member(out, "class", bl_link_name(class));
    add_member(out, "class_text", bl_link_words(class));
    add_member(out, "not_served", bl_link_serves(class) ? NULL : bl_reason_text(bl_link_why(class)));
    if (!bl_link_serves(class)) return; /* nothing is tuned there */
    const struct bl_staging_layout none = {0};
    const struct bl_facts facts = bl_tables_facts(box->all, box->gpus, class, &none);
    char section[BL_SECTION];
    bl_facts_section(&facts, section);
    add_member(out, "fingerprint", section);
}

static void add_versions(FILE *out, const struct box *box) {
    const int nccl = bl_real_version();
    const struct bl_driver *cu = bl_driver();
    int cuda = 0;
    const char *dash = strrchr(bl_build_name, '-');
    fprintf(out, "{\"version\":\"%.*s\",\"build\":\"%s\"", (int)(dash - bl_build_name), bl_build_name, dash + 1);
    if (cu) cu->cuDriverGetVersion(&cuda);
    if (cuda) {
        fprintf(out, ",\"driver\":{\"cuda\":\"%d.%d\"", cuda / 1000, cuda % 1000 / 10);
        add_member(out, "version", bl_nvml_driver());
        fprintf(out, "}");
    } else {
        fprintf(out, ",\"driver\":null");
    }
    if (nccl) {
        const bool may = box->gpus && box->all[0].nccl_nvls;
        fprintf(out, ",\"nccl\":{\"version\":\"%d.%d.%d\"", nccl / 10000, nccl / 100 % 100, nccl % 100);
        add_member(out, "path", bl_real_path());
        fprintf(out, ",\"nvls\":\"%s\"", may ? "on" : "off");
        add_member(out, "why",
                   may                      ? NULL
                   : !bl_params_nccl_nvls() ? "NCCL_NVLS_ENABLE=0"
                                            : "the GPUs have no multicast");
        fprintf(out, "}");
    } else {
        fprintf(out, ",\"nccl\":null");
    }
    fprintf(out, ",\"sources\":{\"driver\":");
    add_string(out, cu ? "ok" : bl_driver_error());
    add_member(out, "nvml", bl_nvml_error() ? bl_nvml_error() : "ok");
    add_member(out, "hwloc", bl_tree_error() ? bl_tree_error() : bl_tree_version());
    fprintf(out, "}");
}

BL_EXPORT int beelineBox(char *json, size_t size) {
    struct box box = {0};
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    const bool looked = out && look(&box);
    if (looked) {
        add_versions(out, &box);
        fprintf(out, ",\"gpus\":[");
        for (int i = 0; i < box.gpus; i++) add_gpu(out, &box, i);
        fprintf(out, "]");
        add_links(out, &box);
        fprintf(out, ",\"routes\":[");
        for (int n = 2; n <= box.gpus && n <= BL_MAX_RANKS; n++) add_routes(out, &box, n, n == 2);
        fprintf(out, "]");
        add_off(out, &box);
        fprintf(out, "}");
    }
    const bool whole = out && fclose(out) == 0 && looked;
    if (whole && size) snprintf(json, size, "%s", text);
    free(text);
    free(box.all);
    free(box.place);
    free(box.link);
    return whole ? (int)length : -1;
}
