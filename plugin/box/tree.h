/* tree.h - where GPUs hang in the machine, as hwloc has it: the PCI bridges above them, NUMA node and package.
 *
 * hwloc is found at run time, and reads the machine (or the XML that HWLOC_XMLFILE names) at the first question.  It is asked by
 * beelineBox alone, not in a job: it takes long.  Threads: any.
 */
#ifndef BEELINE_TREE_H
#define BEELINE_TREE_H

#include "dispatch.h"

/* -1 and "" where it is not known. */
struct bl_place {
    int numa, package;
    char port[16]; /* PCI address of the root port above it: GPUs that share one hang under a switch */
};

/* pci: "0000:1b:00.0". */
struct bl_place bl_tree_place(const char *pci);

/* PCIE_SWITCH, PCIE_HOST, PCIE_SOCKET; PCIE if hwloc cannot tell. */
enum bl_link bl_tree_path(const char *a, const char *b);

const char *bl_tree_version(void); /* of its interface, "2.8"; NULL: there is none, and */
const char *bl_tree_error(void);   /* says why */

#endif
