/* The counters of a sandbox's cgroups. The spawner reads them on request, and every few seconds
 * for all sandboxes. Everybody waits meanwhile, so the files are kept open: reading one again
 * takes a microsecond, opening it several. The open descriptors are only a cache: one whose
 * cgroup is gone returns ENODEV and is opened again by name. Does not block. */
#include "tier/jail/cgroup/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "tier/jail/cgroup/cgroup_hierarchy.h"

enum { COUNTED_CPU, COUNTED_MEMORY, COUNTED_PEAK, COUNTED_OOM, COUNTED_PIDS, COUNTED_COUNT };

/* For each cgroup version: the file, the key of the number if it has several, and the factor to
 * our unit. */
static const struct cgroup_counter {
	uint32_t controller;
	enum counter_known known;
	struct {
		const char *file, *key;
		uint64_t unit;
	} version[2];
} counted[COUNTED_COUNT] = {
    [COUNTED_CPU] = {CONTROLLER_CPUACCT,
		     KNOWN_CPU,
		     {{"cpuacct.usage", NULL, 1}, {"cpu.stat", "usage_usec", 1000}}},
    [COUNTED_MEMORY] = {CONTROLLER_MEMORY,
			KNOWN_MEMORY,
			{{"memory.usage_in_bytes", NULL, 1}, {"memory.current", NULL, 1}}},
    [COUNTED_PEAK] = {CONTROLLER_MEMORY,
		      KNOWN_PEAK,
		      {{"memory.max_usage_in_bytes", NULL, 1}, {"memory.peak", NULL, 1}}},
    [COUNTED_OOM] = {CONTROLLER_MEMORY,
		     KNOWN_OOM,
		     {{"memory.oom_control", "oom_kill", 1}, {"memory.events", "oom_kill", 1}}},
    [COUNTED_PIDS] = {CONTROLLER_PIDS,
		      KNOWN_PROCESSES,
		      {{"pids.current", NULL, 1}, {"pids.current", NULL, 1}}},
};

static struct counter_cache {
	struct id id; /* unset: unused */
	int files[COUNTED_COUNT];
} caches[SANDBOX_COUNT_PER_STATE_MAX];

/* Descriptors from this number on are not cached: pidfds and the daemon's sockets need them. */
static int cache_fd_limit(void)
{
	static int below;
	struct rlimit files;
	if (below == 0)
		below = getrlimit(RLIMIT_NOFILE, &files) == 0
			    ? (int)(MIN(files.rlim_cur, (rlim_t)1 << 20) / 2)
			    : 512;
	return below;
}

static void cache_entry_close(struct counter_cache *entry)
{
	if (!id_is_set(&entry->id))
		return;
	for (size_t i = 0; i < COUNTED_COUNT; i++)
		fd_close(&entry->files[i]);
	memset(&entry->id, 0, sizeof(entry->id));
}

void cgroup_counters_forget(const struct id *id)
{
	for (size_t i = 0; i < ARRAY_SIZE(caches); i++)
		if (id_equal(&caches[i].id, id))
			cache_entry_close(&caches[i]);
}

static const struct hierarchy *hierarchy_with_controller(const struct host *host,
							 uint32_t controller)
{
	const struct hierarchies *all = cgroup_hierarchies(host);
	for (uint32_t i = 0; i < all->count; i++)
		if (all->list[i].controllers & controller)
			return &all->list[i];
	return NULL;
}

static int counter_open(const struct hierarchy *hierarchy, const struct host *host,
			const struct id *id, const char *file)
{
	char path[192];
	int result =
	    text_format(path, sizeof(path), "%s/%s/work/%s", host->instance, id->text, file);
	if (result < 0)
		return result;
	int fd = openat(hierarchy->root, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

/* The number, or -1: none; -2: the cgroup is gone. */
static int64_t counter_read(int fd, const char *key)
{
	char text[4096];
	ssize_t got = pread(fd, text, sizeof(text) - 1, 0);
	if (got < 0)
		return errno == ENODEV ? -2 : -1;
	text[got] = '\0';
	const char *place = text;
	size_t length = key ? strlen(key) : 0;
	while (key && (strncmp(place, key, length) != 0 || place[length] != ' ')) {
		place = strchr(place, '\n');
		if (!place)
			return -1;
		place++;
	}
	place += key ? length + 1 : 0;
	return *place < '0' || *place > '9' ? -1 : (int64_t)strtoull(place, NULL, 10);
}

static int64_t counter_read_cached(const struct host *host, const struct id *id,
				   const struct cgroup_counter *what, int *file)
{
	const struct hierarchy *hierarchy = hierarchy_with_controller(host, what->controller);
	if (!hierarchy)
		return -1;
	int64_t number = -2;
	const char *key = what->version[hierarchy->unified].key;
	for (int tries = 0; tries < 2 && number == -2; tries++) {
		if (*file < 0)
			*file = counter_open(hierarchy, host, id,
					     what->version[hierarchy->unified].file);
		if (*file < 0) {
			*file = -1;
			return -1;
		}
		number = counter_read(*file, key);
		if (number < 0 || *file >= cache_fd_limit())
			fd_close(file);
	}
	return number < 0 ? -1 : number * (int64_t)what->version[hierarchy->unified].unit;
}

void cgroup_counters(const struct host *host, const struct guest *guest,
		     struct spawn_counters *counters)
{
	uint64_t processes = 0;
	uint64_t *const values[COUNTED_COUNT] = {
	    [COUNTED_CPU] = &counters->cpu_ns,
	    [COUNTED_MEMORY] = &counters->memory,
	    [COUNTED_PEAK] = &counters->memory_peak,
	    [COUNTED_OOM] = &counters->oom_kills,
	    [COUNTED_PIDS] = &processes,
	};
	struct counter_cache here = {.id = guest->id}, *entry = &here;
	if (guest->slot < ARRAY_SIZE(caches))
		entry = &caches[guest->slot];
	if (entry == &here || !id_equal(&entry->id, &guest->id)) {
		cache_entry_close(entry);
		entry->id = guest->id;
		for (size_t i = 0; i < COUNTED_COUNT; i++)
			entry->files[i] = -1;
	}
	for (size_t i = 0; i < COUNTED_COUNT; i++) {
		int64_t number =
		    counter_read_cached(host, &guest->id, &counted[i], &entry->files[i]);
		counters->known[counted[i].known] = number >= 0;
		*values[i] = number >= 0 ? (uint64_t)number : 0;
	}
	counters->processes = (uint32_t)processes;
	if (entry == &here)
		cache_entry_close(entry);
}
