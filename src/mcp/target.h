/* Which sandbox a tool means, and making it ready. */
#pragma once

#include "core/sandbox/sandbox.h"
#include "mcp/request.h"

enum target_flag {
	TARGET_NAMED = 1 << 0,  /* it must be named: terminate, pause, resume */
	TARGET_ASLEEP = 1 << 1, /* as it is: it is not woken or waited for */
};

/* By id or name; `name` NULL: the one that the token or the URL is bound to, or the only live one
 * (request->sandbox_chosen is set then). Makes it ready (a principal who may write wakes it), then
 * calls act in a later turn or at once; until then on_cancel is ours. Any failure is answered for
 * the model: an unknown one lists those that live, an ended one says when and why, none at all says
 * how to make one. */
void target_ready(struct mcp_request *request, const char *name, uint32_t flags,
		  void (*act)(struct mcp_request *request, struct sandbox *sandbox));
/* In a later callback: the sandbox still, or NULL after the request was answered. */
struct sandbox *target_again(struct mcp_request *request);
/* Answers with what it is now, a line; where it is gone, with that. */
void target_reply(struct mcp_request *request);
/* A one-shot run is meant: a new one was asked for, or no name was given, nothing is bound and
 * there is none. */
#define TARGET_NEW "new"
bool target_fresh(const struct mcp_request *request, const char *name);
/* "sandbox abc (demo)" where it was chosen for the caller: what an answer begins with; else "". */
void target_note(const struct mcp_request *request, struct buffer *to);
/* The live sandboxes of the principal, a line each, at most `max`. */
void target_list(const struct mcp_request *request, size_t max, struct buffer *to);
/* One of them, with its end of line; and a length of time as people say it. */
void target_line(const struct sandbox_row *row, struct buffer *to);
void target_age(int64_t nanoseconds, struct buffer *to);
