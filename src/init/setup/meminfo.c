/* The sandbox's /proc/meminfo: its memory limit, and the usage of its work cgroup. Called by
 * setup.c and periodically by the loop; does not block, allocates nothing. */
#include "init/setup/setup.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"

/* The first number of a line; -1 when there is none. */
static int64_t line_first_number(const char *text)
{
	int64_t value = -1;
	for (; *text && *text != '\n'; text++)
		if (*text >= '0' && *text <= '9')
			value = MAX(value, 0) * 10 + *text - '0';
	return value;
}

int64_t setup_cgroup_number(int fd)
{
	char text[64];
	ssize_t got = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
	if (got <= 0)
		return -1;
	text[got] = '\0';
	return line_first_number(text);
}

/* One of the statistics, in bytes; 0 when it is not there. */
static int64_t cgroup_statistic(const char *text, const char *name)
{
	size_t length = strlen(name);
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, length) == 0 && line[length] == ' ')
			return MAX(line_first_number(line + length), 0);
	}
	return 0;
}

/* The page cache of the work cgroup that could be reclaimed, version 1 or 2. */
static int64_t file_cache(int fd)
{
	char text[8192];
	ssize_t got = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
	if (got <= 0)
		return 0;
	text[got] = '\0';
	return cgroup_statistic(text, "inactive_file") + cgroup_statistic(text, "active_file");
}

void setup_refresh_meminfo(const struct setup *setup)
{
	if (setup->meminfo < 0)
		return;
	/* A v1 cgroup without a limit reports a number near 2^63. */
	int64_t total = setup_cgroup_number(setup->handles.memory_limit);
	if (total < 0 || (uint64_t)total > SANDBOX_MEMORY_MAX)
		total = (int64_t)setup->limits.memory;
	int64_t used = MIN(MAX(setup_cgroup_number(setup->handles.memory_usage), 0), total);
	int64_t cached = MIN(file_cache(setup->handles.memory_stat), used);
	char text[1024];
	int length = snprintf(
	    text, sizeof(text),
	    "MemTotal:       %8lld kB\nMemFree:        %8lld kB\nMemAvailable:   %8lld kB\n"
	    "Buffers:        %8d kB\nCached:         %8lld kB\nSwapCached:     %8d kB\n"
	    "SwapTotal:      %8d kB\nSwapFree:       %8d kB\nShmem:          %8d kB\n"
	    "SReclaimable:   %8d kB\n",
	    (long long)(total / 1024), (long long)((total - used) / 1024),
	    (long long)((total - used + cached) / 1024), 0, (long long)(cached / 1024), 0, 0, 0, 0,
	    0);
	/* A concurrent reader sees the old or the new text: they have the same length unless a
	 * number has more than eight digits. */
	if (pwrite(setup->meminfo, text, (size_t)length, 0) == length) {
		int result = ftruncate(setup->meminfo, length);
		(void)result;
	}
}
