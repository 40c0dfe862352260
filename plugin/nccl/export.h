/* export.h - marks what the library shows: everything else is hidden. */
#ifndef BEELINE_EXPORT_H
#define BEELINE_EXPORT_H

#define BL_EXPORT __attribute__((visibility("default")))

#endif
