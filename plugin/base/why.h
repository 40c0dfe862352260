/* why.h - why a call has failed: one text a thread, as errno is one number.
 *
 * A function that may fail returns bl_fail(...), or hands on the -1 of one that did; whoever reports it says bl_why().
 */
#ifndef BEELINE_WHY_H
#define BEELINE_WHY_H

/* Returns -1.  bl_why() may be among the arguments. */
int bl_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Of the last bl_fail of this thread. */
const char *bl_why(void);

#endif
