/* selection.h - which communicators are to be served: a list of patterns of their names (commName of NCCL's configuration) and
 * numbers of ranks.
 *
 *   tp*,ranks=2-4     those whose name begins with tp, and those of 2 to 4 ranks
 *   !ep?,!ranks=8     all but those
 *
 * The first item that matches decides: with "!" the communicator is NCCL's.  If none does it is served where all items have
 * a "!", and else is not.  Patterns are fnmatch's; a communicator without a name is "".
 */
#ifndef BEELINE_SELECTION_H
#define BEELINE_SELECTION_H

#include <stdbool.h>

bool bl_selection_valid(const char *list);

/* list NULL: all are. */
bool bl_selection_has(const char *list, const char *name, int nranks);

#endif
