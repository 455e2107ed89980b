/* What a principal sees: its workspace's sandboxes, or the one that its token is bound to. */
#pragma once

#include "core/exec/exec.h"
#include "core/sandbox/sandbox.h"
#include "core/account/token.h"

/* A sandbox of that workspace, which may have ended. */
bool principal_sees(const struct principal *principal, const char *workspace,
		    const struct id *sandbox);
bool sandbox_visible(const struct principal *principal, const struct sandbox *sandbox);
bool row_visible(const struct principal *principal, const struct sandbox_row *row);
/* The live ones, also those that are being made or deleted and those of one-shot runs, the newest
 * last: the next after `before` (NULL: the first), or NULL. */
struct sandbox *sandbox_next(struct core *core, const struct principal *principal,
			     const struct sandbox *before);
/* Those that have ended, the newest first, `max` at most. each returns false when it has enough,
 * and must not call the store. */
NODISCARD int sandbox_ended_each(struct core *core, const struct principal *principal, uint32_t max,
				 bool (*each)(void *data, const struct sandbox_row *row),
				 void *data, struct error *error);
/* One page of a workspace's, newest first; what the parameters mean: store_sandbox_page(). */
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
/* Makes it ready for this principal: who may write wakes it, who may only read does where the
 * sandbox allows it (as sandbox_ready()). done is not called after sandbox_ready_cancel(). */
struct sandbox_readying;
NODISCARD int sandbox_ready_for(struct sandbox *sandbox, const struct principal *principal,
				SANDBOX_DONE, struct sandbox_readying **ret_readying,
				struct error *error);
void sandbox_ready_cancel(struct sandbox_readying *readying);
/* The common case without a turn of the loop: it is ready, and this counts as activity. */
bool sandbox_ready_now(struct sandbox *sandbox);
/* The execs of a sandbox, of memory and of the store, newest first, with what they have printed so
 * far; those of the daemon's own are left out. each returns false when it has enough, and must not
 * call the store (exec_find() does). */
NODISCARD int exec_list(struct sandbox *sandbox, uint32_t max,
			bool (*each)(void *data, const struct exec_row *row), void *data,
			struct error *error);
/* Those below a key, with the daemon's own where `internal` says so; exec: NULL where it is not in
 * memory. */
NODISCARD int exec_page(struct sandbox *sandbox, uint64_t below_key, bool internal,
			bool (*each)(void *data, const struct exec_row *row, struct exec *exec),
			void *data, struct error *error);
/* Its place among the execs of its sandbox, for exec_page(): 1, 0 where there is no such exec, -1.
 */
NODISCARD int exec_key(struct core *core, const struct id *sandbox, const struct id *exec,
		       uint64_t *ret_key, struct error *error);
/* Was it an exec of one of the sandboxes that ended last? 1: of that one; 0; -1. */
NODISCARD int exec_find_ended(struct core *core, const struct principal *principal,
			      const struct id *exec, struct id *ret_sandbox, struct error *error);
/* May it do what needs that scope? */
bool principal_may(const struct principal *principal, enum scope scope);
/* What a route, a tool or a server of MCP asks of a token, as its table says: the scope, and with
 * `unbound` a token that is not bound to one sandbox. The administration, which is of the whole
 * host, is never for a bound token. FORBIDDEN says what is missing. */
NODISCARD int token_admit(const struct principal *principal, enum scope scope, bool unbound,
			  struct error *error);
const char *scope_name(enum scope scope);
