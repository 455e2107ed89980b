/* See access.h: visible sandboxes, rights, waking, and the list of a sandbox's execs. Called by
 * every edge, on the loop; blocks for the store where execs are listed. */
#include "core/account/access.h"

#include <stdlib.h>
#include <string.h>

#include "core/core_private.h"

bool principal_sees(const struct principal *principal, const char *workspace,
		    const struct id *sandbox)
{
	return strcmp(principal->workspace, workspace) == 0 &&
	       (!id_is_set(&principal->sandbox) || id_equal(&principal->sandbox, sandbox));
}

bool row_visible(const struct principal *principal, const struct sandbox_row *row)
{
	return principal_sees(principal, row->workspace, &row->id);
}

bool sandbox_visible(const struct principal *principal, const struct sandbox *sandbox)
{
	return row_visible(principal, &sandbox->row);
}

struct sandbox *sandbox_next(struct core *core, const struct principal *principal,
			     const struct sandbox *before)
{
	struct list *node = before ? before->link.next : core->sandboxes.next;
	for (; node != &core->sandboxes; node = node->next) {
		struct sandbox *sandbox = list_entry(node, struct sandbox, link);
		bool over =
		    sandbox->row.state == SANDBOX_DELETING && sandbox->row.options & OPTION_ONESHOT;
		if (!over && sandbox_visible(principal, sandbox))
			return sandbox;
	}
	return NULL;
}

struct ended_listing {
	const struct principal *principal;
	bool (*each)(void *data, const struct sandbox_row *row);
	void *data;
};

static bool ended_sandbox_each(void *data, const struct sandbox_row *row)
{
	struct ended_listing *listing = data;
	return !row_visible(listing->principal, row) || listing->each(listing->data, row);
}

int sandbox_ended_each(struct core *core, const struct principal *principal, uint32_t max,
		       bool (*each)(void *data, const struct sandbox_row *row), void *data,
		       struct error *error)
{
	struct ended_listing listing = {principal, each, data};
	return store_sandbox_page(core->store, principal->workspace, false, SANDBOX_ENDED, NULL, 0,
				  NULL, max, ended_sandbox_each, &listing, error);
}

int sandbox_page(struct core *core, const char *workspace, const struct sandbox_page *page,
		 bool (*each)(void *data, const struct sandbox_row *row), void *data,
		 struct error *error)
{
	return store_sandbox_page(core->store, workspace, page->live_only,
				  (enum sandbox_state)page->state, page->name, page->before_wall,
				  &page->before, page->limit, each, data, error);
}

int exec_key(struct core *core, const struct id *sandbox, const struct id *exec, uint64_t *ret_key,
	     struct error *error)
{
	struct exec_row row = {0};
	int found = store_exec_get(core->store, sandbox, exec, &row, error);
	if (found > 0)
		*ret_key = row.key;
	exec_row_done(&row);
	return found;
}

/* --- scopes --- */

const char *scope_name(enum scope scope)
{
	return scope == SCOPE_READ    ? "sandboxes:read"
	       : scope == SCOPE_WRITE ? "sandboxes:write"
				      : "admin";
}

bool principal_may(const struct principal *principal, enum scope scope)
{
	uint32_t enough = scope == SCOPE_READ    ? SCOPE_READ | SCOPE_WRITE | SCOPE_ADMIN
			  : scope == SCOPE_WRITE ? SCOPE_WRITE | SCOPE_ADMIN
						 : SCOPE_ADMIN;
	return principal->scopes & enough;
}

int token_admit(const struct principal *principal, enum scope scope, bool unbound,
		struct error *error)
{
	if (!principal_may(principal, scope))
		return error_set(error, ERROR_FORBIDDEN,
				 "this needs the scope `%s`; `caisson token create --scope %s` "
				 "makes a token that has it",
				 scope_name(scope), scope_name(scope));
	if ((unbound || scope == SCOPE_ADMIN) && id_is_set(&principal->sandbox))
		return error_set(error, ERROR_FORBIDDEN, "this token is for one sandbox only");
	return 0;
}

/* --- ready --- */

struct sandbox_readying {
	void (*done)(void *data, const struct error *error); /* NULL: cancelled */
	void *data;
};

