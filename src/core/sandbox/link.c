/* A sandbox's connection to its init: connects, configures, passes frames on, reconnects with
 * back-off while the processes live; meanwhile requests wait in sandbox_ready(). Called by the
 * transitions and by timers.c; never blocks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/statistics.h"
#include "base/text.h"
#include "core/core_private.h"
#include "core/sandbox/template.h"
#include "proto/tiers.h"

/* After a link that lived this long the first reconnect comes at once. */
#define LINK_GOOD (10 * NSEC_PER_SEC)

static bool variable_same_key(const char *a, const char *b)
{
	size_t length = strcspn(a, "=");
	return strncmp(a, b, length) == 0 && b[length] == '=';
}

static bool packed_has_variable(struct bytes packed, const char *variable)
{
	size_t at = 0;
	const char *other;
	while ((other = packed_next(packed, &at)))
		if (variable_same_key(variable, other))
			return true;
	return false;
}

/* The template's environment, then the user's; each key once. */
static int environment_pack(const struct sandbox_row *row, struct buffer *packed,
			    uint32_t *ret_count)
{
	const struct template *template = template_find(row->template);
	struct bytes base = template ? template->environment : (struct bytes){NULL, 0};
	struct bytes own = {(const uint8_t *)row->environment, row->environment_size};
	const char *variable;
	*ret_count = 0;
	for (size_t at = 0; (variable = packed_next(base, &at));) {
		if (packed_has_variable(own, variable))
			continue;
		if (buffer_append(packed, variable, strlen(variable) + 1) < 0)
			return -1;
		++*ret_count;
	}
	for (size_t at = 0; (variable = packed_next(own, &at)); ++*ret_count)
		if (buffer_append(packed, variable, strlen(variable) + 1) < 0)
			return -1;
	return 0;
}

int link_configure(struct guest_link *link, const struct configure *configure, struct error *error)
{
	DONE_BUFFER struct buffer payload = BUFFER(FRAME_PAYLOAD_MAX);
	if (buffer_reserve(&payload, FRAME_PAYLOAD_MAX) < 0)
		abort();
	struct writer writer = writer_on(payload.data, FRAME_PAYLOAD_MAX);
	configure_write(&writer, configure);
	int64_t size = writer_finish(&writer);
	if (size < 0)
		return error_set(error, ERROR_TOO_LARGE,
				 "environment and mounts do not fit one message to the init");
	return guest_link_send(link, FRAME_CONFIGURE, 0, payload.data, (size_t)size, NULL, 0,
			       error);
}

static int link_send_configure(struct sandbox *sandbox, struct error *error)
{
	const struct sandbox_row *row = &sandbox->row;
	DONE_BUFFER struct buffer environment = BUFFER(EXEC_REQUEST_BYTES_MAX);
	struct configure configure = {.deadline = sandbox->life->deadline};
	/* A new sandbox has its id as host name, like a member of the pool. */
	const char *name = row->name && row->state == SANDBOX_STARTING ? row->name : row->id.text;
	if (text_copy(configure.hostname, sizeof(configure.hostname), name) < 0 ||
	    environment_pack(row, &environment, &configure.environment_count) < 0)
		return error_set(error, ERROR_INTERNAL, "the sandbox's environment is too long");
	configure.environment = (struct bytes){(const uint8_t *)environment.data, environment.size};
	struct sandbox_mount mount;
	for (size_t at = 0;
	     configure.mount_count < SANDBOX_MOUNTS_MAX && sandbox_mount_next(row, &at, &mount);) {
		configure.mounts[configure.mount_count].index = configure.mount_count;
		configure.mounts[configure.mount_count].path =
		    (struct bytes){(const uint8_t *)mount.path, strlen(mount.path)};
		configure.mount_count++;
	}
	return link_configure(sandbox->guest, &configure, error);
}

