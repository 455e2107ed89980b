/* From "just executed in new namespaces" to "in the sandbox's own root": see setup.h. Called by the
 * init's main() and, for CONFIGURE, from its loop while nothing else runs yet. May block. Allocates
 * nothing.
 *
 * PREPARE leaves the host: a small root of our own is entered and the host's goes, before anything
 * of a user's is known. In it, by short names (an overlay's options are limited to 256 bytes):
 *   proc, dev   moved into the sandbox's root later
 *   l/N         the template's layers; they must be attached here before an overlay takes them
 *   k           the sandbox's disk
 *   b/N         the host's programs, below an overlay
 *   t/N         users' folders that an overlay is made over
 *   r           the sandbox's root
 * ASSIGN builds r and enters it; the small root goes, and with it every path to layers and disk.
 * An idmapped mount must not stay reachable: whoever may mount inside could make it writable and
 * write the shared layer as the host's root. */
#include "init/setup.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "init/setup_steps.h"
#include "proto/boot_messages.h"

#define PROC_MAGIC 0x9fa0
#define TMPFS_MAGIC_NUMBER 0x01021994
#define DEVPTS_MAGIC 0x1cd1
#define OVERLAY_LOWERS_TEXT 256

static struct boot_report report;
static int64_t phase_start;

static void phase_done(const char *name)
{
	int64_t now = clock_monotonic();
	if (report.phase_count < SPAWN_PHASES_MAX) {
		struct spawn_phase *phase = &report.phases[report.phase_count++];
		snprintf(phase->name, sizeof(phase->name), "%s", name);
		phase->microseconds = (uint32_t)((now - phase_start) / NSEC_PER_USEC);
	}
	phase_start = now;
}

static int fail(struct failure *failure, int result, const char *what)
{
	int errnum = result < 0 ? -result : result;
	failure->kind = (uint32_t)error_kind_of_errno(errnum);
	failure->errnum = (uint32_t)errnum;
	snprintf(failure->message, sizeof(failure->message), "%s: %s", what, strerror(errnum));
	return -1;
}

static void report_begin(uint32_t request)
{
	memset(&report, 0, sizeof(report));
	report.type = BOOT_REPORT;
	report.request = request;
	phase_start = clock_monotonic();
}

static void report_send(bool ok, const struct failure *failure)
{
	report.ok = ok;
	if (!ok)
		report.failure = *failure;
	/* The spawner may be gone; a sandbox that is up goes on without it. */
	ssize_t sent = fd_send(BOOT_FD, &report, sizeof(report), NULL, 0);
	(void)sent;
}

static int loopback_up(void)
{
	CLOSE_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	return ioctl(fd, SIOCSIFFLAGS, &request) < 0 ? -errno : 0;
}

/* The small root, with all that PREPARE puts in it; the host's is gone after it. */
static int leave_host(struct setup *setup, struct failure *failure)
{
	static const char *const options[] = {"mode",      "0755", "size", "256k",
					      "nr_inodes", "128",  NULL};
	static const char *const directories[] = {"proc", "dev", "l", "k", "b", "t", "r", "empty"};
	const char *step = "a root of its own";
	struct mount_attr private = {.propagation = 1 << 18 /* MS_PRIVATE */};
	int result = sys_mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &private);
	if (result < 0)
		return fail(failure, result, "making mounts private");
	CLOSE_FD int root = fs_make("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (root < 0)
		return fail(failure, root, step);
	result = fs_attach(root, "/");
	if (result >= 0 && fchdir(root) < 0)
		result = -errno;
	for (size_t i = 0; result >= 0 && i < ARRAY_SIZE(directories); i++)
		result = fs_directory(directories[i], 0555);
	if (result < 0)
		return fail(failure, result, step);
	setup->meminfo = open("meminfo", O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0444);
	if (setup->meminfo < 0)
		return fail(failure, errno, "meminfo");
	result = setup_devices("dev", &step);
	if (result >= 0)
		result = setup_proc("proc", "dev/null", "empty", "meminfo", &step);
	if (result < 0)
		return fail(failure, result, step);
	result = fs_enter(".");
	if (result < 0)
		return fail(failure, result, "leaving the host's root");
	if (harden_before_readonly(failure) < 0)
		return -1;
	result = setup_proc_readonly("proc", &step);
	return result < 0 ? fail(failure, result, step) : 0;
}

