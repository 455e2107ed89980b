/* Watches of resources: made for a subscription, notified of changes by their kind, passed on in a
 * separate turn and not too often. Called by mcp/transport/session.c and listen.c; nothing
 * blocks. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "mcp/alarm.h"
#include "mcp/resources/resource.h"
#include "mcp/resources/uri.h"

static struct list watches = {&watches, &watches};

void resource_watch_free(struct resource_watch *watch)
{
	if (!watch)
		return;
	if (watch->freed)
		*watch->freed = true;
	if (watch->state_free)
		watch->state_free(watch->state);
	list_remove(&watch->link);
	alarm_stop(&watch->alarm);
	free(watch->uri);
	free(watch);
}

static void resource_watch_tell(void *data)
{
	struct resource_watch *watch = data;
	bool freed = false, over = watch->over;
	watch->due = false;
	watch->told = uv_now(watch->core->loop);
	watch->freed = &freed;
	watch->updated(watch);
	if (freed)
		return;
	watch->freed = NULL;
	if (!over)
		return;
	if (watch->state_free)
		watch->state_free(TAKE_PTR(watch->state));
	watch->state_free = NULL;
	if (watch->ended)
		watch->ended(watch);
}

void resource_changed(struct resource_watch *watch)
{
	if (watch->due || watch->over)
		return;
	uint64_t now = uv_now(watch->core->loop), next = watch->told + RESOURCE_WATCH_MS;
	watch->due = true;
	alarm_set(watch->alarm, watch->told && next > now ? next - now : 0);
}

void resource_over(struct resource_watch *watch)
{
	resource_changed(watch);
	watch->over = true;
}

static bool resource_watches_too_many(const struct principal *principal)
{
	unsigned count = 0;
	list_each (&watches, node)
		count += strcmp(list_entry(node, struct resource_watch, link)->principal.workspace,
				principal->workspace) == 0;
	return count >= RESOURCE_WATCHES_MAX;
}

struct resource_watch *resource_watch_new(struct core *core, const struct mcp_face *face,
					  const struct principal *principal, const char *uri,
					  void (*updated)(struct resource_watch *watch), void *data,
					  struct error *error)
{
	DONE_VARIABLES struct uri_variables variables = {0};
	const struct resource_kind *kind = resource_find(face, uri, &variables);
	if (!kind)
		error_set(error, ERROR_NO_ROUTE, "there is no resource of that URI");
	else if (!kind->watch)
		error_set(error, ERROR_UNSUPPORTED, "this resource cannot be subscribed to");
	else if (resource_watches_too_many(principal))
		error_set(error, ERROR_BUSY,
			  "there are %d subscriptions already, the most there "
			  "may be",
			  RESOURCE_WATCHES_MAX);
	else {
		struct resource_watch *watch = calloc(1, sizeof(*watch));
		if (!watch)
			abort();
		*watch = (struct resource_watch){
		    .core = core,
		    .principal = *principal,
		    .uri = text_duplicate(uri),
		    .updated = updated,
		    .data = data,
		    .alarm = alarm_new(core->loop, resource_watch_tell, watch),
		};
		list_append(&watches, &watch->link);
		if (kind->watch(watch, variables.values, error) == 0)
			return watch;
		resource_watch_free(watch);
	}
	return NULL;
}