int sandbox_send(struct sandbox *sandbox, enum frame_type type, uint64_t id, const void *payload,
		 size_t size, const int *fds, size_t fd_count, struct error *error)
{
	if (sandbox->guest)
		return guest_link_send(sandbox->guest, type, id, payload, size, fds, fd_count,
				       error);
	if (sandbox->life->link_error.kind == ERROR_NONE)
		return error_set(error, ERROR_GUEST_GONE, "sandbox `%s` is not connected",
				 sandbox->row.id.text);
	*error = sandbox->life->link_error;
	return -1;
}

void link_tell_deadline(struct guest_link *link, const struct id *id, int64_t deadline)
{
	uint8_t room[8];
	struct writer writer = writer_on(room, sizeof(room));
	struct error error;
	write_i64(&writer, deadline);
	if (guest_link_send(link, FRAME_DEADLINE, 0, room, sizeof(room), NULL, 0, &error) < 0)
		log_debug("sandbox %s: %s", id->text, error.message);
}

void link_send_deadline(struct sandbox *sandbox)
{
	/* Neither the daemon's timer nor the init's ends a paused sandbox. */
	if (sandbox->guest && sandbox->guest_ready)
		link_tell_deadline(sandbox->guest, &sandbox->row.id,
				   sandbox->row.paused_wall != 0 ? 0 : sandbox->life->deadline);
}

void boot_done(struct sandbox *sandbox)
{
	struct transition *transition = &sandbox->life->transition;
	struct error error;
	if (create_origin_facts(sandbox->row.create_origin)->counters_from_zero)
		sandbox->counters = (struct spawn_counters){0};
	sandbox->row.boot_us = (uint64_t)((clock_monotonic() - transition->began) / NSEC_PER_USEC);
	sandbox->row.started_wall = clock_wall();
	if (sandbox_step(sandbox, SANDBOX_EVENT_CONFIGURED, &error) < 0) {
		boot_failed(sandbox, &error);
		return;
	}
	uint32_t generation = transition->generation;
	boot_entered(sandbox);
	create_tell(sandbox, NULL);
	/* If the caller has begun another transition, the waiters wait for that one. */
	if (transition->generation != generation)
		return;
	waiters_finish(&transition->waiters, NULL);
	ready_settle(sandbox);
}

void boot_entered(struct sandbox *sandbox)
{
	struct sandbox_life *life = sandbox->life;
	sandbox->guest_ready = true;
	counters_begin(sandbox);
	life->counters_known = true;
	sandbox_touch(sandbox);
	if (sandbox->row.idle_timeout_seconds)
		timers_wake_at(sandbox->core,
			       clock_boot() + sandbox->row.idle_timeout_seconds * NSEC_PER_SEC);
	bool created = life->transition.created;
	if (created && sandbox->row.create_origin < STATISTICS_ORIGINS)
		histogram_add(&statistics.creates[sandbox->row.create_origin],
			      (int64_t)sandbox->row.boot_us * NSEC_PER_USEC);
	log_info("sandbox %s is %s (%s, %s, %llu ms)", sandbox->row.id.text,
		 created ? "created" : "started", tier_name((enum tier)sandbox->row.tier),
		 create_origin_facts(sandbox->row.create_origin)->name,
		 (unsigned long long)(sandbox->row.boot_us / 1000));
}

void boot_failed(struct sandbox *sandbox, const struct error *error)
{
	struct error copy = *error; /* it may belong to the link, which is freed */
	if (sandbox->row.state == SANDBOX_CREATING)
		create_failed(sandbox, &copy);
	else if (sandbox->row.state == SANDBOX_STARTING)
		start_failed(sandbox, &copy);
}

void link_drop(struct sandbox *sandbox, const struct error *why)
{
	struct sandbox_life *life = sandbox->life;
	struct error error;
	if (why)
		error = *why;
	else
		error_set(&error, ERROR_GUEST_GONE, "sandbox `%s` has ended", sandbox->row.id.text);
	sandbox->guest_ready = false;
	life->resyncing = false;
	life->reconnect_at = 0;
	life->link_error = error;
	if (sandbox->guest) {
		guest_link_free(sandbox->guest);
		sandbox->guest = NULL;
		exec_link_lost(sandbox);
	}
	file_fail_all(sandbox, &error);
}