static void take_prepare_fds(struct setup *setup, const struct boot_prepare *request, int *fds)
{
	int *next = fds;
	setup->listener = TAKE_FD(*next++);
	for (uint32_t i = 0; i < request->work_cgroup_count; i++)
		setup->work_cgroups[i] = TAKE_FD(*next++);
	setup->work_cgroup_count = request->work_cgroup_count;
	if (request->has_memory) {
		setup->memory_usage = TAKE_FD(*next++);
		setup->memory_limit = TAKE_FD(*next++);
		setup->memory_stat = TAKE_FD(*next++);
	}
	if (request->has_processes)
		setup->process_events = TAKE_FD(*next++);
}

static void close_all(int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		fd_close(&fds[i]);
}

static int prepare(struct setup *setup, struct failure *failure)
{
	struct boot_prepare request;
	int fds[BOOT_FDS_MAX];
	size_t fd_count = ARRAY_SIZE(fds);
	ssize_t got = fd_receive(BOOT_FD, &request, sizeof(request), fds, &fd_count);
	report_begin(BOOT_PREPARE);
	if (got < 0)
		return fail(failure, (int)got, "receiving PREPARE");
	if (got != (ssize_t)sizeof(request) || request.type != BOOT_PREPARE ||
	    request.work_cgroup_count > WORK_CGROUPS_MAX || request.has_memory > 1 ||
	    request.has_processes > 1 ||
	    fd_count !=
		1 + request.work_cgroup_count + 3 * request.has_memory + request.has_processes) {
		close_all(fds, fd_count);
		return fail(failure, EBADMSG, "PREPARE");
	}
	take_prepare_fds(setup, &request, fds);
	if (leave_host(setup, failure) < 0)
		return -1;
	phase_done("mounts");
	int result = loopback_up();
	if (result < 0)
		return fail(failure, result, "bringing the loopback up");
	phase_done("loopback");
	return 0;
}

/* Kernels before 6.13 take no descriptors here, and these name the same by path. */
static int overlay_layers(int fs, const int *lowers, uint32_t lower_count, const char *lower_text,
			  const char *upper, const char *work)
{
	int result = 0;
	bool by_descriptor = true;
	for (uint32_t i = 0; by_descriptor && i < lower_count; i++) {
		result = sys_fsconfig(fs, FSCONFIG_SET_FD, "lowerdir+", NULL, lowers[i]);
		if (result == -EOPNOTSUPP || result == -EINVAL)
			by_descriptor = false;
		else if (result < 0)
			return result;
	}
	if (!by_descriptor)
		result = sys_fsconfig(fs, FSCONFIG_SET_STRING, "lowerdir", lower_text, 0);
	if (result >= 0 && upper)
		result = sys_fsconfig(fs, FSCONFIG_SET_STRING, "upperdir", upper, 0);
	if (result >= 0 && upper)
		result = sys_fsconfig(fs, FSCONFIG_SET_STRING, "workdir", work, 0);
	return result;
}

/* A detached overlay; without an upper directory it is read-only for good. `userxattr`: what an
 * overlay notes down goes to user.* attributes, the only ones that a user namespace may write. */
