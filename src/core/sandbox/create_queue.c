/* See create_queue.h. Called by sandbox_create(), by everything that makes room and by timers.c;
 * blocks for the store only. */
#include "core/sandbox/create_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/fd.h"
#include "core/account/admission.h"
#include "core/account/budget.h"
#include "core/core_private.h"

/* No event says that the host has free memory again. */
#define LOOK_AGAIN (100 * NSEC_PER_MSEC)

struct queued_create {
	struct list link; /* in workspace->queue */
	struct workspace *workspace;
	struct create_request create; /* its principal and mounts are the next two */
	struct principal principal;
	struct mount_spec mounts[SANDBOX_MOUNTS_MAX]; /* only their descriptors, which are owned */
	int64_t since, until;                         /* CLOCK_BOOTTIME */
	struct error why;                             /* the last refusal */
};

static void queued_free(struct queued_create *queued)
{
	if (!list_empty(&queued->link)) {
		list_remove(&queued->link);
		queued->workspace->queue_length--;
	}
	for (size_t i = 0; i < queued->create.mount_count; i++)
		fd_close(&queued->mounts[i].fd);
	sandbox_row_done(&queued->create.row);
	free(queued);
}

static uint32_t queue_length_of_all(const struct core *core)
{
	uint32_t length = 0;
	list_each (&core->private->workspaces, node)
		length += list_entry(node, struct workspace, link)->queue_length;
	return length;
}

static int sandbox_count_check(const struct core *core, struct error *error)
{
	uint32_t maximum = core->config.sandboxes_max;
	maximum = maximum == 0 ? SANDBOX_COUNT_MAX : MIN(maximum, SANDBOX_COUNT_MAX);
	if (core->sandbox_count < maximum)
		return 0;
	error_set(error, ERROR_BUSY,
		  "there are %u sandboxes, the most that this host is configured for; remove some, "
		  "or try again later",
		  core->sandbox_count);
	error->retry_after_ms = 1000;
	return -1;
}

int create_admit(struct core *core, struct workspace *workspace, const struct limits *limits,
		 bool *ret_never, struct error *error)
{
	*ret_never = false;
	if (budget_check_create(core, workspace, limits, ret_never, error) < 0 ||
	    sandbox_count_check(core, error) < 0)
		return -1;
	return admission_check(core, limits, error);
}

static int queued_keep_mounts(struct queued_create *queued, const struct create_request *create,
			      struct error *error)
{
	for (size_t i = 0; i < create->mount_count; i++) {
		queued->mounts[i].fd = fcntl(create->mounts[i].fd, F_DUPFD_CLOEXEC, 0);
		if (queued->mounts[i].fd < 0)
			return error_set_errno(error, error_kind_of_errno(errno), errno,
					       "mounts: entry %zu", i);
		queued->create.mount_count++;
	}
	return 0;
}

int create_queue_add(struct create_request *create, uint32_t wait_ms, const struct error *why,
		     struct error *error)
{
	struct core *core = create->core;
	struct workspace *workspace = workspace_get(core, create->row.workspace);
	if (workspace->queue_length >= core->config.queue_max ||
	    queue_length_of_all(core) >= QUEUE_ALL_MAX) {
		error_set(error, ERROR_QUEUE_FULL,
			  "%u creates of workspace `%s` wait already, the most that may; %s",
			  workspace->queue_length, workspace->name, why->message);
		error->retry_after_ms = why->retry_after_ms;
		return -1;
	}
	struct queued_create *queued = calloc(1, sizeof(*queued));
	if (!queued)
		abort();
	list_init(&queued->link);
	queued->workspace = workspace;
	if (queued_keep_mounts(queued, create, error) < 0) {
		queued_free(queued);
		return -1;
	}
	queued->principal = *create->principal;
	queued->create = *create;
	queued->create.principal = &queued->principal;
	queued->create.mounts = queued->mounts;
	create->row = (struct sandbox_row){0};
	queued->since = clock_boot();
	queued->until = queued->since + wait_ms * NSEC_PER_MSEC;
	queued->why = *why;
	list_append(&workspace->queue, &queued->link);
	workspace->queue_length++;
	timers_wake_at(core, MIN(queued->until, queued->since + LOOK_AGAIN));
	return 0;
}

int create_queue_behind(const struct workspace *workspace, struct error *error)
{
	*error = list_entry(workspace->queue.next, struct queued_create, link)->why;
	return error_prepend(error, "%u creates wait before this one", workspace->queue_length);
}

static struct queued_create *queued_find(const struct workspace *workspace, const void *data)
{
	list_each (&workspace->queue, node) {
		struct queued_create *queued = list_entry(node, struct queued_create, link);
		if (queued->create.data == data)
			return queued;
	}
	return NULL;
}