static void link_reconnect_later(struct sandbox *sandbox)
{
	struct sandbox_life *life = sandbox->life;
	if (life->connected_at != 0 && clock_boot() - life->connected_at > LINK_GOOD)
		life->reconnect_ms = 0;
	life->reconnect_ms = MIN(MAX(life->reconnect_ms * 2, RECONNECT_MIN_MS), RECONNECT_MAX_MS);
	life->reconnect_at = clock_boot() + life->reconnect_ms * NSEC_PER_MSEC;
	timers_wake_at(sandbox->core, life->reconnect_at);
}

/* The init does not answer and has not ended an overdue command. Only the daemon can end the
 * command now, and only together with everything else. In gvisor root inside can stop PID 1. */
static void sandbox_end_unanswering(struct sandbox *sandbox)
{
	log_warning("sandbox %s: its init does not answer, and a command's time-out has passed; it "
		    "is stopped",
		    sandbox->row.id.text);
	stop_by_force(sandbox, SANDBOX_EVENT_INIT_LOST);
}

static void link_closed(void *data, const struct error *error)
{
	struct sandbox *sandbox = data;
	struct error why = *error;
	log_debug("sandbox %s: %s", sandbox->row.id.text, why.message);
	if (state_facts(sandbox->row.state)->booting) {
		boot_failed(sandbox, &why);
		return;
	}
	link_drop(sandbox, &why);
	if (state_facts(sandbox->row.state)->runs && why.kind == ERROR_GUEST_GONE &&
	    exec_any_given_up(sandbox)) {
		sandbox_end_unanswering(sandbox);
		return;
	}
	if (state_facts(sandbox->row.state)->lives) {
		link_reconnect_later(sandbox);
		ready_settle(sandbox);
	}
}

static void boot_configured(struct sandbox *sandbox)
{
	sandbox_add_phase(sandbox, "configure", sandbox->life->transition.phase_began);
	boot_done(sandbox);
}

/* Connected during a boot: CONFIGURE is next, unless an earlier daemon has sent it. */
static void boot_connected(struct sandbox *sandbox, const struct hello_reply *reply)
{
	struct transition *transition = &sandbox->life->transition;
	struct error error;
	sandbox_add_phase(sandbox, "connect", transition->phase_began);
	transition->phase_began = clock_monotonic();
	if (reply->configured) {
		boot_configured(sandbox);
		return;
	}
	if (link_send_configure(sandbox, &error) < 0) {
		boot_failed(sandbox, &error);
		return;
	}
	transition_due_in(sandbox, CONFIGURE_TIMEOUT_MS);
}

static void link_connected(void *data, const struct hello_reply *reply)
{
	struct sandbox *sandbox = data;
	struct sandbox_life *life = sandbox->life;
	struct error error;
	life->connected_at = clock_boot();
	life->refused = 0;
	life->link_error.kind = ERROR_NONE;
	if (state_facts(sandbox->row.state)->booting) {
		boot_connected(sandbox, reply);
		return;
	}
	/* It was deleted or stopped during its boot: only that transition continues. */
	if (!reply->configured &&
	    sandbox_action(sandbox, SANDBOX_EVENT_INIT_LOST) == SANDBOX_ACTION_NONE) {
		link_drop(sandbox, NULL);
		return;
	}
	if (!reply->configured) {
		/* A row in `running` is written after CONFIGURED: this is another init. */
		log_error("sandbox %s: its init has lost its configuration; it is stopped",
			  sandbox->row.id.text);
		error_set(&error, ERROR_GUEST_PROTOCOL, "sandbox `%s` has lost its configuration",
			  sandbox->row.id.text);
		link_drop(sandbox, &error);
		stop_by_force(sandbox, SANDBOX_EVENT_INIT_LOST);
		return;
	}
	if (exec_resync(sandbox, &error) < 0)
		log_warning("sandbox %s: %s", sandbox->row.id.text, error.message);
}

