/* The fake spawner and the test's directories; the fake inits are in fake_init.c. */
#include "fake_host.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/clock_advance.h"
#include "base/fd.h"
#include "base/text.h"
#include "fake_init.h"
#include "proto/tiers.h"
#include "test.h"

#define UNTIL_MS 20000

const struct principal fake_principal = {
    .workspace = "default", .scopes = SCOPE_READ | SCOPE_WRITE, .local = true};

static void send_message(struct fake_host *host, const struct spawn_message *message)
{
	ssize_t sent = fd_send(host->spawner_fd, message, sizeof(*message), NULL, 0);
	if (sent < 0 && host->spawner_fd >= 0)
		test_fail(__FILE__, __LINE__, "the fake spawner cannot send: %zd", sent);
}

struct fake_init *fake_init_of(struct fake_host *host, const struct id *id)
{
	for (size_t i = 0; i < FAKE_INITS_MAX; i++)
		if (host->inits[i].used && id_equal(&host->inits[i].id, id))
			return &host->inits[i];
	return NULL;
}

unsigned fake_existing(const struct fake_host *host)
{
	unsigned count = 0;
	for (size_t i = 0; i < FAKE_INITS_MAX; i++)
		count += host->inits[i].used;
	return count;
}

static void boot(struct fake_host *host, const struct spawn_message *message,
		 struct spawn_message *reply)
{
	struct fake_init *init = fake_init_of(host, &message->sandbox);
	for (size_t i = 0; i < FAKE_INITS_MAX && !init; i++) {
		if (host->inits[i].used || host->inits[i].listening || host->inits[i].connected)
			continue;
		init = &host->inits[i];
		fake_init_reset(init, host, &message->sandbox);
	}
	host->booted = message->create;
	init->refuse = host->refuse_next;
	init->silent = host->silent_next;
	fake_init_listen(init);
	reply->created.pid = 42;
	reply->created.phase_count = 2;
	reply->created.phases[0] = (struct spawn_phase){"namespaces", 11};
	reply->created.phases[1] = (struct spawn_phase){"mounts", 22};
	reply->created.limit_reasons[LIMIT_DISK] = LIMIT_NO_DISK_MECHANISM;
	(void)!text_copy(reply->created.rootfs_digest, sizeof(reply->created.rootfs_digest),
			 host->rootfs_digest);
}

static void list(struct fake_host *host)
{
	for (size_t i = 0; i < FAKE_INITS_MAX; i++) {
		struct fake_init *init = &host->inits[i];
		if (!init->used)
			continue;
		struct spawn_message listed = {
		    .type = SPAWN_LISTED,
		    .sandbox = init->id,
		    .listed = {.tier = TIER_NAMESPACE,
			       .running = init->running,
			       .frozen = init->frozen,
			       .pid = 42,
			       .limits = host->limits},
		};
		send_message(host, &listed);
	}
}

static struct spawn_counters counters_of(const struct fake_host *host)
{
	return (struct spawn_counters){.oom_kills = host->oom_kills,
				       .cpu_ns = host->cpu_ns,
				       .known[KNOWN_CPU] = host->cpu_ns > 0,
				       .memory = 4096};
}

static void count_all(struct fake_host *host)
{
	for (size_t i = 0; i < FAKE_INITS_MAX; i++) {
		struct spawn_message counted = {.type = SPAWN_COUNTED,
						.sandbox = host->inits[i].id,
						.counters = counters_of(host)};
		if (host->inits[i].used && host->inits[i].running)
			send_message(host, &counted);
	}
}

static void serve_sandbox(struct fake_host *host, const struct spawn_message *message,
			  struct spawn_message *reply)
{
	struct fake_init *init = fake_init_of(host, &message->sandbox);
	if (message->type == SPAWN_CREATE || message->type == SPAWN_START) {
		boot(host, message, reply);
		return;
	}
	if (!init) {
		reply->result = ERROR_SANDBOX_NOT_FOUND;
		return;
	}
	if (message->type == SPAWN_KILL || message->type == SPAWN_DESTROY)
		fake_init_stop(init);
	if (message->type == SPAWN_DESTROY)
		init->used = false;
	if (message->type == SPAWN_FREEZE || message->type == SPAWN_THAW)
		init->frozen = message->type == SPAWN_FREEZE;
	if (message->type == SPAWN_COUNTERS)
		reply->counters = counters_of(host);
}