bool create_queue_leave(struct core *core, const void *data)
{
	list_each (&core->private->workspaces, node) {
		struct queued_create *queued =
		    queued_find(list_entry(node, struct workspace, link), data);
		if (!queued)
			continue;
		queued_free(queued);
		return true;
	}
	return false;
}

static void queued_fail(struct queued_create *queued, const struct error *error)
{
	void (*done)(void *, struct sandbox *, const struct error *) = queued->create.done;
	void *data = queued->create.data;
	queued_free(queued);
	done(data, NULL, error);
}

/* Its times count from now, not from the request. */
static void queued_begin(struct queued_create *queued)
{
	struct sandbox_row *row = &queued->create.row;
	int64_t waited = clock_boot() - queued->since;
	struct error error;
	row->created_wall += waited;
	row->active_wall += waited;
	row->deadline_wall += row->deadline_wall != 0 ? waited : 0;
	queued->create.queued_ms = (uint32_t)MAX(waited / NSEC_PER_MSEC, 1);
	if (create_begin(&queued->create, &error) < 0)
		queued_fail(queued, &error);
	else
		queued_free(queued);
}

/* Begins the first create of a workspace that may begin; the workspace then goes behind the others.
 * A create for which the host has no room keeps its place and delays only its own workspace. */
static bool queue_serve_one(struct core *core)
{
	list_each (&core->private->workspaces, node) {
		struct workspace *workspace = list_entry(node, struct workspace, link);
		bool never;
		if (list_empty(&workspace->queue))
			continue;
		struct queued_create *queued =
		    list_entry(workspace->queue.next, struct queued_create, link);
		if (create_admit(core, workspace, &queued->create.row.limits, &never,
				 &queued->why) == 0) {
			list_remove(&workspace->link);
			list_append(&core->private->workspaces, &workspace->link);
			queued_begin(queued);
			return true;
		}
	}
	return false;
}

static void queue_serve(void *data)
{
	struct core *core = data;
	core->private->queue_turning = false;
	if (core->private->stopping || core->private->let_go)
		return;
	while (queue_serve_one(core))
		;
}

void create_queue_turn(struct core *core)
{
	if (core->private->queue_turning || queue_length_of_all(core) == 0)
		return;
	core->private->queue_turning = true;
	core_later(core, queue_serve, core);
}

/* Computes why it waits now. False: it is the first and there is room. */
static bool queued_still_waits(struct core *core, const struct workspace *workspace,
			       struct queued_create *queued, uint32_t position)
{
	const struct queued_create *first =
	    list_entry(workspace->queue.next, struct queued_create, link);
	bool never;
	if (create_admit(core, queued->workspace, &queued->create.row.limits, &never,
			 &queued->why) < 0)
		return true;
	if (first == queued)
		return false;
	queued->why = first->why;
	error_prepend(&queued->why, "%u creates wait before this one", position - 1);
	return true;
}

static int64_t queue_time_out(struct core *core, struct workspace *workspace, int64_t now)
{
	uint32_t position = 0;
	int64_t next = INT64_MAX;
	list_each (&workspace->queue, node) {
		struct queued_create *queued = list_entry(node, struct queued_create, link);
		position++;
		if (queued->until > now) {
			next = MIN(next, queued->until);
			continue;
		}
		if (!queued_still_waits(core, workspace, queued, position)) {
			position--;
			queued_begin(queued);
			continue;
		}
		struct error error = queued->why;
		error_prepend(&error, "waited %lld ms, at place %u of the queue",
			      (long long)((now - queued->since) / NSEC_PER_MSEC), position);
		error.queue_position = position--;
		queued_fail(queued, &error);
	}
	return next;
}

int64_t create_queue_tend(struct core *core, int64_t now)
{
	int64_t next = INT64_MAX;
	if (queue_length_of_all(core) == 0)
		return next;
	while (queue_serve_one(core))
		;
	list_each (&core->private->workspaces, node)
		next =
		    MIN(next, queue_time_out(core, list_entry(node, struct workspace, link), now));
	return next == INT64_MAX ? next : MIN(next, now + LOOK_AGAIN);
}

void create_queue_fail_all(struct core *core, const struct error *error)
{
	list_each (&core->private->workspaces, node) {
		struct workspace *workspace = list_entry(node, struct workspace, link);
		while (!list_empty(&workspace->queue))
			queued_fail(list_entry(workspace->queue.next, struct queued_create, link),
				    error);
	}
}

bool create_queue_empty(const struct core *core)
{
	return queue_length_of_all(core) == 0;
}
