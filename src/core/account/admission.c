/* Host admission. See admission.h. Called for every create and start, on the loop: reads
 * /proc/meminfo at most every 100 ms and the file system's free bytes equally rarely. */
#include "core/account/admission.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "core/core_private.h"

#define READ_INTERVAL (100 * NSEC_PER_MSEC)
#define EXPECT_INTERVAL NSEC_PER_SEC
/* A sandbox younger than this may still grow to its expected use. */
#define YOUNG (30 * NSEC_PER_SEC)
#define SEEN_MIN 8 /* fewer samples say nothing */
#define MEMORY_GUESS (64 * MIB)
#define DISK_GUESS (16 * MIB)
/* Idle sandboxes use almost nothing, which does not predict their later use. */
#define MEMORY_LEAST (16 * MIB)
#define DISK_LEAST (4 * MIB)
#define MEMORY_RESERVE_MIN (512 * MIB)
#define DISK_RESERVE_MAX (4 * GIB)
#define RETRY_AFTER_MS 2000

static int values_compare(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
	return left < right ? -1 : left > right;
}

uint64_t admission_p95(uint64_t *values, size_t count)
{
	if (count == 0)
		return 0;
	qsort(values, count, sizeof(*values), values_compare);
	return values[(count * 95 + 99) / 100 - 1];
}

void admission_start(struct core *core)
{
	core->private->admission.meminfo_fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
}

void admission_stop(struct core *core)
{
	fd_close(&core->private->admission.meminfo_fd);
}

static uint64_t meminfo_value(const char *text, const char *name)
{
	const char *line = strstr(text, name);
	unsigned long long kilobytes = 0;
	if (!line || sscanf(line + strlen(name), ": %llu", &kilobytes) != 1)
		return 0;
	return kilobytes * KIB;
}

static void memory_read_available(struct admission *admission)
{
	char text[4096];
	int64_t now = clock_monotonic();
	if (admission->memory_read != 0 && now - admission->memory_read < READ_INTERVAL)
		return;
	admission->memory_read = now;
	ssize_t size = pread(admission->meminfo_fd, text, sizeof(text) - 1, 0);
	if (size <= 0)
		return;
	text[size] = '\0';
	admission->memory_total = meminfo_value(text, "MemTotal");
	admission->memory_available = meminfo_value(text, "MemAvailable");
}

static void disk_read_free(struct core *core, struct admission *admission)
{
	struct statvfs info;
	int64_t now = clock_monotonic();
	if (admission->disk_read != 0 && now - admission->disk_read < READ_INTERVAL)
		return;
	admission->disk_read = now;
	if (statvfs(core->config.state, &info) < 0)
		return;
	admission->disk_total = (uint64_t)info.f_blocks * info.f_frsize;
	admission->disk_free = (uint64_t)info.f_bavail * info.f_frsize;
}

static size_t memory_size_class(uint64_t memory_limit)
{
	return memory_limit <= 512 * MIB ? 0
	       : memory_limit <= 2 * GIB ? 1
	       : memory_limit <= 8 * GIB ? 2
					 : 3;
}

static void peaks_add(struct peaks *peaks, uint64_t value)
{
	peaks->values[peaks->next] = value;
	peaks->next = (peaks->next + 1) % ADMISSION_PEAKS;
	peaks->count = MIN(peaks->count + 1, (uint32_t)ADMISSION_PEAKS);
}

void admission_observe(struct core *core, uint64_t memory_limit, uint64_t memory_peak,
		       uint64_t disk)
{
	struct admission *admission = &core->private->admission;
	if (memory_peak > 0)
		peaks_add(&admission->memory[memory_size_class(memory_limit)], memory_peak);
	if (disk > 0)
		peaks_add(&admission->disk, disk);
}

struct seen_values {
	uint64_t values[ADMISSION_PEAKS + SANDBOX_COUNT_PER_STATE_MAX];
	size_t count;
};

static void seen_values_add(struct seen_values *seen, uint64_t value)
{
	if (value > 0 && seen->count < ARRAY_SIZE(seen->values))
		seen->values[seen->count++] = value;
}

static void seen_values_add_peaks(struct seen_values *seen, const struct peaks *peaks)
{
	seen->count = 0;
	for (uint32_t i = 0; i < peaks->count; i++)
		seen_values_add(seen, peaks->values[i]);
}