static void serve(struct fake_host *host, const struct spawn_message *message)
{
	struct spawn_message reply = {
	    .type = SPAWN_REPLY, .request = message->request, .sandbox = message->sandbox};
	if (message->type == host->fail_type) {
		reply.result = host->fail_kind;
		(void)!text_copy(reply.message, sizeof(reply.message), "the fake fails");
	} else if (message->type == SPAWN_HELLO) {
		reply.hello.version = SPAWNER_PROTOCOL_VERSION;
		reply.hello.programs = host->programs_hash;
		(void)!text_copy(reply.hello.rootfs_digest, sizeof(reply.hello.rootfs_digest),
				 host->rootfs_digest);
	} else if (message->type == SPAWN_PROBE) {
		reply.probe.tier = message->tier;
		bool second = message->tier == TIER_GVISOR && host->second_memory_min > 0;
		reply.probe.available =
		    second || (message->tier == TIER_NAMESPACE && host->namespace_available);
		reply.probe.by_name = second;
		reply.probe.memory_min = second ? host->second_memory_min : 0;
		reply.probe.memory_idle = MIB;
		(void)!text_copy(reply.probe.missing, sizeof(reply.probe.missing),
				 reply.probe.available ? "" : "a flux capacitor");
	} else if (message->type == SPAWN_COUNTERS && !id_is_set(&message->sandbox)) {
		count_all(host);
	} else if (message->type == SPAWN_LIST) {
		list(host);
	} else {
		serve_sandbox(host, message, &reply);
	}
	send_message(host, &reply);
}

void fake_release(struct fake_host *host)
{
	unsigned count = host->held_count;
	host->hold_type = 0;
	host->held_count = 0;
	for (unsigned i = 0; i < count; i++)
		serve(host, &host->held[i]);
}

static void on_request(uv_poll_t *poll, int status, int events)
{
	struct fake_host *host = container_of(poll, struct fake_host, poll);
	struct spawn_message message;
	int fds[SANDBOX_MOUNTS_MAX];
	size_t fd_count = SANDBOX_MOUNTS_MAX;
	if (status < 0 || !(events & UV_READABLE))
		return;
	ssize_t got = fd_receive(host->spawner_fd, &message, sizeof(message), fds, &fd_count);
	if (got != sizeof(message)) {
		uv_poll_stop(poll);
		return;
	}
	for (size_t i = 0; i < fd_count; i++)
		fd_close(&fds[i]);
	if (message.type < 32)
		host->requests[message.type]++;
	if (message.type == SPAWN_CREATE)
		host->mount_fds = (unsigned)fd_count;
	if (message.type == host->hold_type && host->held_count < FAKE_INITS_MAX)
		host->held[host->held_count++] = message;
	else
		serve(host, &message);
}

void fake_init_dies(struct fake_init *init, enum end_cause cause)
{
	struct spawn_message ended = {
	    .type = SPAWN_ENDED, .sandbox = init->id, .ended.cause = cause};
	fake_init_stop(init);
	send_message(init->host, &ended);
}

struct fake_host *fake_host_new(void)
{
	static int count;
	struct fake_host *host = calloc(1, sizeof(*host));
	if (!host)
		abort();
	host->loop = malloc(sizeof(*host->loop));
	if (!host->loop || uv_loop_init(host->loop) < 0)
		abort();
	host->namespace_available = true;
	(void)!text_copy(host->rootfs_digest, sizeof(host->rootfs_digest), "a digest");
	host->daemon_fd = host->spawner_fd = -1;
	char base[40];
	snprintf(base, sizeof(base), "/tmp/caisson-core-%d-%d", (int)getpid(), count++);
	snprintf(host->state, sizeof(host->state), "%s/state", base);
	snprintf(host->runtime, sizeof(host->runtime), "%s/run", base);
	mkdir(base, 0700);
	mkdir(host->state, 0700);
	mkdir(host->runtime, 0700);
	char guests[80];
	snprintf(guests, sizeof(guests), "%s/guests", host->runtime);
	mkdir(guests, 0700);
	config_defaults(&host->config);
	host->config.pool_size = 0; /* test_pool.c has one */
	(void)!text_copy(host->config.state, sizeof(host->config.state), host->state);
	(void)!text_copy(host->config.runtime, sizeof(host->config.runtime), host->runtime);
	return host;
}

static void on_ready(void *data)
{
	((struct fake_host *)data)->ready = true;
}

static void on_lost(void *data)
{
	((struct fake_host *)data)->lost = true;
}

static void on_failed(void *data, const struct error *error)
{
	(void)error;
	((struct fake_host *)data)->failed = true;
}

void fake_start(struct fake_host *host)
{
	int fds[2];
	struct error error;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		abort();
	host->daemon_fd = fds[0];
	host->spawner_fd = fds[1];
	uv_poll_init(host->loop, &host->poll, host->spawner_fd);
	uv_poll_start(&host->poll, UV_READABLE, on_request);
	host->poll_open = true;
	host->ready = host->lost = host->failed = false;
	host->core.hooks = (struct core_hooks){.lost = on_lost, .failed = on_failed, .data = host};
	if (core_start(&host->core, host->loop, &host->config, host->daemon_fd, on_ready, host,
		       &error) < 0) {
		test_fail(__FILE__, __LINE__, "core_start: %s", error.message);
		return;
	}
	int64_t until = clock_monotonic() + UNTIL_MS * NSEC_PER_MSEC;
	while (!host->ready && !host->failed && clock_monotonic() < until)
		uv_run(host->loop, UV_RUN_NOWAIT);
}

