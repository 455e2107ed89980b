/* `caisson serve`: the list of start-up steps, the loop, the clean-up. Each step may block for
 * local disk; together they take a few milliseconds once the state directory exists. */
#include "spawner/spawner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "spawner/internal.h"
#include "spawner/rootless.h"
#include "tier/jail/root/host_rootfs.h"
#include "tier/remove_tree.h"

struct spawner *spawner_new(const struct config *config)
{
	struct spawner *spawner = calloc(1, sizeof(*spawner));
	if (!spawner)
		abort();
	spawner->config = *config;
	spawner->host.init_fd = spawner->state_lock = spawner->runtime_lock = -1;
	spawner->unix_listener = spawner->tcp_listener = -1;
	spawner->tls_files[0] = spawner->tls_files[1] = -1;
	spawner->epoll = spawner->signals = spawner->socket = -1;
	spawner->uid_block = -1;
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++)
		spawner->entries[i] = (struct guest_entry)ENTRY_NONE;
	for (size_t i = 0; i < TIER_COUNT; i++)
		spawner->probes[i].socket = -1;
	return spawner;
}

static void entry_done(struct spawner *spawner, struct guest_entry *entry)
{
	boots_forget_order(entry);
	process_done(&entry->guest.init);
	fd_close(&entry->worker_socket);
	memory_limit_unwatch(spawner, entry);
}

void spawner_free(struct spawner *spawner)
{
	if (!spawner)
		return;
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++)
		entry_done(spawner, &spawner->entries[i]);
	for (size_t i = 0; i < TIER_COUNT; i++)
		fd_close(&spawner->probes[i].socket);
	fd_close(&spawner->socket);
	fd_close(&spawner->signals);
	fd_close(&spawner->epoll);
	fd_close(&spawner->unix_listener);
	fd_close(&spawner->tcp_listener);
	fd_close(&spawner->tls_files[0]);
	fd_close(&spawner->tls_files[1]);
	fd_close(&spawner->host.init_fd);
	fd_close(&spawner->runtime_lock);
	fd_close(&spawner->state_lock);
	free(spawner->outbox);
	free(spawner);
}

static int uid_range_claim(struct spawner *spawner, struct error *error)
{
	/* Without root all sandboxes share one range. */
	if (spawner->host.rights != RIGHTS_ROOT)
		return 0;
	spawner->uid_block = uid_block_claim(UID_BLOCK_DIRECTORY, spawner->host.state, error);
	if (spawner->uid_block < 0)
		return -1;
	spawner->host.uid_slots = UID_BLOCK_SLOTS;
	spawner->host.uid_base =
	    UID_RANGE_BASE + (uint32_t)spawner->uid_block * UID_BLOCK_SLOTS * UID_RANGE_SIZE;
	return 0;
}

/* A template that cannot be prepared is reported when it is used. */
static int template_prepare(struct spawner *spawner, struct error *error)
{
	if (host_rootfs_prepare(&spawner->host, spawner->rootfs_digest, error) < 0)
		log_error("template host: %s", error->message);
	return 0;
}

static int guests_adopt(struct spawner *spawner, struct error *error)
{
	(void)error;
	adopt_guests(spawner);
	return 0;
}

static int daemon_start_first(struct spawner *spawner, struct error *error)
{
	return spawner->start_daemon(spawner, error);
}

static int (*const start_steps[])(struct spawner *spawner, struct error *error) = {
    privileges_raise_file_limit,
    tls_files_load, /* still as the caller, who may read the files */
    rootless_enter,
    privileges_narrow_first,
    instance_find_user,
    instance_make_roots,
    locks_take, /* from here on everything in the two directories is ours */
    instance_make_directories,
    instance_check_reach,
    uid_range_claim,
    init_file_install,
    listeners_open,
    spawner_loop_open,
    privileges_narrow_second,
    template_prepare,
    guests_adopt,
    daemon_start_first,
};

