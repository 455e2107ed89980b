/* Enforces memory.max of version 2. The kernel fails allocations above it, but not packets that
 * arrive in a socket. Those are charged in an interrupt, where it can neither wait nor fail, and
 * nothing is killed until the sandbox itself allocates a page. A sandbox that opens sockets first
 * and then only sends held 371 MiB with a limit of 96 MiB (Linux 6.1), up to net.ipv4.udp_mem in
 * total.
 *
 * The kernel reports this: each such charge counts in memory.events, which can be polled. Writing
 * memory.max again, with the same value, makes the kernel enforce it: it reclaims what it can, then
 * kills as if the sandbox had allocated.
 *
 * Version 1 counts sockets separately and refuses (cgroup_limits.c,
 * memory.kmem.tcp.limit_in_bytes). */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "tier/jail/cgroup/cgroup.h"
#include "tier/jail/cgroup/cgroup_hierarchy.h"

/* The kernel charges memory in batches per processor, and always allows a few pages of its own. */
#define SLACK ((int64_t)MIB)
/* The kernel kills until enough memory is free, while the first victim is still closing its
 * sockets. So the write is interrupted after this time, and no second process is killed while
 * memory is being freed. */
#define BURST_US 5000
#define LOOK_PAUSE (20 * NSEC_PER_MSEC)

static bool group_is_over_limit(int work)
{
	int64_t limit = cgroup_read_number(work, "memory.max", NULL);
	return limit >= 0 && cgroup_read_number(work, "memory.current", NULL) > limit + SLACK;
}

int cgroup_memory_events_open(const struct host *host, const struct guest *guest)
{
	bool unified;
	CLOSE_FD int work = cgroup_open_work(host, &guest->id, CONTROLLER_MEMORY, &unified);
	if (work < 0)
		return work;
	if (!unified)
		return -EOPNOTSUPP;
	int events = openat(work, "memory.events", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return events < 0 ? -errno : events;
}

int cgroup_memory_events_read(const struct host *host, const struct guest *guest, int events)
{
	char text[512];
	bool unified;
	/* Reading the file arms the next event. */
	if (pread(events, text, sizeof(text), 0) < 0 && errno == ENODEV)
		return -errno;
	CLOSE_FD int work = cgroup_open_work(host, &guest->id, CONTROLLER_MEMORY, &unified);
	/* Without a free descriptor it is checked later. */
	return work >= 0 && group_is_over_limit(work);
}

static void alarm_interrupt(int number)
{
	(void)number;
}

static int memory_limit_write_again(int work)
{
	/* A periodic timer: a single signal could arrive before the write and have no effect. */
	const struct itimerval burst = {{.tv_usec = BURST_US}, {.tv_usec = BURST_US}}, none = {0};
	const struct sigaction action = {.sa_handler = alarm_interrupt};
	char limit[32];
	ssize_t got = fd_read_small(work, "memory.max", limit, sizeof(limit));
	if (got < 0)
		return (int)got;
	if (sigaction(SIGALRM, &action, NULL) < 0 || setitimer(ITIMER_REAL, &burst, NULL) < 0)
		return -errno;
	int result = fd_write_small(work, "memory.max", limit);
	setitimer(ITIMER_REAL, &none, NULL);
	return result == -EINTR ? 0 : result;
}

/* Waits until usage is within the limit or stops falling. */
static void memory_wait_while_falling(int work)
{
	const struct timespec pause = {.tv_nsec = LOOK_PAUSE};
	int64_t last, now = cgroup_read_number(work, "memory.current", NULL);
	do {
		last = now;
		nanosleep(&pause, NULL);
		now = cgroup_read_number(work, "memory.current", NULL);
	} while (now < last && group_is_over_limit(work));
}

int cgroup_memory_limit_enforce(const struct host *host, struct guest *guest, struct error *error)
{
	bool unified;
	CLOSE_FD int work = cgroup_open_work(host, &guest->id, CONTROLLER_MEMORY, &unified);
	int result = work < 0 ? work : 0;
	while (result >= 0 && group_is_over_limit(work)) {
		/* Without a process left to kill, the kernel would only fill its log. */
		if (cgroup_read_number(work, "cgroup.events", "populated") == 1)
			result = memory_limit_write_again(work);
		if (result >= 0 && group_is_over_limit(work))
			memory_wait_while_falling(work);
	}
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result,
				       "its memory limit");
	return 0;
}
