/* file.h - files that are named by a pattern: %p is the process id, %h the host.
 *
 * Threads: any; allocates nothing.  A relative path means the directory where the process was at the first call.
 */
#ifndef BEELINE_FILE_H
#define BEELINE_FILE_H

/* A descriptor of the pattern's file, made if it is not there, to be written at its end; -1 and, in *why, the reason, which stays
 * good while errno's texts do.  Jobs of many users log to folders that all may write: what somebody put there in the file's place is
 * not written to, nor waited for. */
int bl_file_open(const char *pattern, const char **why);

#endif
