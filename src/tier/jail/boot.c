/* Boots a guest. The order lets the init's own work (leaving the host's root, /proc, /dev) run
 * while the disk and the layers are made:
 *
 *   spawner                                      child, then init
 *   socket, cgroups, clone3 ──────────────────>  waits
 *   uid maps, cpus, record; "go", PREPARE ────>  joins its cgroups, exec; leaves the host
 *   disk, layers, users' folders; ASSIGN ─────>  overlay, its root
 *   waits for the reports <───────────────────   listens
 *
 * A child whose spawner dies reads the end of its socket and exits; until then no code of the
 * user's runs in it. See boot.h. */
#include "tier/jail/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "proto/boot_messages.h"
#include "tier/jail/cgroup/cgroup.h"
#include "tier/jail/cpus.h"
#include "tier/jail/disk/disk.h"
#include "tier/jail/root/idmap.h"
#include "tier/jail/ids.h"
#include "tier/jail/record.h"
#include "tier/jail/root/rootfs.h"

#define BOOT_TIMEOUT (10 * NSEC_PER_SEC)
#define HIGH_FD 64 /* above every descriptor that the child needs */

/* The reports that an init sends, in order; attempt.step counts the received ones. */
static const uint32_t boot_reports[] = {BOOT_PREPARE, BOOT_ASSIGN, 0};

/* Everything that a boot holds until it is done. */
struct boot_attempt {
	const struct host *host;
	struct guest *guest;
	const struct boot *boot;
	struct sandbox_ids ids;
	int64_t deadline;    /* CLOCK_BOOTTIME */
	int64_t phase_start; /* CLOCK_MONOTONIC */
	uint32_t step;
	int channel, userns, disk; /* -1 when unset */
	struct cgroup_boot cgroups;
	const struct boot_program *program; /* NULL: the init */
	int init_file;                      /* for a program, else -1 */
	int listener;
	/* In the order of ASSIGN: disk, lowers, binds, trees. */
	int fds[BOOT_FDS_MAX];
	uint32_t fd_count;
};

static void phase_add(struct guest *guest, const char *name, uint32_t microseconds)
{
	if (guest->phase_count == SPAWN_PHASES_MAX)
		return;
	struct spawn_phase *phase = &guest->phases[guest->phase_count++];
	snprintf(phase->name, sizeof(phase->name), "%s", name);
	phase->microseconds = microseconds;
}

static void attempt_phase_done(struct boot_attempt *attempt, const char *name)
{
	int64_t now = clock_monotonic();
	phase_add(attempt->guest, name, (uint32_t)((now - attempt->phase_start) / NSEC_PER_USEC));
	attempt->phase_start = now;
}

/* Reports the failure to the spawner and ends the child. */
static _Noreturn void child_fail(int socket, int errnum, const char *what)
{
	struct boot_report report = {.type = BOOT_REPORT};
	report.failure.kind = (uint32_t)error_kind_of_errno(errnum);
	report.failure.errnum = (uint32_t)errnum;
	snprintf(report.failure.message, sizeof(report.failure.message), "%s: %s", what,
		 strerror(errnum));
	ssize_t sent = fd_send(socket, &report, sizeof(report), NULL, 0);
	_exit(sent < 0 ? 2 : 1);
}

/* Standard descriptors become /dev/null, BOOT_FD the socket; all others are closed by exec. */
static void child_place_descriptors(int *socket, int *init, int init_file)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int high_socket = fcntl(*socket, F_DUPFD_CLOEXEC, HIGH_FD);
	int high_init = fcntl(*init, F_DUPFD_CLOEXEC, HIGH_FD);
	int high_null = null < 0 ? -1 : fcntl(null, F_DUPFD_CLOEXEC, HIGH_FD);
	int high_file = init_file < 0 ? 0 : fcntl(init_file, F_DUPFD_CLOEXEC, HIGH_FD);
	if (high_socket < 0 || high_init < 0 || high_null < 0 || high_file < 0)
		child_fail(*socket, errno, "descriptors");
	*socket = high_socket;
	*init = high_init;
	for (int fd = 0; fd <= 2; fd++) {
		if (dup2(high_null, fd) < 0)
			child_fail(*socket, errno, "standard descriptors");
	}
	if (dup2(high_socket, BOOT_FD) < 0)
		child_fail(*socket, errno, "the boot socket");
	if (init_file >= 0 && dup2(high_file, BOOT_INIT_FD) < 0)
		child_fail(*socket, errno, "the init's file");
	unsigned first = init_file < 0 ? BOOT_FD + 1 : BOOT_INIT_FD + 1;
	int result = sys_close_range(first, ~0U, CLOSE_RANGE_CLOEXEC);
	if (result < 0)
		child_fail(*socket, -result, "closing descriptors");
}

