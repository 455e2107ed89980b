/* The handlers of sandboxes: see routes.c. */
#pragma once

#include "edge/call.h"

/* Answers with its record. sandbox: NULL for a tombstone. */
void reply_sandbox(struct call *call, int status, const struct sandbox_row *row,
		   const struct sandbox *sandbox);
/* The `done` of every change of a sandbox: answers the held call with the record. */
void reply_sandbox_done(void *data, const struct error *error);
/* "running" and so on, INVALID for an unknown state. */
NODISCARD int sandbox_state_parse(const char *text, enum sandbox_state *ret_state,
				  struct error *error);

void sandbox_post(struct call *call);
void sandboxes_get(struct call *call);
void sandbox_get(struct call *call);
void sandbox_patch(struct call *call);
void sandbox_delete_call(struct call *call);
void sandbox_stop_post(struct call *call);
void sandbox_start_post(struct call *call);
void sandbox_pause_post(struct call *call);
void sandbox_resume_post(struct call *call);
void sandbox_hibernate_post(struct call *call);
void sandbox_wake_post(struct call *call);
void sandbox_wait_call(struct call *call);
void sandbox_drain_post(struct call *call);
void sandbox_lifecycle_get(struct call *call);
void sandbox_lifecycle_patch(struct call *call);
void sandboxes_bulk_post(struct call *call);

extern const struct field sandboxes_query[], sandbox_wait_query[];
/* Their bodies. */
extern const struct field sandbox_lifecycle_fields[], sandbox_drain_fields[],
    sandbox_start_fields[], sandboxes_bulk_fields[];
