/* remember.h - the tuning file in the user's cache, where what was measured is kept for later communicators and jobs.
 *
 * Who measures holds a lock beside the file, so that of all jobs and communicators on a box one measures at a time.  Functions that
 * return int return 0, or -1 and bl_why().  Threads: any. */
#ifndef BEELINE_REMEMBER_H
#define BEELINE_REMEMBER_H

/* Makes the folders of `path` where they lack, and takes the lock, for which it does not wait.  *lock is -1 without it. */
int bl_remember_begin(const char *path, int *lock);

/* Adds `section` at the end of the file, by a new file in its place; what the file had stays, unless it has mistakes, or cannot be
 * read, for which nobody would use it.  With the lock. */
int bl_remember(const char *path, const char *section);

void bl_remember_end(int *lock);

#endif
