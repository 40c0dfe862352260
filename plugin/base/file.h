/* file.h - files that are named by a pattern: %p is the process id, %h the host.
 *
 * Threads: any; allocates nothing.  A relative path means the directory where the process was at the first call.
 */
#ifndef BEELINE_FILE_H
#define BEELINE_FILE_H

#include <stdbool.h>

/* A descriptor of the pattern's file, made if it is not there, to be written at its end; -1 and, in *why, the reason, which stays
 * good while errno's texts do.  Jobs of many users log to folders that all may write: what somebody put there in the file's place is
 * not written to, nor waited for. */
int bl_file_open(const char *pattern, const char **why);

/* The whole text of a file, to be freed: one that is all there, not of a pipe, which would keep us waiting.  NULL, and in *why the reason,
 * as above; *absent: there is no file of that name. */
char *bl_file_text(const char *path, bool *absent, const char **why);

#endif