static int overlay_make(const int *lowers, uint32_t lower_count, const char *lower_text,
			const char *upper, const char *work)
{
	CLOSE_FD int fs = sys_fsopen("overlay", FSOPEN_CLOEXEC);
	if (fs < 0)
		return fs;
	int result = sys_fsconfig(fs, FSCONFIG_SET_STRING, "source", "caisson", 0);
	if (result >= 0)
		result = sys_fsconfig(fs, FSCONFIG_SET_FLAG, "userxattr", NULL, 0);
	if (result >= 0)
		result = overlay_layers(fs, lowers, lower_count, lower_text, upper, work);
	if (result < 0)
		return result;
	/* The disk's own unmount writes everything; syncs from inside and when the overlay goes
	 * would only make both slower. Not known to every kernel, and no harm without it. */
	if (upper)
		result = sys_fsconfig(fs, FSCONFIG_SET_FLAG, "volatile", NULL, 0);
	if (result < 0 && result != -EINVAL)
		return result;
	result = sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
	if (result < 0)
		return result;
	return sys_fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

/* Attaches a detached mount at <directory>/<index>. */
static int stage(int mount_fd, const char *directory, uint32_t index)
{
	char path[32];
	int result = text_format(path, sizeof(path), "%s/%u", directory, index);
	if (result >= 0)
		result = fs_directory(path, 0555);
	return result < 0 ? result : fs_attach(mount_fd, path);
}

static int make_root(const struct boot_assign *request, int disk, const int *lowers,
		     struct failure *failure)
{
	char text[OVERLAY_LOWERS_TEXT] = "";
	size_t used = 0;
	int result = fs_attach(disk, "k");
	if (result < 0)
		return fail(failure, result, "attaching the disk");
	for (uint32_t i = 0; i < request->lower_count; i++) {
		result = stage(lowers[i], "l", i);
		if (result < 0)
			return fail(failure, result, "attaching a layer");
		used +=
		    (size_t)snprintf(text + used, sizeof(text) - used, "%sl/%u", i ? ":" : "", i);
		if (used >= sizeof(text))
			return fail(failure, E2BIG, "too many layers");
	}
	CLOSE_FD int root = overlay_make(lowers, request->lower_count, text, "k/upper", "k/work");
	if (root < 0)
		return fail(failure, root, "the root's overlay");
	result = fs_attach(root, "r");
	return result < 0 ? fail(failure, result, "attaching the root") : 0;
}

static const char *const places[] = {
    [PLACE_USR] = "r/usr", [PLACE_BIN] = "r/bin",     [PLACE_SBIN] = "r/sbin",
    [PLACE_LIB] = "r/lib", [PLACE_LIB32] = "r/lib32", [PLACE_LIB64] = "r/lib64",
};

/* An overlay over a bind of the host's. A file that is shared with the host and with other
 * sandboxes carries more than its content: who watches it (inotify) sees what they run and when,
 * and who locks it (flock) stops those of them that lock it too. The overlay has files of its own;
 * their content is the same pages of the same cache. Not where the host's is itself two overlays
 * deep, or has something mounted in it that must stay: then it is bound as it is. */
static int cover(int bind, uint32_t index)
{
	char lower[32];
	int lowers[2] = {bind, -1};
	int result = stage(bind, "b", index);
	if (result >= 0)
		result = text_format(lower, sizeof(lower), "b/%u:empty", index);
	if (result < 0)
		return result;
	CLOSE_FD int empty = open("empty", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (empty < 0)
		return -errno;
	lowers[1] = empty;
	return overlay_make(lowers, ARRAY_SIZE(lowers), lower, NULL, NULL);
}

static int attach_binds(const struct boot_assign *request, const int *binds,
			struct failure *failure)
{
	for (uint32_t i = 0; i < request->bind_count; i++) {
		uint32_t place = request->bind_places[i];
		if (place >= ARRAY_SIZE(places) || !places[place])
			return fail(failure, EBADMSG, "a place that is not known");
		int result = fs_directory(places[place], 0755);
		CLOSE_FD int covered = result < 0 ? -1 : cover(binds[i], i);
		if (result >= 0)
			result = fs_attach(covered >= 0 ? covered : binds[i], places[place]);
		if (result < 0)
			return fail(failure, result, places[place] + 1);
	}
	return 0;
}

/* A user's folder as it will be placed: as it came (a read-only one with flags that are locked), or
 * below an overlay that takes the changes. */
static int make_tree(struct setup *setup, uint32_t index, uint32_t mode, int *tree)
{
	char lower[32], upper[32], work[32];
	if (mode != MOUNT_COPY_ON_WRITE) {
		setup->trees[index] = TAKE_FD(*tree);
		return 0;
	}
	int result = stage(*tree, "t", index);
	if (result >= 0)
		result = text_format(lower, sizeof(lower), "t/%u", index);
	if (result >= 0)
		result = text_format(upper, sizeof(upper), "k/cow/%u/upper", index);
	if (result >= 0)
		result = text_format(work, sizeof(work), "k/cow/%u/work", index);
	if (result >= 0)
		result = overlay_make(tree, 1, lower, upper, work);
	if (result < 0)
		return result;
	setup->trees[index] = result;
	return 0;
}

static int make_trees(struct setup *setup, const struct boot_assign *request, int *trees,
		      struct failure *failure)
{
	for (uint32_t i = 0; i < request->tree_count; i++) {
		uint32_t mode = request->tree_modes[i];
		int result =
		    mode > MOUNT_COPY_ON_WRITE ? -EBADMSG : make_tree(setup, i, mode, &trees[i]);
		if (result < 0) {
			char what[64];
			snprintf(what, sizeof(what), "folder %u", i);
			return fail(failure, result, what);
		}
		setup->tree_modes[i] = mode;
		setup->tree_count = i + 1;
	}
	return 0;
}

/* Directories that every root has, whatever its template; and those that PREPARE made. */
static int furnish_root(const struct limits *limits, struct failure *failure)
{
	char size[32], inodes[32];
	const char *options[] = {"mode", "1777", "size", size, "nr_inodes", inodes, NULL};
	mode_t before = umask(0);
	int result = fs_directory("r/proc", 0555);
	if (result >= 0)
		result = fs_directory("r/dev", 0755);
	/* Nothing is mounted there, so that the user may have put something else in its place. */
	if (result >= 0 && mkdir("r/sys", 0555) < 0 && errno != EEXIST)
		result = -errno;
	if (result >= 0)
		result = fs_move("proc", "r/proc");
	if (result >= 0)
		result = fs_move("dev", "r/dev");
	/* The user may have put something else in the place of these two: then it stays. */
	if (result >= 0 && mkdir("r/tmp", 01777) < 0 && errno != EEXIST)
		result = -errno;
	if (result >= 0 && mkdir("r/workspace", 0777) < 0 && errno != EEXIST)
		result = -errno;
	umask(before);
	if (result >= 0)
		result = text_format(size, sizeof(size), "%lluk",
				     (unsigned long long)(limits->memory / 2 / KIB));
	if (result >= 0)
		result = text_format(inodes, sizeof(inodes), "%llu",
				     (unsigned long long)(limits->memory / 2 / (4 * KIB)));
	/* Its pages count as memory of whoever wrote them: half of it keeps a full one from being
	 * an out-of-memory kill. So does 1 KiB for each inode, which such a kill would not free:
	 * one for every page. */
	if (result >= 0)
		result =
		    fs_mount("tmpfs", options,
			     MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, "r/dev/shm");
	return result < 0 ? fail(failure, result, "furnishing the root") : 0;
}

static int assign_fds(struct setup *setup, const struct boot_assign *request, int *fds,
		      struct failure *failure)
{
	int *lowers = fds + 1;
	int *binds = lowers + request->lower_count;
	int *trees = binds + request->bind_count;
	setup->limits = request->limits;
	setup->flags = request->flags;
	if (make_root(request, fds[0], lowers, failure) < 0)
		return -1;
	phase_done("overlay");
	if (attach_binds(request, binds, failure) < 0 ||
	    make_trees(setup, request, trees, failure) < 0 ||
	    furnish_root(&request->limits, failure) < 0)
		return -1;
	int result = fs_enter("r");
	if (result < 0)
		return fail(failure, result, "entering the root");
	setup_refresh_meminfo(setup);
	phase_done("root");
	return 0;
}

static int assign(struct setup *setup, struct failure *failure)
{
	struct boot_assign request;
	int fds[BOOT_FDS_MAX];
	size_t fd_count = ARRAY_SIZE(fds);
	ssize_t got = fd_receive(BOOT_FD, &request, sizeof(request), fds, &fd_count);
	report_begin(BOOT_ASSIGN);
	if (got < 0)
		return fail(failure, (int)got, "receiving ASSIGN");
	int result = -1;
	if (got != (ssize_t)sizeof(request) || request.type != BOOT_ASSIGN ||
	    request.lower_count == 0 || request.lower_count > BOOT_LOWERS_MAX ||
	    request.bind_count > BOOT_BINDS_MAX || request.tree_count > SANDBOX_MOUNTS_MAX ||
	    fd_count != 1 + request.lower_count + request.bind_count + request.tree_count)
		fail(failure, EBADMSG, "ASSIGN");
	else
		result = assign_fds(setup, &request, fds, failure);
	/* The layers' are the ones that must not stay. */
	close_all(fds, fd_count);
	return result;
}

static void clear(struct setup *setup)
{
	memset(setup, 0, sizeof(*setup));
	setup->listener = setup->meminfo = -1;
	setup->memory_usage = setup->memory_limit = setup->memory_stat = -1;
	setup->process_events = -1;
	for (size_t i = 0; i < ARRAY_SIZE(setup->work_cgroups); i++)
		setup->work_cgroups[i] = -1;
	for (size_t i = 0; i < ARRAY_SIZE(setup->trees); i++)
		setup->trees[i] = -1;
}

void setup_channel(struct setup *ret_setup)
{
	struct rlimit files;
	clear(ret_setup);
	ret_setup->channel = true;
	if (getrlimit(RLIMIT_NOFILE, &files) == 0)
		ret_setup->limits.files = (uint32_t)files.rlim_max;
}

int setup_boot(struct setup *ret_setup, void (*prepared)(void), struct failure *ret_failure)
{
	struct setup *setup = ret_setup;
	clear(setup);
	memset(ret_failure, 0, sizeof(*ret_failure));
	umask(022);
	int result = prepare(setup, ret_failure);
	report_send(result >= 0, ret_failure);
	if (result < 0)
		return -1;
	prepared();
	result = assign(setup, ret_failure);
	report_send(result >= 0, ret_failure);
	return result < 0 ? -1 : 0;
}

void setup_ready(void)
{
	report_begin(0);
	report_send(true, NULL);
	close(BOOT_FD);
}

/* Like mkdir -p and open(O_PATH), in the sandbox's root; no component may lead through a magic link
 * of /proc. The descriptor of the directory, or -errno. */
static int open_place(const char *path)
{
	struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
			       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	CLOSE_FD int at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (at < 0)
		return -errno;
	char prefix[GUEST_PATH_MAX];
	int result = text_copy(prefix, sizeof(prefix), path);
	if (result < 0)
		return result;
	for (char *slash = prefix + 1;; slash++) {
		if (*slash != '/' && *slash != '\0')
			continue;
		char separator = *slash;
		*slash = '\0';
		int place = sys_openat2(at, prefix, &how);
		if (place == -ENOENT) {
			if (mkdir(prefix, 0755) < 0)
				return -errno;
			place = sys_openat2(at, prefix, &how);
		}
		if (place < 0 || separator == '\0')
			return place;
		close(place);
		*slash = separator;
	}
}

/* Not over the root, nor in /proc or /dev, whose mounts keep the sandbox's own. */
static int check_place(int place)
{
	struct statfs filesystem;
	struct stat status, root;
	if (fstatfs(place, &filesystem) < 0 || fstat(place, &status) < 0 || stat("/", &root) < 0)
		return -errno;
	if (status.st_dev == root.st_dev && status.st_ino == root.st_ino)
		return -EBUSY;
	if (filesystem.f_type == PROC_MAGIC || filesystem.f_type == TMPFS_MAGIC_NUMBER ||
	    filesystem.f_type == DEVPTS_MAGIC)
		return -EPERM;
	return 0;
}

int setup_place_tree(struct setup *setup, uint32_t index, const char *path,
		     struct failure *ret_failure)
{
	char what[200];
	memset(ret_failure, 0, sizeof(*ret_failure));
	snprintf(what, sizeof(what), "mounting at %.160s", path);
	if (index >= setup->tree_count || setup->trees[index] < 0)
		return fail(ret_failure, EBADF, what);
	if (path[0] != '/')
		return fail(ret_failure, EINVAL, what);
	CLOSE_FD int place = open_place(path);
	int result = place < 0 ? place : check_place(place);
	if (result >= 0)
		result = sys_move_mount(setup->trees[index], "", place, "",
					MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
	if (result < 0) {
		fail(ret_failure, result, what);
		ret_failure->kind = ERROR_INVALID;
		return -1;
	}
	fd_close(&setup->trees[index]);
	return 0;
}

void setup_close_trees(struct setup *setup)
{
	close_all(setup->trees, setup->tree_count);
}
