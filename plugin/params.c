/* params.c - reads the environment, strictly, once; the only file that reads it. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "log.h"
#include "params.h"

enum kind { FLAG, BYTES, COUNT, CHOICE, TEXT };

struct row {
    const char *variable;
    enum kind kind;
    size_t offset;
    uint64_t value, low, high; /* default and range; of a choice, the index */
    const char *names;         /* of a choice: "NONE|WARN" */
    const char *category;
};

#define OFFSET(member) offsetof(struct bl_params, member)
static const struct row rows[] = {
#define BL_PARAM_FLAG(member, variable, value, category, help)                                                         \
    {variable, FLAG, OFFSET(member), value, 0, 1, NULL, category},
#define BL_PARAM_BYTES(member, variable, value, low, high, category, help)                                             \
    {variable, BYTES, OFFSET(member), value, low, high, NULL, category},
#define BL_PARAM_COUNT(member, variable, value, low, high, category, help)                                             \
    {variable, COUNT, OFFSET(member), value, low, high, NULL, category},
#define BL_PARAM_CHOICE(member, variable, value, names, category, help)                                                \
    {variable, CHOICE, OFFSET(member), value, 0, 0, names, category},
#define BL_PARAM_TEXT(member, variable, category, help) {variable, TEXT, OFFSET(member), 0, 0, 0, NULL, category},
#include "params.def"
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

enum source { SOURCE_DEFAULT, SOURCE_ENVIRONMENT, SOURCE_REFUSED };
static const char *const source_texts[] = {"default", "environment", "default: the environment's value was refused"};

/* Categories of which every rank must have the same: they decide routes and the layout of the staging. */
static const char *const shared_categories[] = {"routes", "memory"};

/* Variables in BEELINE_ that are not the library's: of the emulated box, and of the launcher's rendezvous for programs.
 */
static const char *const foreign[] = {"BEELINE_EMU_", "BEELINE_ID_FILE", "BEELINE_TEST_", "BEELINE_PERF_"};

/* Set by users of NCCL, PyTorch and NVSHMEM where multicast must not be used. */
static const struct {
    const char *variable;
    bool forbids_when; /* the truth of the value that forbids */
} multicast[] = {
    {"NCCL_NVLS_ENABLE", false}, {"TORCH_SYMM_MEM_DISABLE_MULTICAST", true}, {"NVSHMEM_DISABLE_NVLS", true}};

enum { COMPLAINTS = 16, COMPLAINT = 320 };

static struct bl_params params;
static enum source sources[ROWS];
static char complaints[COMPLAINTS][COMPLAINT]; /* logged when the level is known */
static int complaint_count;
static char multicast_text[96];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool ready, told;

static bool parse_flag(const char *text, uint64_t *value) {
    static const char *const words[][2] = {{"0", "1"}, {"off", "on"}, {"false", "true"}, {"no", "yes"}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        for (int truth = 0; truth < 2; truth++)
            if (strcasecmp(text, words[i][truth]) == 0) {
                *value = (uint64_t)truth;
                return true;
            }
    return false;
}

/* Decimal digits, then the end or, with `suffixes`, one of K M G. */
static bool parse_number(const char *text, bool suffixes, uint64_t *value) {
    if (!isdigit((unsigned char)*text)) return false;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno == ERANGE) return false;
    int shift = 0;
    if (suffixes && *end) {
        static const char letters[] = "KMG";
        const char *letter = strchr(letters, toupper((unsigned char)*end));
        if (!letter) return false;
        shift = 10 * (int)(letter - letters + 1);
        end++;
    }
    if (*end || number > UINT64_MAX >> shift) return false;
    *value = (uint64_t)number << shift;
    return true;
}

/* The names of a choice, one after the other; false at the end. */
static bool next_name(const char **at, const char **name, size_t *length) {
    if (!**at) return false;
    *name = *at;
    *length = strcspn(*at, "|");
    *at += *length;
    if (**at) (*at)++;
    return true;
}

static bool parse_choice(const char *text, const char *names, uint64_t *value) {
    const char *name;
    size_t length;
    for (uint64_t i = 0; next_name(&names, &name, &length); i++)
        if (strlen(text) == length && strncasecmp(text, name, length) == 0) {
            *value = i;
            return true;
        }
    return false;
}

static bool parse(const struct row *row, const char *text, uint64_t *value) {
    bool parsed = false;
    switch (row->kind) {
    case FLAG: parsed = parse_flag(text, value); break;
    case CHOICE: return parse_choice(text, row->names, value);
    case COUNT: parsed = parse_number(text, false, value); break;
    case BYTES:
        if (row->high == UINT64_MAX && strcasecmp(text, "unlimited") == 0)
            *value = UINT64_MAX, parsed = true;
        else
            parsed = parse_number(text, true, value);
        break;
    case TEXT: break;
    }
    return parsed && *value >= row->low && *value <= row->high;
}

/* "64M", "unlimited": in the largest unit that divides it. */
static void format_bytes(uint64_t value, char *text, size_t size) {
    static const char *const units[] = {"", "K", "M", "G"};
    int unit = 0;
    if (value == UINT64_MAX) {
        snprintf(text, size, "unlimited");
        return;
    }
    for (; value && unit < 3 && value % 1024 == 0; unit++) value /= 1024;
    snprintf(text, size, "%llu%s", (unsigned long long)value, units[unit]);
}

static void format_value(const struct row *row, uint64_t value, char *text, size_t size) {
    const char *names = row->names, *name = "";
    size_t length = 0;
    switch (row->kind) {
    case FLAG:
    case COUNT: snprintf(text, size, "%llu", (unsigned long long)value); return;
    case BYTES: format_bytes(value, text, size); return;
    case CHOICE:
        while (next_name(&names, &name, &length) && value) value--;
        snprintf(text, size, "%.*s", (int)length, name);
        return;
    case TEXT: return;
    }
}

static void format_accepted(const struct row *row, char *text, size_t size) {
    char low[32], high[32];
    format_bytes(row->low, low, sizeof(low));
    format_bytes(row->high, high, sizeof(high));
    switch (row->kind) {
    case FLAG: snprintf(text, size, "0, 1, off, on, false, true, no or yes"); return;
    case CHOICE: snprintf(text, size, "one of %s", row->names); return;
    case COUNT:
        snprintf(text, size, "a whole number from %llu to %llu", (unsigned long long)row->low,
                 (unsigned long long)row->high);
        return;
    case BYTES: snprintf(text, size, "bytes from %s to %s, with K, M or G", low, high); return;
    case TEXT: return;
    }
}

/* The member's value as a number; not of a text. */
static uint64_t get_number(const struct row *row) {
    const char *member = (const char *)&params + row->offset;
    if (row->kind == FLAG) return *(const bool *)member;
    return row->kind == CHOICE ? (uint64_t) * (const int *)member : *(const uint64_t *)member;
}

static void set_number(const struct row *row, uint64_t value) {
    char *member = (char *)&params + row->offset;
    if (row->kind == FLAG)
        *(bool *)member = value != 0;
    else if (row->kind == CHOICE)
        *(int *)member = (int)value;
    else
        *(uint64_t *)member = value;
}

static void get_text(const struct row *row, char *text, size_t size) {
    if (row->kind == TEXT) {
        const char *value = *(const char *const *)((const char *)&params + row->offset);
        snprintf(text, size, "%s", value ? value : "");
    } else
        format_value(row, get_number(row), text, size);
}

static char *next_complaint(void) {
    return complaint_count < COMPLAINTS ? complaints[complaint_count++] : NULL;
}

static void read_row(int index) {
    const struct row *row = &rows[index];
    const char *text = getenv(row->variable);
    uint64_t value = row->value;
    bool given = text && *text;
    sources[index] = given ? SOURCE_ENVIRONMENT : SOURCE_DEFAULT;
    if (row->kind == TEXT) {
        /* A copy: the process may change its environment later. */
        const char *copy = given ? strdup(text) : NULL;
        *(const char **)((char *)&params + row->offset) = given && !copy ? text : copy;
        return;
    }
    if (given && !parse(row, text, &value)) {
        char accepted[96], used[48], *complaint = next_complaint();
        value = row->value;
        sources[index] = SOURCE_REFUSED;
        format_accepted(row, accepted, sizeof(accepted));
        format_value(row, value, used, sizeof(used));
        if (complaint)
            snprintf(complaint, COMPLAINT, "%s=%.64s is not accepted: want %s; using the default, %s", row->variable,
                     text, accepted, used);
    }
    set_number(row, value);
}

/* Single-character edits that make `b` of `a`; long names count as far. */
static int edit_distance(const char *a, const char *b) {
    enum { LONGEST = 64 };
    int line[LONGEST + 1];
    size_t m = strlen(a), n = strlen(b);
    if (m > LONGEST || n > LONGEST) return LONGEST;
    for (size_t j = 0; j <= n; j++) line[j] = (int)j;
    for (size_t i = 1; i <= m; i++) {
        int diagonal = line[0];
        line[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (line[j] + 1 < best) best = line[j] + 1;
            if (line[j - 1] + 1 < best) best = line[j - 1] + 1;
            diagonal = line[j];
            line[j] = best;
        }
    }
    return line[n];
}

static bool is_known(const char *name) {
    for (int i = 0; i < ROWS; i++)
        if (strcmp(rows[i].variable, name) == 0) return true;
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        if (strncmp(foreign[i], name, strlen(foreign[i])) == 0) return true;
    return false;
}

static void complain_of_unknown(void) {
    for (char **entry = environ; entry && *entry; entry++) {
        char name[80];
        size_t length = strcspn(*entry, "=");
        if (strncmp(*entry, "BEELINE_", 8) != 0) continue;
        snprintf(name, sizeof(name), "%.*s", (int)length, *entry);
        if (is_known(name)) continue;
        int nearest = 0;
        for (int i = 1; i < ROWS; i++)
            if (edit_distance(name, rows[i].variable) < edit_distance(name, rows[nearest].variable)) nearest = i;
        char *complaint = next_complaint();
        if (complaint)
            snprintf(complaint, COMPLAINT, "%s is not a variable of Beeline and does nothing; the nearest is %s", name,
                     rows[nearest].variable);
    }
}

static void read_multicast(void) {
    for (size_t i = 0; i < sizeof(multicast) / sizeof(multicast[0]); i++) {
        const char *text = getenv(multicast[i].variable);
        uint64_t truth = 1; /* what does not parse counts as set */
        if (!text || !*text) continue;
        if (!parse_flag(text, &truth) && parse_number(text, false, &truth)) truth = truth != 0;
        if ((truth != 0) != multicast[i].forbids_when) continue;
        snprintf(multicast_text, sizeof(multicast_text), "%s=%.32s", multicast[i].variable, text);
        return;
    }
}

static void read_all(void) {
    for (int i = 0; i < ROWS; i++) read_row(i);
    complain_of_unknown();
    read_multicast();
    atomic_store_explicit(&ready, true, memory_order_release);
}

const struct bl_params *bl_params(void) {
    if (__builtin_expect(atomic_load_explicit(&ready, memory_order_acquire), 1)) return &params;
    pthread_once(&once, read_all);
    /* After the parameters are there: the log needs them. */
    if (!atomic_exchange(&told, true))
        for (int i = 0; i < complaint_count; i++) bl_warn("%s", complaints[i]);
    return &params;
}

void bl_params_shared(char *text, size_t size) {
    size_t used = 0;
    bl_params();
    if (size) *text = 0;
    for (int i = 0; i < ROWS; i++) {
        bool shared = false;
        for (size_t c = 0; c < sizeof(shared_categories) / sizeof(shared_categories[0]); c++)
            shared = shared || strcmp(rows[i].category, shared_categories[c]) == 0;
        if (!shared || used >= size) continue;
        char value[256];
        get_text(&rows[i], value, sizeof(value));
        used += (size_t)snprintf(text + used, size - used, "%s%s=%s", used ? " " : "", rows[i].variable, value);
    }
}

void bl_params_log(void) {
    bl_params();
    for (int i = 0; i < ROWS; i++) {
        if (sources[i] == SOURCE_DEFAULT) continue;
        char value[256];
        get_text(&rows[i], value, sizeof(value));
        bl_info("%s=%s (%s)", rows[i].variable, value, source_texts[sources[i]]);
    }
}

const char *bl_params_multicast_forbidden(void) {
    bl_params();
    return multicast_text[0] ? multicast_text : NULL;
}
