/* The sandboxes that a principal may see: those of its workspace, or the one that its token is
 * bound to. */
#pragma once

#include "core/exec/exec.h"
#include "core/sandbox/sandbox.h"
#include "core/account/token.h"

/* Is it a sandbox that this principal may see? It may have ended. */
bool principal_sees(const struct principal *principal, const char *workspace,
		    const struct id *sandbox);
bool sandbox_visible(const struct principal *principal, const struct sandbox *sandbox);
bool row_visible(const struct principal *principal, const struct sandbox_row *row);
/* Live sandboxes, newest last, including those that are being made or deleted and those of one-shot
 * runs, but without what is left of a run that is over. Returns the next one after `before` (NULL:
 * the first), or NULL. */
struct sandbox *sandbox_next(struct core *core, const struct principal *principal,
			     const struct sandbox *before);
/* Ended sandboxes, newest first, at most `max`. each returns false to stop, and must not call the
 * store. */
NODISCARD int sandbox_ended_each(struct core *core, const struct principal *principal, uint32_t max,
				 bool (*each)(void *data, const struct sandbox_row *row),
				 void *data, struct error *error);
/* One page of a workspace's sandboxes, newest first; store_sandbox_page() explains the
 * parameters. */
struct sandbox_page {
	bool live_only;
	uint32_t state, limit;
	const char *name;
	int64_t before_wall;
	struct id before;
};
NODISCARD int sandbox_page(struct core *core, const char *workspace,
			   const struct sandbox_page *page,
			   bool (*each)(void *data, const struct sandbox_row *row), void *data,
			   struct error *error);
/* Makes the sandbox ready for this principal: a principal that may write wakes it, and a read-only
 * one wakes it if the sandbox allows that (as sandbox_ready()). done is not called after
 * sandbox_ready_cancel(). */
struct sandbox_readying;
NODISCARD int sandbox_ready_for(struct sandbox *sandbox, const struct principal *principal,
				SANDBOX_DONE, struct sandbox_readying **ret_readying,
				struct error *error);
void sandbox_ready_cancel(struct sandbox_readying *readying);
/* The common case without a turn of the loop: it is ready, and this counts as activity. */
bool sandbox_ready_now(struct sandbox *sandbox);
/* The execs of a sandbox, from memory and the store, newest first, with their output so far;
 * without the daemon's own execs. each returns false to stop, and must not call the store
 * (exec_find() does). */
NODISCARD int exec_list(struct sandbox *sandbox, uint32_t max,
			bool (*each)(void *data, const struct exec_row *row), void *data,
			struct error *error);
/* The execs below a key; with `internal` also the daemon's own. exec: NULL if it is not in
 * memory. */
NODISCARD int exec_page(struct sandbox *sandbox, uint64_t below_key, bool internal,
			bool (*each)(void *data, const struct exec_row *row, struct exec *exec),
			void *data, struct error *error);
/* The position of an exec in its sandbox, for exec_page(). Returns 1, 0 if there is no such exec,
 * -1. */
NODISCARD int exec_key(struct core *core, const struct id *sandbox, const struct id *exec,
		       uint64_t *ret_key, struct error *error);
/* Does the exec belong to one of the sandboxes that ended last? 1: *ret_sandbox is that sandbox; 0;
 * -1. */
NODISCARD int exec_find_ended(struct core *core, const struct principal *principal,
			      const struct id *exec, struct id *ret_sandbox, struct error *error);
/* Does the principal have that scope? */
bool principal_may(const struct principal *principal, enum scope scope);
/* Checks what the table of a route, a tool or an MCP server requires of a token: the scope, and
 * with `unbound` a token that is not bound to one sandbox. A bound token can never use the
 * administration, which concerns the whole host. The FORBIDDEN error says what is missing. */
NODISCARD int token_admit(const struct principal *principal, enum scope scope, bool unbound,
			  struct error *error);
const char *scope_name(enum scope scope);