/* Signals as a program expects them: defaults, none blocked. */
static void child_reset_signals(void)
{
	sigset_t none;
	struct sigaction standard = {.sa_handler = SIG_DFL};
	for (int signal = 1; signal < SIGRTMIN; signal++)
		sigaction(signal, &standard, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The child is a copy of the spawner with all its memory. It does what cannot be done from
 * outside, allocates nothing, and executes the init. */
static _Noreturn void child_main(const struct boot_attempt *attempt, int spawner_end, int socket)
{
	static char *const init_arguments[] = {"caisson-init", NULL}, *const environment[] = {NULL};
	const struct boot_program *program = attempt->program;
	char *const *arguments = program ? program->arguments : init_arguments;
	char go;
	int init = program ? program->fd : attempt->host->init_fd;
	/* If we kept a copy of the spawner's end, we would not notice that the spawner died. */
	close(spawner_end);
	if (recv(socket, &go, 1, 0) != 1)
		_exit(1);
	for (uint32_t i = 0; i < attempt->cgroups.count; i++) {
		int procs = attempt->cgroups.init_procs[i];
		if (procs >= 0 && write(procs, "0", 1) != 1)
			child_fail(socket, errno, "joining its cgroup");
	}
	/* After joining: the current cgroup becomes the root of the namespace. */
	if (unshare(CLONE_NEWCGROUP) < 0)
		child_fail(socket, errno, "a cgroup namespace");
	/* Before exec: a process whose id is not mapped would lose all capabilities. The C
	 * library's wrappers would synchronize with other threads. */
	if ((attempt->ids.groups && syscall(SYS_setgroups, 0, NULL) < 0) ||
	    syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0)
		child_fail(socket, errno, "becoming its root");
	if (setsid() < 0)
		child_fail(socket, errno, "a session");
	umask(022);
	if (chdir("/") < 0)
		child_fail(socket, errno, "the root directory");
	child_reset_signals();
	child_place_descriptors(&socket, &init, attempt->init_file);
	int result = sys_execveat(init, "", arguments, environment, AT_EMPTY_PATH);
	child_fail(socket, -result,
		   program ? "executing the tier's own program" : "executing caisson-init");
}

/* The kernel charges per-user limits (inotify instances, queued signals, message queues) to the
 * creator of the user namespace, for everything in it. If root were charged, one sandbox could
 * use up the limits of root and of every other sandbox. So the effective uid is the sandbox's
 * own during this call. NO_SETUID_FIXUP keeps the capabilities. */
static int child_clone_charged_to(const struct host *host, uint32_t owner, struct clone_args *args)
{
	struct ids_disguise guise;
	int result = ids_disguise_enter(host, owner, &guise);
	if (result < 0)
		return result;
	int pid = sys_clone3(args);
	if (pid != 0)
		ids_disguise_leave(&guise);
	return pid;
}

static int child_start(struct boot_attempt *attempt, struct error *error)
{
	int pair[2], pidfd = -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "a socket pair");
	attempt->channel = pair[0];
	CLOSE_FD int child_end = pair[1];
	struct clone_args args = {
	    .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
		     CLONE_NEWNET | CLONE_PIDFD,
	    .pidfd = (uint64_t)(uintptr_t)&pidfd,
	    .exit_signal = SIGCHLD,
	};
	/* A child of the spawner, not of the worker, so that the spawner is told of its end. */
	if (attempt->boot->for_parent) {
		args.flags |= CLONE_PARENT;
		args.exit_signal = 0;
	}
	if (attempt->cgroups.init_directory >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)attempt->cgroups.init_directory;
	}
	int pid = child_clone_charged_to(attempt->host, attempt->ids.charged, &args);
	if (pid == 0)
		child_main(attempt, pair[0], child_end);
	if (pid < 0)
		return error_set_errno(error, error_kind_of_errno(pid), pid, "new namespaces");
	attempt->guest->init = (struct process){.pid = pid, .pidfd = pidfd};
	int result = process_start_time(pid, &attempt->guest->init.start_time);
	if (result < 0)
		return error_set_errno(error, ERROR_INTERNAL, result, "its start time");
	return 0;
}

