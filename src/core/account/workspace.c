/* Workspaces by name. See workspace.h. Called by the rest of core/ and by the edges; never blocks.
 * The resources that a workspace holds are summed from its sandboxes on each request: there are at
 * most a few hundred, and a sum cannot drift. */
#include "core/account/workspace.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "core/core_private.h"

struct workspace *workspace_find(const struct core *core, const char *name)
{
	list_each (&core->private->workspaces, node) {
		struct workspace *workspace = list_entry(node, struct workspace, link);
		if (strcmp(workspace->name, name) == 0)
			return workspace;
	}
	return NULL;
}

struct workspace *workspace_get(struct core *core, const char *name)
{
	struct workspace *workspace = workspace_find(core, name);
	if (workspace)
		return workspace;
	workspace = calloc(1, sizeof(*workspace));
	if (!workspace || text_copy(workspace->name, sizeof(workspace->name), name) < 0)
		abort();
	for (size_t what = 0; what < BUDGET_WHATS; what++)
		for (size_t period = 0; period < PERIODS; period++)
			workspace->own[what][period] = BUDGET_NOT_SET;
	list_init(&workspace->queue);
	list_append(&core->private->workspaces, &workspace->link);
	return workspace;
}

void workspaces_free(struct core *core)
{
	while (!list_empty(&core->private->workspaces)) {
		struct workspace *workspace =
		    list_entry(core->private->workspaces.next, struct workspace, link);
		list_remove(&workspace->link);
		free(workspace);
	}
}

void workspace_now(const struct core *core, const struct workspace *workspace,
		   struct workspace_now *ret_now)
{
	struct workspace_now now = {0};
	list_each (&core->sandboxes, node) {
		const struct sandbox *sandbox = list_entry(node, struct sandbox, link);
		const struct limits *limits = &sandbox->row.limits;
		const struct state_facts *facts = state_facts(sandbox->row.state);
		if (sandbox->life->workspace != workspace || facts->going)
			continue;
		now.disk += limits->disk;
		if (!facts->holds)
			continue;
		now.sandboxes++;
		now.cpu_millis += limits->cpu_millis;
		now.memory += limits->memory;
	}
	*ret_now = now;
}
