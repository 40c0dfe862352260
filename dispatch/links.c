/* links.c - the rows of links.def, and what follows from them. */
#include <stdio.h>
#include <string.h>

#include "dispatch.h"

static const struct {
    const char *name, *words;
    enum bl_reason why;
} links[BL_LINKS] = {
#define BL_LINK(link, name, words, why) {name, words, BL_REASON_##why},
#include "links.def"
#undef BL_LINK
};

const char *bl_link_name(enum bl_link link) {
    return links[link].name;
}

const char *bl_link_words(enum bl_link link) {
    return links[link].words;
}

enum bl_link bl_link_find(const char *name) {
    int link = 0;
    while (link < BL_LINKS && strcmp(links[link].name, name) != 0) link++;
    return (enum bl_link)link;
}

enum bl_link bl_link_class(enum bl_link worst, enum bl_link best) {
    return worst > BL_LINK_UNKNOWN && worst < BL_LINK_PARTIAL && best > BL_LINK_PARTIAL ? BL_LINK_PARTIAL : worst;
}

enum bl_reason bl_link_why(enum bl_link link) {
    return links[link].why;
}

void bl_facts_section(const struct bl_facts *facts, char text[BL_SECTION]) {
    char nvlinks[24] = "";
    if (facts->nvlinks) snprintf(nvlinks, sizeof nvlinks, " nvlinks %u", facts->nvlinks);
    snprintf(text, BL_SECTION, "gpu \"%s\" arch %d link %s%s nccl %s", facts->gpu, facts->arch,
             bl_link_name(facts->link), nvlinks, facts->nccl_nvls ? "nvls" : "plain");
}
