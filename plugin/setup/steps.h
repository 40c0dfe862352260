/* steps.h - what the steps of set-up do, in the order of build.c, which says what holds of them all.  An act that a resuming
 * communicator does, too, has its staging again, filled as at first, where it was. */
#ifndef BEELINE_STEPS_H
#define BEELINE_STEPS_H

#include "member.h"

/* 0, or -1 and bl_why(). */
typedef int bl_act(struct bl_member *member);
/* For as long as the communicator lives. */
typedef void bl_undo(struct bl_comm *comm);
/* Equal on all ranks. */
typedef bool bl_condition(const struct bl_member *member);

/* introduce.c: who is there, who are we, and can all of us?  All members greet the other ranks, and hear them; true if all
 * ranks are there, and well.  To know oneself is to find the context: none is current before. */
bool bl_introduce_meet(struct bl_member **members, int count);
bl_act bl_introduce_know_oneself, bl_introduce_send, bl_introduce_receive, bl_introduce_judge, bl_introduce_links;
bl_undo bl_introduce_undo;

/* tables.c: rank 0 makes the tables of routes, without multicast and with it, and all take them over.  The staging has what
 * they use, and no more. */
struct bl_facts bl_tables_facts(const struct bl_identity *all, int nranks, enum bl_link link,
                                const struct bl_staging_layout *layout);
/* Whether a tuning file of this rank has the word. */
bool bl_tables_mention(const char *word);
/* multicast: may be NULL.  tell: what is wrong with settings and files. */
void bl_tables_make(const struct bl_identity *all, struct bl_facts facts, bool tell, struct bl_table *plain,
                    struct bl_table *multicast);
bl_act bl_tables_send, bl_tables_receive, bl_tables_trim;

/* tune.c: thresholds that nobody has measured are measured now.  Wanted: rank 0 asks for it; well: nothing is in its way so far.  What fails
 * here ends the measuring, on all ranks. */
bool bl_tune_permitted(const struct bl_identity *all, int nranks);
bl_condition bl_tune_wanted, bl_tune_well;
bl_act bl_tune_plan, bl_tune_send_id, bl_tune_receive_id;
bool bl_tune_open(struct bl_member **members, int count);
bool bl_tune_measure(struct bl_member **members, int count);
bool bl_tune_close(struct bl_member **members, int count);
void bl_tune_release(struct bl_member *member);

/* The routes that the self-test is to look at; NULL: those of the communicator. */
const struct bl_table *bl_tune_candidates(const struct bl_member *member);

/* share.c: kernels, staging that all ranks map, the page of the switch; the communicator's arguments, events and streams. */
bl_act bl_share_create, bl_share_export, bl_share_send, bl_share_receive;
bl_undo bl_share_undo;
bl_condition bl_share_has_switch;
bl_act bl_share_switch_send, bl_share_switch_receive, bl_share_fill, bl_share_prepare_trial;

/* trial.c: the self-test of a member, with the blocks and the time that set-up has for it.  Prepared as bl_selftest_prepare
 * does. */
int bl_trial_prepare(struct bl_member *member, enum bl_selftest_kind kind, const struct bl_kernel_args *args,
                     const struct bl_table *table);
bl_act bl_trial_launch, bl_trial_check;

/* nvls.c: the ranks of a communicator that is otherwise ready come to share a multicast object.  What fails here ends
 * multicast on all ranks, and the communicator is served without; only a peer that is gone ends both.  Wanted: rank 0 asks
 * for it; well: nothing is in its way so far.  To settle has launches use it, or undoes it; not yet where its kernels have
 * run, since a peer's may run still. */
bl_condition bl_nvls_wanted, bl_nvls_well;
bl_act bl_nvls_create, bl_nvls_send, bl_nvls_receive, bl_nvls_join, bl_nvls_bind, bl_nvls_map, bl_nvls_prepare_trial,
    bl_nvls_settle;
bl_undo bl_nvls_undo;

/* Behind the last vote: a rank whose memory others may reach by multicast keeps its sockets (nvls_release.h). */
void bl_nvls_keep_sockets(struct bl_member *member);

#endif
