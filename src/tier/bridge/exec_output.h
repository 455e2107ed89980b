/* Output of execs in the shim: OUTPUT frames are appended, under credit, to the log descriptors
 * that came with EXEC. So commands continue without a daemon and lose no output. The frames come
 * from the guest and are checked; the logs are the daemon's files. Called by relay.c; never
 * waits, except for the host's disk. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "proto/init_messages.h"

/* Begins a new exec. Takes over the descriptors, also on failure. 0, or -1 with *ret_failure. */
NODISCARD int exec_output_begin(uint64_t key, uint32_t flags, const int logs[2],
				struct failure *ret_failure);
bool exec_output_is_known(uint64_t key);
/* -EBADMSG: the guest violated the protocol (unknown exec or stream, more than its credit). */
NODISCARD int exec_output_append(const struct frame *frame);
/* Returns the totals of the logs, whatever the guest reports. False: the exec is unknown. */
bool exec_output_read_totals(uint64_t key, struct output_totals *ret_totals);

/* Events of an exec. Its record is freed when the daemon has forgotten it and none of its
 * processes is left. */
void exec_output_start_failed(uint64_t key);
void exec_output_ended(uint64_t key, uint32_t left_running);
void exec_output_forget(uint64_t key);
void exec_output_consumed(uint64_t key, const struct output_totals *consumed);
/* LIST was requested; one answer arrived; the last one arrived, so execs that the init did not
 * name are gone. */
void exec_output_list_begin(void);
void exec_output_listed(uint64_t key);
void exec_output_list_end(void);

/* The next exec that gets credit back, or whose log has grown; false: none. Marks it as
 * reported. */
bool exec_output_next_credit(uint64_t *ret_key, uint32_t *ret_credit);
bool exec_output_next_progress(uint64_t *ret_key, struct output_totals *ret_totals);
/* A new daemon connected: report progress of all execs again. */
void exec_output_repeat_progress(void);
/* When to try a log again that had no room on disk, or INT64_MAX. */
int64_t exec_output_retry_at(void);
