/* Memory above the limit. Version 2's memory.max is refused to whoever allocates, but not to what
 * arrives in a socket: that is charged in an interrupt, where the kernel can neither wait nor fail,
 * and nobody is killed until the sandbox itself wants a page. A sandbox that opens its sockets
 * first and then only sends held 371 MiB where 96 were allowed (Linux 6.1), up to net.ipv4.udp_mem
 * of all.
 *
 * The kernel says so, though: each such charge counts in memory.events, which can be polled. And
 * writing memory.max, the value that it has, makes the kernel see to it: what can be dropped is
 * dropped, then it kills as if the sandbox had asked for more.
 *
 * Version 1 counts sockets apart and refuses (cgroup.c, memory.kmem.tcp.limit_in_bytes). */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "tier/jail/cgroup.h"
#include "tier/jail/cgroup_hierarchy.h"

/* The kernel gives out memory in batches per processor, and forces a few pages of its own through.
 */
#define SLACK ((int64_t)MIB)
/* The kernel kills without a pause until enough is free, while who was killed first still closes
 * its sockets; so it is interrupted, and nobody else is killed while memory is being given back. */
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
	/* Reading is what makes the next change an event. */
	if (pread(events, text, sizeof(text), 0) < 0 && errno == ENODEV)
		return -errno;
	CLOSE_FD int work = cgroup_open_work(host, &guest->id, CONTROLLER_MEMORY, &unified);
	/* Without a descriptor to spare it is looked at another time. */
	return work >= 0 && group_is_over_limit(work);
}

static void alarm_interrupt(int number)
{
	(void)number;
}

static int memory_limit_write_again(int work)
{
	/* Again and again: one that came before the write would have been for nothing. */
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

/* Until it is within the limit, or holds no less than at the look before. */
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
		/* With nobody left to kill the kernel would only fill its log. */
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
