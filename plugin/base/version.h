/* version.h - what ranks compare before they work together: the version, and a hash of the sources. */
#ifndef BEELINE_VERSION_H
#define BEELINE_VERSION_H

extern const char bl_build_name[48]; /* "0.1.0-1a2b3c4d5e6f" */

#endif