static void sandbox_readying_done(void *data, const struct error *error)
{
	struct sandbox_readying *readying = data;
	if (readying->done)
		readying->done(readying->data, error);
	free(readying);
}

bool sandbox_ready_now(struct sandbox *sandbox)
{
	if (!sandbox_may_exec(sandbox))
		return false;
	sandbox_touch(sandbox);
	return true;
}

int sandbox_ready_for(struct sandbox *sandbox, const struct principal *principal, SANDBOX_DONE,
		      struct sandbox_readying **ret_readying, struct error *error)
{
	struct sandbox_readying *readying = malloc(sizeof(*readying));
	if (!readying)
		abort();
	*readying = (struct sandbox_readying){.done = done, .data = data};
	bool wake = principal_may(principal, SCOPE_WRITE);
	if (sandbox_ready(sandbox, principal, wake, sandbox_readying_done, readying, error) < 0) {
		free(readying);
		return -1;
	}
	*ret_readying = readying;
	return 0;
}

void sandbox_ready_cancel(struct sandbox_readying *readying)
{
	readying->done = NULL;
}

/* --- execs --- */

struct exec_listing {
	struct sandbox *sandbox;
	bool internal;
	bool (*each)(void *data, const struct exec_row *row, struct exec *exec);
	void *data;
};

static struct exec *exec_find_live(struct sandbox *sandbox, const struct id *id)
{
	list_each (&sandbox->execs, node) {
		struct exec *exec = list_entry(node, struct exec, link);
		if (id_equal(&exec->row.id, id))
			return exec;
	}
	return NULL;
}

static bool exec_listing_add(void *data, const struct exec_row *stored)
{
	struct exec_listing *listing = data;
	/* The copy in memory is newer if the store could not be written. */
	struct exec *exec = exec_find_live(listing->sandbox, &stored->id);
	struct exec_row row = exec ? exec->row : *stored;
	if (!listing->internal && exec_internal(&row))
		return true;
	if (exec) {
		row.out_total = exec_total(exec, EXEC_STDOUT);
		row.err_total = exec_total(exec, EXEC_STDERR);
	}
	return listing->each(listing->data, &row, exec);
}

int exec_page(struct sandbox *sandbox, uint64_t below_key, bool internal,
	      bool (*each)(void *data, const struct exec_row *row, struct exec *exec), void *data,
	      struct error *error)
{
	struct exec_listing listing = {sandbox, internal, each, data};
	return store_exec_from(sandbox->core->store, &sandbox->row.id, below_key, true,
			       exec_listing_add, &listing, error);
}

struct exec_first {
	uint32_t left;
	bool (*each)(void *data, const struct exec_row *row);
	void *data;
};

static bool exec_first_add(void *data, const struct exec_row *row, struct exec *exec)
{
	struct exec_first *first = data;
	(void)exec;
	return first->left-- > 0 && first->each(first->data, row);
}

int exec_list(struct sandbox *sandbox, uint32_t max,
	      bool (*each)(void *data, const struct exec_row *row), void *data, struct error *error)
{
	struct exec_first first = {max, each, data};
	return exec_page(sandbox, UINT64_MAX, false, exec_first_add, &first, error);
}

#define ENDED_LOOKED 32 /* how many of the sandboxes that ended last are searched */

struct ended_ids {
	struct id ids[ENDED_LOOKED];
	size_t count;
};

static bool ended_sandbox_take(void *data, const struct sandbox_row *row)
{
	struct ended_ids *ended = data;
	ended->ids[ended->count++] = row->id;
	return ended->count < ENDED_LOOKED;
}

int exec_find_ended(struct core *core, const struct principal *principal, const struct id *exec,
		    struct id *ret_sandbox, struct error *error)
{
	struct ended_ids ended = {0};
	int found =
	    sandbox_ended_each(core, principal, ENDED_LOOKED, ended_sandbox_take, &ended, error);
	for (size_t i = 0; i < ended.count && found == 0; i++) {
		struct exec_row row = {0};
		found = store_exec_get(core->store, &ended.ids[i], exec, &row, error);
		if (found > 0) {
			exec_row_done(&row);
			*ret_sandbox = ended.ids[i];
		}
	}
	return found;
}