/* Counts the ended sandboxes and the live ones. */
static void expectation_update(struct core *core, struct admission *admission)
{
	struct seen_values seen;
	int64_t now = clock_monotonic();
	if (admission->expected_at != 0 && now - admission->expected_at < EXPECT_INTERVAL)
		return;
	admission->expected_at = now;
	for (size_t size = 0; size < ADMISSION_SIZES; size++) {
		seen_values_add_peaks(&seen, &admission->memory[size]);
		list_each (&core->sandboxes, node) {
			const struct sandbox *sandbox = list_entry(node, struct sandbox, link);
			if (memory_size_class(sandbox->row.limits.memory) == size)
				seen_values_add(&seen, sandbox->counters.memory_peak);
		}
		admission->memory_expected[size] =
		    seen.count < SEEN_MIN
			? MEMORY_GUESS
			: MAX(admission_p95(seen.values, seen.count), MEMORY_LEAST);
	}
	seen_values_add_peaks(&seen, &admission->disk);
	list_each (&core->sandboxes, node)
		seen_values_add(&seen, list_entry(node, struct sandbox, link)->counters.disk);
	admission->disk_expected = seen.count < SEEN_MIN
				       ? DISK_GUESS
				       : MAX(admission_p95(seen.values, seen.count), DISK_LEAST);
}

static uint64_t memory_reserve(const struct core *core)
{
	uint64_t configured = core->config.memory_reserve;
	uint64_t share = core->private->admission.memory_total / 20;
	return configured ? configured : MAX(MEMORY_RESERVE_MIN, share);
}

static uint64_t disk_reserve(const struct core *core)
{
	uint64_t configured = core->config.disk_reserve;
	uint64_t share = core->private->admission.disk_total / 50;
	return configured ? configured : MIN(DISK_RESERVE_MAX, share);
}

/* The sum of all claims on the host. */
struct claims {
	uint64_t memory, disk; /* expected growth of the young ones */
	uint64_t committed;    /* limits of the running ones */
};

static void claims_sum(const struct core *core, const struct admission *admission,
		       struct claims *claims)
{
	int64_t now = clock_wall();
	*claims = (struct claims){0};
	list_each (&core->sandboxes, node) {
		const struct sandbox *sandbox = list_entry(node, struct sandbox, link);
		const struct sandbox_row *row = &sandbox->row;
		if (!state_facts(row->state)->holds)
			continue;
		claims->committed += row->limits.memory;
		if (row->started_wall != 0 && now - row->started_wall > YOUNG)
			continue;
		uint64_t memory =
		    MIN(row->limits.memory,
			admission->memory_expected[memory_size_class(row->limits.memory)]);
		uint64_t disk = MIN(row->limits.disk, admission->disk_expected);
		claims->memory += memory - MIN(memory, sandbox->counters.memory);
		claims->disk += disk - MIN(disk, sandbox->counters.disk);
	}
}

static uint64_t memory_commit_max(const struct core *core)
{
	return core->private->admission.memory_total * core->config.memory_overcommit;
}

static int error_set_no_room(struct error *error, const char *what, uint64_t need, uint64_t have)
{
	error_set(error, ERROR_HOST_CAPACITY,
		  "the host has no room for another sandbox: %s: %llu MiB are needed, %llu MiB are "
		  "left",
		  what, (unsigned long long)(need / MIB), (unsigned long long)(have / MIB));
	error->retry_after_ms = RETRY_AFTER_MS;
	return -1;
}

static uint64_t value_minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

int admission_check(struct core *core, const struct limits *limits, struct error *error)
{
	struct admission *admission = &core->private->admission;
	struct claims claims;
	memory_read_available(admission);
	disk_read_free(core, admission);
	expectation_update(core, admission);
	claims_sum(core, admission, &claims);
	/* If the host's memory cannot be read, no create is refused for it. */
	if (admission->memory_total != 0) {
		uint64_t need = claims.memory +
				MIN(limits->memory,
				    admission->memory_expected[memory_size_class(limits->memory)]);
		uint64_t have = value_minus(admission->memory_available, memory_reserve(core));
		if (need > have)
			return error_set_no_room(error, "memory", need, have);
		have = value_minus(memory_commit_max(core), claims.committed);
		if (core->config.memory_overcommit != 0 && limits->memory > have)
			return error_set_no_room(error,
						 "the memory limits of all sandboxes together",
						 limits->memory, have);
	}
	if (admission->disk_total != 0) {
		uint64_t need = claims.disk + MIN(limits->disk, admission->disk_expected);
		uint64_t have = value_minus(admission->disk_free, disk_reserve(core));
		if (need > have)
			return error_set_no_room(error, "disk", need, have);
	}
	return 0;
}

void admission_room(struct core *core, struct host_room *ret_room)
{
	struct admission *admission = &core->private->admission;
	struct claims claims;
	memory_read_available(admission);
	disk_read_free(core, admission);
	expectation_update(core, admission);
	claims_sum(core, admission, &claims);
	*ret_room = (struct host_room){
	    .memory_total = admission->memory_total,
	    .memory_available = admission->memory_available,
	    .memory_reserve = memory_reserve(core),
	    .memory_committed = claims.committed,
	    .memory_commit_max = memory_commit_max(core),
	    .disk_total = admission->disk_total,
	    .disk_free = admission->disk_free,
	    .disk_reserve = disk_reserve(core),
	    .memory_expected =
		admission->memory_expected[memory_size_class(core->config.defaults.memory)],
	};
}