static void on_poll_closed(uv_handle_t *handle)
{
	struct fake_host *host = container_of((uv_poll_t *)handle, struct fake_host, poll);
	host->poll_open = false;
}

void fake_stop(struct fake_host *host)
{
	for (size_t i = 0; i < FAKE_INITS_MAX; i++)
		fake_init_disconnect(&host->inits[i]);
	core_stop(&host->core);
	if (host->poll_open)
		uv_close((uv_handle_t *)&host->poll, on_poll_closed);
	fd_close(&host->spawner_fd);
	fake_turn(host, 20);
}

static int remove_entry(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
	(void)stat;
	(void)type;
	(void)ftw;
	return remove(path);
}

void fake_host_free(struct fake_host *host)
{
	if (host->core.private)
		fake_stop(host);
	for (size_t i = 0; i < FAKE_INITS_MAX; i++) {
		fake_init_stop(&host->inits[i]);
		buffer_done(&host->inits[i].in);
		buffer_done(&host->inits[i].written);
	}
	uv_run(host->loop, UV_RUN_DEFAULT);
	CHECK_INT(uv_loop_close(host->loop), 0);
	char *slash = strrchr(host->state, '/');
	*slash = '\0';
	nftw(host->state, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	free(host->loop);
	free(host);
}

bool fake_until(struct fake_host *host, const bool *flag)
{
	int64_t until = clock_monotonic() + UNTIL_MS * NSEC_PER_MSEC;
	while (!*flag && clock_monotonic() < until) {
		uv_run(host->loop, UV_RUN_NOWAIT);
		usleep(100);
	}
	return *flag;
}

bool fake_until_count(struct fake_host *host, uint32_t count)
{
	int64_t until = clock_monotonic() + UNTIL_MS * NSEC_PER_MSEC;
	while (host->core.sandbox_count != count && clock_monotonic() < until) {
		uv_run(host->loop, UV_RUN_NOWAIT);
		usleep(100);
	}
	return host->core.sandbox_count == count;
}

void fake_turn(struct fake_host *host, unsigned milliseconds)
{
	int64_t until = clock_monotonic() + milliseconds * NSEC_PER_MSEC;
	/* What the time has made due has its turns, also where the machine stood still. */
	for (unsigned turns = 0; turns < 50; turns += clock_monotonic() >= until) {
		uv_run(host->loop, UV_RUN_NOWAIT);
		usleep(20);
	}
}

void fake_pass(struct fake_host *host, unsigned milliseconds)
{
	*clock_advance += milliseconds * NSEC_PER_MSEC;
	fake_turn(host, 0);
}

void outcome_created(void *data, struct sandbox *sandbox, const struct error *error)
{
	struct outcome *outcome = data;
	CHECK(!outcome->done);
	outcome->done = true;
	outcome->sandbox = sandbox;
	if (error)
		outcome->error = *error;
	CHECK((sandbox == NULL) == (error != NULL));
}

void outcome_done(void *data, const struct error *error)
{
	struct outcome *outcome = data;
	CHECK(!outcome->done);
	outcome->done = true;
	if (error)
		outcome->error = *error;
}

struct sandbox *fake_create(struct fake_host *host, const char *name)
{
	struct outcome outcome = {0};
	struct sandbox_spec spec = {.name = name};
	struct error error;
	if (sandbox_create(&host->core, &fake_principal, &spec, outcome_created, &outcome, &error) <
	    0) {
		test_fail(__FILE__, __LINE__, "sandbox_create: %s", error.message);
		return NULL;
	}
	fake_until(host, &outcome.done);
	if (!outcome.sandbox)
		test_fail(__FILE__, __LINE__, "create: %s", outcome.error.message);
	return outcome.sandbox;
}

static bool take_actor(void *data, const struct activity_row *row)
{
	snprintf(data, ACTIVITY_ACTOR_MAX, "%s", row->actor);
	return false;
}

void fake_actor(struct sandbox *sandbox, enum activity_kind kind, char actor[ACTIVITY_ACTOR_MAX])
{
	char kinds[16];
	struct error error;
	snprintf(kinds, sizeof(kinds), ",%d,", kind);
	const struct activity_query query = {
	    .sandbox = &sandbox->row.id, .descending = true, .kinds = kinds, .limit = 1};
	actor[0] = '\0';
	if (activity_each(sandbox->core, &query, take_actor, actor, &error) < 0)
		abort();
}
