/* See channel.h. */
#include "boot/channel.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"

static struct boot_report report;
static int64_t phase_start; /* CLOCK_MONOTONIC */

void boot_report_begin(uint32_t request)
{
	report = (struct boot_report){.type = BOOT_REPORT, .request = request};
	phase_start = clock_monotonic();
}

void boot_report_phase(const char *name)
{
	int64_t now = clock_monotonic();
	if (report.phase_count < SPAWN_PHASES_MAX) {
		struct spawn_phase *phase = &report.phases[report.phase_count++];
		snprintf(phase->name, sizeof(phase->name), "%s", name);
		phase->microseconds = (uint32_t)((now - phase_start) / NSEC_PER_USEC);
	}
	phase_start = now;
}

int boot_report_send(const struct failure *failure)
{
	report.ok = !failure;
	if (failure)
		report.failure = *failure;
	ssize_t sent = fd_send(BOOT_FD, &report, sizeof(report), NULL, 0);
	return sent < 0 ? (int)sent : 0;
}

int boot_fail(struct failure *failure, int result, const char *what)
{
	int errnum = result < 0 ? -result : result;
	failure->kind = (uint32_t)error_kind_of_errno(errnum);
	failure->errnum = (uint32_t)errnum;
	snprintf(failure->message, sizeof(failure->message), "%s: %s", what, strerror(errnum));
	return -1;
}

void boot_handles_clear(struct boot_handles *handles)
{
	*handles = (struct boot_handles){.listener = -1,
					 .memory_usage = -1,
					 .memory_limit = -1,
					 .memory_stat = -1,
					 .process_events = -1};
	for (size_t i = 0; i < ARRAY_SIZE(handles->work_cgroups); i++)
		handles->work_cgroups[i] = -1;
}

int boot_receive_prepare(struct boot_handles *ret_handles, struct failure *failure)
{
	struct boot_prepare request;
	int fds[BOOT_FDS_MAX], *next = fds;
	size_t count = ARRAY_SIZE(fds);
	boot_handles_clear(ret_handles);
	ssize_t got = fd_receive(BOOT_FD, &request, sizeof(request), fds, &count);
	boot_report_begin(BOOT_PREPARE);
	if (got <= 0)
		return boot_fail(failure, got < 0 ? (int)got : EPIPE, "receiving PREPARE");
	if (got != (ssize_t)sizeof(request) || request.type != BOOT_PREPARE ||
	    request.work_cgroup_count > WORK_CGROUPS_MAX || request.has_memory > 1 ||
	    request.has_processes > 1 ||
	    count != 1 + request.work_cgroup_count + 3 * request.has_memory + request.has_processes)
		return boot_fail(failure, EBADMSG, "PREPARE");
	ret_handles->listener = *next++;
	ret_handles->work_cgroup_count = request.work_cgroup_count;
	for (uint32_t i = 0; i < request.work_cgroup_count; i++)
		ret_handles->work_cgroups[i] = *next++;
	if (request.has_memory) {
		ret_handles->memory_usage = *next++;
		ret_handles->memory_limit = *next++;
		ret_handles->memory_stat = *next++;
	}
	if (request.has_processes)
		ret_handles->process_events = *next++;
	return 0;
}

int boot_receive_assign(uint32_t trees, struct boot_assign *ret_request, int fds[BOOT_FDS_MAX],
			size_t *ret_count, struct failure *failure)
{
	const struct boot_assign *request = ret_request;
	*ret_count = BOOT_FDS_MAX;
	ssize_t got = fd_receive(BOOT_FD, ret_request, sizeof(*request), fds, ret_count);
	boot_report_begin(BOOT_ASSIGN);
	if (got <= 0)
		return boot_fail(failure, got < 0 ? (int)got : EPIPE, "receiving ASSIGN");
	if (got != (ssize_t)sizeof(*request) || request->type != BOOT_ASSIGN ||
	    request->lower_count == 0 || request->lower_count > BOOT_LOWERS_MAX ||
	    request->bind_count > BOOT_BINDS_MAX || request->tree_count > trees ||
	    *ret_count != 1 + request->lower_count + request->bind_count + request->tree_count)
		return boot_fail(failure, EBADMSG, "ASSIGN");
	return 0;
}

int boot_loopback_up(void)
{
	CLOSE_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	return ioctl(fd, SIOCSIFFLAGS, &request) < 0 ? -errno : 0;
}