/* Looks at the directory, because a sandbox that could not be read counts, too. */
static bool instance_has_sandboxes(struct spawner *spawner)
{
	char path[SPAWNER_PATH_MAX];
	if (guests_count(spawner) > 0 ||
	    text_format(path, sizeof(path), "%s/sandboxes", spawner->host.state) < 0)
		return true;
	return rmdir(path) < 0 && errno != ENOENT;
}

/* The lock is removed last: the next holder finds an empty directory. */
static const char *const runtime_files[] = {"cgroups", "lock"};

/* Keeps what running and stopped sandboxes need. Without any, the host is as it was before,
 * except for the state directory. */
static void instance_clean_up(struct spawner *spawner)
{
	char path[SPAWNER_PATH_MAX];
	const char *runtime = spawner->host.runtime;
	if (spawner->runtime_lock < 0)
		return;
	if (spawner->unix_listener >= 0 &&
	    config_socket_path(&spawner->config, path, sizeof(path)) == 0)
		unlink(path);
	workers_finish_probes(spawner);
	trash_wait(spawner);
	if (spawner->adopted && !instance_has_sandboxes(spawner)) {
		adopt_sweep_cgroups(spawner);
		if (spawner->host.rights == RIGHTS_ROOT)
			uid_block_release(UID_BLOCK_DIRECTORY, spawner->uid_block);
	}
	/* Fails unless it is empty, that is, unless no sandbox runs. */
	if (text_format(path, sizeof(path), "%s/guests", runtime) < 0 ||
	    (rmdir(path) < 0 && errno != ENOENT))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(runtime_files); i++)
		if (text_format(path, sizeof(path), "%s/%s", runtime, runtime_files[i]) == 0)
			unlink(path);
	rmdir(runtime);
}

/* Removes the directories that a refused start has made. The state directory may be removed
 * while we hold its lock and nothing was served from it. */
static void instance_remove_new(struct spawner *spawner)
{
	if (spawner->runtime_is_new)
		rmdir(spawner->config.runtime);
	if (!spawner->state_is_new || spawner->state_lock < 0 || spawner->adopted)
		return;
	if (spawner->uid_block >= 0 && spawner->host.rights == RIGHTS_ROOT)
		uid_block_release(UID_BLOCK_DIRECTORY, spawner->uid_block);
	int result = remove_tree(AT_FDCWD, spawner->host.state);
	if (result < 0)
		log_warning("%s cannot be removed: %s", spawner->host.state, strerror(-result));
}

int spawner_main(const struct config *config, const char *config_path)
{
	struct spawner *spawner = spawner_new(config);
	struct error error = {.kind = ERROR_NONE};
	log_setup("spawner", config->log_level, config->log_json);
	umask(022);
	/* Absolute, because the daemon starts in /. A missing default file counts as none. */
	FREE_TEXT char *file = config_path ? realpath(config_path, NULL) : NULL;
	spawner->config_path = file;
	spawner->driver_of = driver_of;
	spawner->jail = &host_jail;
	spawner->start_daemon = daemon_child_start;
	for (size_t i = 0; i < ARRAY_SIZE(start_steps) && error.kind == ERROR_NONE; i++) {
		struct error failure = {.kind = ERROR_NONE};
		if (start_steps[i](spawner, &failure) < 0)
			error = failure;
	}
	if (error.kind == ERROR_NONE) {
		log_info("serving %s, state %s, instance %s%s%s", spawner->host.runtime,
			 spawner->host.state, spawner->host.instance,
			 !spawner->listen[0]                  ? ""
			 : spawner->config.tls_certificate[0] ? ", https://"
							      : ", http://",
			 spawner->listen);
		spawner_loop_run(spawner);
	}
	instance_clean_up(spawner);
	if (error.kind != ERROR_NONE)
		instance_remove_new(spawner);
	int exit_code = spawner->exit_code;
	spawner_free(spawner);
	if (error.kind != ERROR_NONE) {
		log_error("%s", error.message);
		exit_code = error_info(error.kind)->exit_code;
	}
	return exit_code;
}
