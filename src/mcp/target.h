/* Finds the sandbox for a tool and makes it ready. */
#pragma once

#include "core/sandbox/sandbox.h"
#include "mcp/request.h"

enum target_flag {
	TARGET_NAMED = 1 << 0,  /* it must be named: terminate, pause, resume */
	TARGET_ASLEEP = 1 << 1, /* unchanged: neither woken nor waited for */
};

/* By id or name; `name` NULL: the one that the token or the URL is bound to, or the only live one
 * (then request->sandbox_chosen is set). Makes it ready (a principal that may write wakes it), then
 * calls act, at once or in a later turn; until then on_cancel is used by this file. Every failure
 * is answered for the model: for an unknown sandbox with the live ones, for an ended one with when
 * and why, without any sandbox with how to create one. */
void target_ready(struct mcp_request *request, const char *name, uint32_t flags,
		  void (*act)(struct mcp_request *request, struct sandbox *sandbox));
/* For a later callback: the sandbox if it still exists, or NULL after the request was answered. */
struct sandbox *target_again(struct mcp_request *request);
/* Answers with its present state, in a line; or with its end. */
void target_reply(struct mcp_request *request);
/* Is a one-shot run meant? Either a new sandbox was requested, or none was named, none is bound and
 * none exists. */
#define TARGET_NEW "new"
bool target_fresh(const struct mcp_request *request, const char *name);
/* The id that the example of a refused call needs: that of the sandbox that the call named, or a
 * live one if there are several or the tool's example names one. NULL: none. */
const char *target_for_example(const struct mcp_request *request);
/* "sandbox abc (demo)" if the caller did not choose it: the beginning of an answer; else "". */
void target_note(const struct mcp_request *request, struct buffer *to);
/* The live sandboxes of the principal, a line each, at most `max`. */
void target_list(const struct mcp_request *request, size_t max, struct buffer *to);
/* One of them, with its line end; and a duration in words. */
void target_line(const struct sandbox_row *row, struct buffer *to);
void target_age(int64_t nanoseconds, struct buffer *to);