/* Sets up the waiting child with everything that only root outside can do. */
static int child_equip(struct boot_attempt *attempt, struct error *error)
{
	struct guest *guest = attempt->guest;
	char path[64];
	pid_t pid = guest->init.pid;
	const char *what = "uid maps";
	int result = ids_write_maps(attempt->host, &attempt->ids, pid);
	if (result >= 0) {
		what = "its user namespace";
		result = text_format(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	}
	if (result >= 0) {
		int userns = open(path, O_RDONLY | O_CLOEXEC);
		result = userns < 0 ? -errno : 0;
		attempt->userns = userns;
	}
	/* The spawner may be protected from the OOM killer; sandboxes must be killed first. All
	 * processes inside inherit this. */
	if (result >= 0) {
		what = "oom_score_adj";
		result = text_format(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
	}
	if (result >= 0) {
		result = fd_write_small(AT_FDCWD, path, "500");
		if (result == -EACCES || result == -EPERM)
			result = 0;
	}
	if (result >= 0) {
		what = "its cpus";
		result = cpus_set(pid, guest->slot, guest->limits.cpu_millis);
	}
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result, "%s", what);
	return record_write(attempt->host, guest, error);
}

/* Receives one message of the child's. If the peer ended with unread data, the first call fails
 * and the next one receives a last message. */
static ssize_t report_receive_message(struct boot_attempt *attempt, struct boot_report *ret_report)
{
	int channel = attempt->channel;
	ssize_t got = 0;
	for (int turn = 0; turn < 2; turn++) {
		int64_t left = attempt->deadline - clock_boot();
		struct pollfd poll_fd = {.fd = channel, .events = POLLIN};
		int ready = poll(&poll_fd, 1, (int)MAX(left / NSEC_PER_MSEC, 0));
		if (ready < 0 && errno == EINTR) {
			turn--;
			continue;
		}
		if (ready < 0)
			return -errno;
		if (ready == 0)
			return -ETIMEDOUT;
		got = fd_receive(channel, ret_report, sizeof(*ret_report), NULL, NULL);
		if (got != -ECONNRESET)
			return got;
	}
	return 0;
}

/* Receives the next report of the init, or of the child before it executed the init. */
static int report_receive(struct boot_attempt *attempt, struct error *error)
{
	struct boot_report report;
	uint32_t request = boot_reports[attempt->step];
	ssize_t got = report_receive_message(attempt, &report);
	if (got == -ETIMEDOUT)
		return error_set(error, ERROR_TIMED_OUT,
				 "the init did not answer within %d seconds (step %u)",
				 (int)(BOOT_TIMEOUT / NSEC_PER_SEC), request);
	if (got == 0)
		return error_set(error, ERROR_INTERNAL, "the init ended while it was booted");
	if (got < 0)
		return error_set_errno(error, ERROR_INTERNAL, (int)got, "the init's report");
	if (got != (ssize_t)sizeof(report) || report.type != BOOT_REPORT ||
	    report.phase_count > SPAWN_PHASES_MAX)
		return error_set(error, ERROR_INTERNAL, "the init's report is malformed");
	report.failure.message[sizeof(report.failure.message) - 1] = '\0';
	if (!report.ok) {
		enum error_kind kind = report.failure.kind < ERROR_KIND_COUNT
					   ? (enum error_kind)report.failure.kind
					   : ERROR_INTERNAL;
		error_set(error, kind, "init: %s", report.failure.message);
		error->errnum = (int)report.failure.errnum;
		return -1;
	}
	if (report.request != request)
		return error_set(error, ERROR_INTERNAL, "the init's report is out of order");
	for (uint32_t i = 0; i < report.phase_count; i++) {
		report.phases[i].name[sizeof(report.phases[i].name) - 1] = '\0';
		phase_add(attempt->guest, report.phases[i].name, report.phases[i].microseconds);
	}
	attempt->step++;
	return 0;
}

static int reports_receive(struct boot_attempt *attempt, struct error *error)
{
	while (attempt->step < ARRAY_SIZE(boot_reports))
		if (report_receive(attempt, error) < 0)
			return -1;
	return 0;
}

/* A failed send means that the peer is gone. It may have reported why. */
static int attempt_send_failed(struct boot_attempt *attempt, ssize_t result, const char *what,
			       struct error *error)
{
	if (reports_receive(attempt, error) < 0)
		return -1;
	return error_set_errno(error, ERROR_INTERNAL, (int)result, "%s", what);
}

static int attempt_send_prepare(struct boot_attempt *attempt, struct error *error)
{
	const struct cgroup_boot *cgroups = &attempt->cgroups;
	struct boot_prepare message = {.type = BOOT_PREPARE,
				       .work_cgroup_count = cgroups->count,
				       .has_memory = cgroups->memory_usage >= 0,
				       .has_processes = cgroups->process_events >= 0};
	int fds[1 + CGROUP_HIERARCHIES_MAX + 4];
	size_t count = 0;
	fds[count++] = attempt->listener;
	for (uint32_t i = 0; i < cgroups->count; i++)
		fds[count++] = cgroups->work_procs[i];
	if (message.has_memory) {
		fds[count++] = cgroups->memory_usage;
		fds[count++] = cgroups->memory_limit;
		fds[count++] = cgroups->memory_stat;
	}
	if (message.has_processes)
		fds[count++] = cgroups->process_events;
	ssize_t sent = fd_send(attempt->channel, "g", 1, NULL, 0);
	if (sent >= 0)
		sent = fd_send(attempt->channel, &message, sizeof(message), fds, count);
	if (sent < 0)
		return attempt_send_failed(attempt, sent, "sending PREPARE", error);
	return 0;
}

/* The root of a copy-on-write folder shows the mode of its upper directory. */
static int attempt_open_disk(struct boot_attempt *attempt, struct error *error)
{
	const struct spawn_create *create = attempt->boot->create;
	struct disk_request request = {.limits = &attempt->guest->limits,
				       .owner = attempt->ids.owner,
				       .origin = attempt->boot->origin,
				       .tree_count = create->mount_count};
	for (uint32_t i = 0; i < create->mount_count; i++) {
		struct stat status;
		const struct mount *mount = &attempt->boot->mounts[i];
		if (fstat(mount->folder.directory, &status) < 0)
			return error_set_errno(error, ERROR_INVALID, errno, "mount %u", i + 1);
		request.cow_modes[i] =
		    mount->mode == MOUNT_COPY_ON_WRITE ? (int)(status.st_mode & 0777) : -1;
	}
	int result = disk_open(attempt->host, &attempt->guest->id, &request,
			       attempt->guest->limit_reasons, &attempt->disk, error);
	return result < 0 ? -1 : 0;
}

static int attempt_add_mount(struct boot_attempt *attempt, int mount, const char *what,
			     struct error *error)
{
	if (mount < 0)
		return error_set_errno(error, error_kind_of_errno(mount), mount, "%s", what);
	attempt->fds[attempt->fd_count++] = mount;
	return 0;
}

static int attempt_open_layers(struct boot_attempt *attempt, struct boot_assign *assign,
			       struct error *error)
{
	CLEANUP(rootfs_done) struct rootfs rootfs = {.lower_count = 0};
	if (rootfs_open(attempt->host, &attempt->boot->create->rootfs, &attempt->ids, &rootfs,
			error) < 0)
		return -1;
	memcpy(attempt->guest->rootfs_digest, rootfs.digest, sizeof(rootfs.digest));
	assign->lower_count = rootfs.lower_count;
	assign->bind_count = rootfs.bind_count;
	for (uint32_t i = 0; i < rootfs.lower_count; i++) {
		/* Without root there are no idmapped mounts: the layer has the right owners. */
		int userns = attempt->host->rights == RIGHTS_ROOT ? attempt->userns : -1;
		int layer = idmap_mount_layer(rootfs.lowers[i], userns);
		if (layer == -EINVAL && userns >= 0)
			return error_set(error, ERROR_UNSUPPORTED,
					 "the file system of the state directory %s cannot show "
					 "files as another user's (idmapped mounts; ext2 cannot): "
					 "use one on ext4, XFS or btrfs (--state DIR)",
					 attempt->host->state);
		if (attempt_add_mount(attempt, layer, "a layer of its root", error) < 0)
			return -1;
	}
	for (uint32_t i = 0; i < rootfs.bind_count; i++) {
		assign->bind_places[i] = rootfs.bind_places[i];
		if (attempt_add_mount(attempt, idmap_mount_host_directory(rootfs.binds[i]),
				      "a directory of the host", error) < 0)
			return -1;
	}
	return 0;
}

static int attempt_open_folders(struct boot_attempt *attempt, struct boot_assign *assign,
				struct error *error)
{
	const struct spawn_create *create = attempt->boot->create;
	assign->tree_count = create->mount_count;
	for (uint32_t i = 0; i < create->mount_count; i++) {
		const struct mount *mount = &attempt->boot->mounts[i];
		struct folder folder = {.directory = mount->folder.directory,
					.mode = mount->mode,
					.uid = mount->folder.uid,
					.gid = mount->folder.gid,
					.owner = attempt->ids.owner,
					.plain = attempt->host->rights != RIGHTS_ROOT};
		assign->tree_modes[i] = mount->mode;
		int tree = idmap_mount_folder(&folder, error);
		if (tree < 0)
			return error_prepend(error, "mount %u", i + 1);
		attempt->fds[attempt->fd_count++] = tree;
	}
	return 0;
}

/* Makes and sets up everything except the layers and folders. */
static int attempt_prepare(struct boot_attempt *attempt, struct error *error)
{
	struct guest *guest = attempt->guest;
	if (record_make(attempt->host, &guest->id, &attempt->listener, error) < 0 ||
	    cgroup_make(attempt->host, &guest->id, &guest->limits, guest->limit_reasons,
			&attempt->cgroups, error) < 0 ||
	    cgroup_let_root_join(attempt->host, attempt->ids.owner, &attempt->cgroups, error) < 0)
		return -1;
	attempt_phase_done(attempt, "cgroup");
	if (child_start(attempt, error) < 0)
		return -1;
	attempt_phase_done(attempt, "namespaces");
	if (child_equip(attempt, error) < 0 || attempt_send_prepare(attempt, error) < 0)
		return -1;
	attempt_phase_done(attempt, "maps");
	if (attempt_open_disk(attempt, error) < 0)
		return -1;
	attempt_phase_done(attempt, "disk");
	return 0;
}

static int attempt_assign_files(struct boot_attempt *attempt, struct error *error)
{
	struct boot_assign assign = {.type = BOOT_ASSIGN,
				     .limits = attempt->guest->limits,
				     .flags = attempt->boot->create->flags};
	attempt->fds[attempt->fd_count++] = TAKE_FD(attempt->disk);
	if (attempt_open_layers(attempt, &assign, error) < 0 ||
	    attempt_open_folders(attempt, &assign, error) < 0)
		return -1;
	ssize_t sent =
	    fd_send(attempt->channel, &assign, sizeof(assign), attempt->fds, attempt->fd_count);
	if (sent < 0)
		return attempt_send_failed(attempt, sent, "sending ASSIGN", error);
	attempt_phase_done(attempt, "layers");
	return 0;
}

static void attempt_done(struct boot_attempt *attempt)
{
	cgroup_boot_done(&attempt->cgroups);
	fd_close(&attempt->channel);
	fd_close(&attempt->userns);
	fd_close(&attempt->disk);
	fd_close(&attempt->init_file);
	fd_close(&attempt->listener);
	for (uint32_t i = 0; i < attempt->fd_count; i++)
		fd_close(&attempt->fds[i]);
	attempt->fd_count = 0;
}

static struct boot_attempt attempt_new(const struct host *host, struct guest *guest,
				       const struct boot *boot, const struct boot_program *program)
{
	struct boot_attempt attempt = {.host = host,
				       .guest = guest,
				       .boot = boot,
				       .program = program,
				       .deadline = clock_boot() + BOOT_TIMEOUT,
				       .phase_start = clock_monotonic(),
				       .channel = -1,
				       .userns = -1,
				       .disk = -1,
				       .cgroups = CGROUP_BOOT_NONE,
				       .init_file = -1,
				       .listener = -1};
	guest->tier = (enum tier)boot->create->tier;
	guest->init = PROCESS_NONE;
	guest->phase_count = 0;
	guest->frozen = false;
	memset(guest->limit_reasons, 0, sizeof(guest->limit_reasons));
	ids_for_sandbox(host, &guest->id, guest->slot, boot->create->mount_count > 0, &attempt.ids);
	return attempt;
}

int boot_guest(const struct host *host, struct guest *guest, const struct boot *boot,
	       const struct boot_program *program, struct error *error)
{
	CLEANUP(attempt_done)
	struct boot_attempt attempt = attempt_new(host, guest, boot, program);
	if (program) {
		/* The tier's own program reads the init's file. */
		char path[64];
		snprintf(path, sizeof(path), "/proc/self/fd/%d", host->init_fd);
		attempt.init_file = open(path, O_RDONLY | O_CLOEXEC);
		if (attempt.init_file < 0)
			return error_set_errno(error, ERROR_INTERNAL, errno,
					       "reading the init's file");
	}
	if (attempt_prepare(&attempt, error) < 0 || attempt_assign_files(&attempt, error) < 0 ||
	    reports_receive(&attempt, error) < 0)
		return -1;
	attempt_phase_done(&attempt, "init");
	return 0;
}