static int link_refused(struct sandbox *sandbox, const struct frame *frame, struct error *error)
{
	struct failure failure;
	if (failure_read(frame, &failure) < 0)
		return error_set(error, ERROR_GUEST_PROTOCOL, "REFUSED does not parse");
	error_from_failure(error, &failure);
	error_prepend(error, "the sandbox's init");
	if (!state_facts(sandbox->row.state)->booting)
		return -1;
	struct error copy = *error;
	boot_failed(sandbox, &copy);
	return 0;
}

static int link_frame_came(void *data, const struct frame *frame, struct error *error)
{
	struct sandbox *sandbox = data;
	bool booting = state_facts(sandbox->row.state)->booting;
	if (frame->type == FRAME_CONFIGURED) {
		if (!booting || sandbox->life->transition.due == 0 || frame->size != 0)
			return error_set(error, ERROR_GUEST_PROTOCOL,
					 "CONFIGURED that was not asked for");
		boot_configured(sandbox);
		return 0;
	}
	if (frame->type == FRAME_REFUSED)
		return link_refused(sandbox, frame, error);
	if (booting)
		return error_set(error, ERROR_GUEST_PROTOCOL,
				 "a frame before the sandbox was configured");
	if (frame->id & OPERATION_ID_BIT)
		return file_handle_frame(sandbox, frame, error);
	return exec_handle_frame(sandbox, frame, error);
}

static void link_drained(void *data)
{
	struct sandbox *sandbox = data;
	exec_drained(sandbox);
	file_drained(sandbox);
}

const struct guest_link_callbacks sandbox_link_callbacks = {
    .connected = link_connected,
    .frame = link_frame_came,
    .closed = link_closed,
    .drained = link_drained,
};

/* Was its init killed while it was paused? The kernel closes the sockets of such an init, then
 * waits for every process of its pid namespace; frozen processes of cgroup v1 do not end. So no
 * process listens any more, but SPAWN_ENDED does not come until the rest is killed and thawed. */
static bool sandbox_dying_frozen(const struct sandbox *sandbox)
{
	return sandbox->row.state == SANDBOX_PAUSED && sandbox->life->refused >= REFUSED_MAX;
}

static void sandbox_end_frozen(struct sandbox *sandbox)
{
	log_warning("sandbox %s: its init has ended while it was paused; the rest is ended too",
		    sandbox->row.id.text);
	stop_by_force(sandbox, SANDBOX_EVENT_INIT_LOST);
}

void link_connect(struct sandbox *sandbox)
{
	struct sandbox_life *life = sandbox->life;
	char path[GUEST_SOCKET_PATH_MAX];
	struct error error;
	life->reconnect_at = 0;
	life->transition.phase_began = clock_monotonic();
	if (sandbox->guest || sandbox->core->private->let_go)
		return;
	int result = guest_socket_path(sandbox->core->config.runtime, &sandbox->row.id, path);
	if (result < 0)
		error_set_errno(&error, ERROR_INTERNAL, result, "the path of the init's socket");
	else
		result = guest_link_open(sandbox->core->loop, path, CONNECT_TIMEOUT_MS,
					 &sandbox_link_callbacks, sandbox, &sandbox->guest, &error);
	if (result == 0) {
		guest_link_set_share(sandbox->guest,
				     core_share_of_guests(sandbox->core, sandbox->row.workspace));
		return;
	}
	sandbox->guest = NULL;
	life->link_error = error;
	life->refused = error.errnum == ECONNREFUSED ? life->refused + 1 : 0;
	if (state_facts(sandbox->row.state)->booting)
		boot_failed(sandbox, &error);
	else if (sandbox_dying_frozen(sandbox))
		sandbox_end_frozen(sandbox);
	else
		link_reconnect_later(sandbox);
}
