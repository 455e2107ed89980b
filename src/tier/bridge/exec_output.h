/* Execs' output in the shim: the logs' descriptors that came with EXEC, and what OUTPUT frames
 * bring, appended to them under credit. So a command writes on although no daemon is there, and
 * nothing of it is lost with one. The frames are the guest's and not believed; the logs are the
 * daemon's files. Called by relay.c; never waits (the logs are on the host's disk and take as long
 * as any file). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "proto/init_messages.h"

/* A new exec. The descriptors are taken over, whatever happens. 0, or -1 with *ret_failure. */
NODISCARD int exec_output_begin(uint64_t key, uint32_t flags, const int logs[2],
				struct failure *ret_failure);
bool exec_output_is_known(uint64_t key);
/* -EBADMSG: the guest broke the rules (no such exec or stream, more than its credit). */
NODISCARD int exec_output_append(const struct frame *frame);
/* Where this is true the totals are the logs', whatever the guest says. */
bool exec_output_read_totals(uint64_t key, struct output_totals *ret_totals);

/* What becomes of it. A record goes when the daemon has forgotten it and no process is left. */
void exec_output_start_failed(uint64_t key);
void exec_output_ended(uint64_t key, uint32_t left_running);
void exec_output_gone(uint64_t key);
void exec_output_forget(uint64_t key);
void exec_output_consumed(uint64_t key, const struct output_totals *consumed);
/* LIST is asked for, its answers, its end: what the init does not know any more is gone. */
void exec_output_list_begin(void);
void exec_output_listed(uint64_t key);
void exec_output_list_end(void);

/* The next exec to which credit is to be returned, or whose log has grown since; false: none. Both
 * count as told. */
bool exec_output_next_credit(uint64_t *ret_key, uint32_t *ret_credit);
bool exec_output_next_progress(uint64_t *ret_key, struct output_totals *ret_totals);
/* A new daemon: it has been told nothing. */
void exec_output_repeat_progress(void);
/* When a log that had no room on the disk is to be tried again, or INT64_MAX. */
int64_t exec_output_retry_at(void);
