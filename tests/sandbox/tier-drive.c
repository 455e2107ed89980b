/* Drives the namespace tier without a spawner: boots sandboxes, adopts them again as a new spawner
 * would, freezes, counts, kills and erases them, and looks for what must not be left. Prints p50
 * and p99 of each phase in microseconds.
 *
 * tier-drive STATE RUNTIME INIT [COUNT]: two empty directories of its own, an installed
 * caisson-init (root's, 0711). Run as root. Also `tier-drive STATE RUNTIME INIT shell COMMAND...`
 * for an init that was built to run lines sent to its socket. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "tier/driver.h"

#define SAMPLES_MAX 2000
#define SERIES_MAX 32

static struct {
	char name[24];
	uint32_t values[SAMPLES_MAX];
	size_t count;
} series[SERIES_MAX];
static int failures;

static void sample(const char *name, uint64_t microseconds)
{
	size_t i = 0;
	while (i < SERIES_MAX && series[i].name[0] && strcmp(series[i].name, name) != 0)
		i++;
	if (i == SERIES_MAX || series[i].count == SAMPLES_MAX)
		return;
	snprintf(series[i].name, sizeof(series[i].name), "%s", name);
	series[i].values[series[i].count++] = (uint32_t)microseconds;
}

static int compare(const void *a, const void *b)
{
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
	return (left > right) - (left < right);
}

static void print_samples(void)
{
	printf("%-12s %8s %8s %8s\n", "phase", "p50", "p99", "max");
	for (size_t i = 0; i < SERIES_MAX && series[i].count; i++) {
		size_t count = series[i].count;
		qsort(series[i].values, count, sizeof(series[i].values[0]), compare);
		printf("%-12s %8u %8u %8u\n", series[i].name, series[i].values[count / 2],
		       series[i].values[count * 99 / 100], series[i].values[count - 1]);
	}
}

static void fail(const char *what, const struct error *error)
{
	printf("not ok %s: %s\n", what, error ? error->message : "");
	failures++;
}

static size_t count_lines(const char *path, const char *part)
{
	char line[4096];
	size_t count = 0;
	FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		count += strstr(line, part) != NULL;
	if (file)
		fclose(file);
	return count;
}

/* Loop devices whose backing file is below our state directory. */
static size_t count_loops(const char *state)
{
	char path[300];
	size_t count = 0;
	DIR *directory = opendir("/sys/block");
	for (struct dirent *entry; directory && (entry = readdir(directory));) {
		snprintf(path, sizeof(path), "/sys/block/%s/loop/backing_file", entry->d_name);
		count += strncmp(entry->d_name, "loop", 4) == 0 && count_lines(path, state) > 0;
	}
	if (directory)
		closedir(directory);
	return count;
}

static size_t count_entries(const char *root, const char *name)
{
	char path[600];
	size_t count = 0;
	snprintf(path, sizeof(path), "%s/%s", root, name);
	DIR *directory = opendir(path);
	for (struct dirent *entry; directory && (entry = readdir(directory));)
		count += entry->d_name[0] != '.';
	if (directory)
		closedir(directory);
	return count;
}

/* The cgroups <hierarchy>/<instance>/<id> that are left, wherever cgroups are mounted. */
static size_t count_cgroups(const char *instance)
{
	char line[4096], path[600];
	size_t count = 0;
	FILE *file = fopen("/proc/self/mountinfo", "re");
	while (file && fgets(line, sizeof(line), file)) {
		char *type = strstr(line, " - cgroup"), place[256];
		if (!type || sscanf(line, "%*s %*s %*s %*s %255s", place) != 1)
			continue;
		snprintf(path, sizeof(path), "%s/%s", place, instance);
		DIR *directory = opendir(path);
		for (struct dirent *entry; directory && (entry = readdir(directory));)
			count += entry->d_type == DT_DIR && entry->d_name[0] != '.';
		if (directory)
			closedir(directory);
	}
	if (file)
		fclose(file);
	return count;
}

static bool nothing_known(void *data, const struct id *id)
{
	(void)data;
	(void)id;
	return false;
}

static void check_nothing_left(const struct host *host)
{
	/* The kernel frees a loop device a moment after its last user. */
	for (int wait = 0; wait < 100 && count_loops(host->state) > 0; wait++)
		nanosleep(&(struct timespec){.tv_nsec = 10 * NSEC_PER_MSEC}, NULL);
	size_t loops = count_loops(host->state), cgroups = count_cgroups(host->instance);
	size_t files =
	    count_entries(host->state, "sandboxes") + count_entries(host->state, "trash");
	size_t guests = count_entries(host->runtime, "guests");
	size_t mounts = count_lines("/proc/self/mountinfo", host->state);
	bool child = waitpid(-1, NULL, WNOHANG) >= 0;
	printf("left: %zu loop devices, %zu cgroups, %zu files, %zu guests, %zu mounts, %s\n",
	       loops, cgroups, files, guests, mounts, child ? "a process" : "no process");
	failures += loops || cgroups || files || guests || mounts || child;
}

static int connect_init(const struct host *host, const struct id *id)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || guest_socket_path(host->runtime, id, address.sun_path) < 0 ||
	    connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static uint64_t since(int64_t start)
{
	return (uint64_t)((clock_monotonic() - start) / NSEC_PER_USEC);
}

static struct spawn_create default_create(void)
{
	return (struct spawn_create){.tier = TIER_NAMESPACE,
				     .limits = {.memory = SANDBOX_MEMORY_DEFAULT,
						.disk = SANDBOX_DISK_DEFAULT,
						.inodes = 65536,
						.cpu_millis = SANDBOX_CPU_MILLIS_DEFAULT,
						.pids = SANDBOX_PIDS_DEFAULT,
						.files = SANDBOX_FILES_DEFAULT}};
}

/* What the spawner does around the driver's part of it. */
static void make_files(const struct host *host, const struct id *id)
{
	char path[600];
	snprintf(path, sizeof(path), "%s/sandboxes/%s", host->state, id->text);
	if (mkdir(path, 0700) < 0)
		fail("its directory", NULL);
}

static void erase(const struct host *host, struct guest *guest)
{
	char from[600], to[600];
	struct error error;
	snprintf(from, sizeof(from), "%s/sandboxes/%s", host->state, guest->id.text);
	snprintf(to, sizeof(to), "%s/trash/%s", host->state, guest->id.text);
	if (rename(from, to) < 0 || namespace_driver.erase(host, guest, &error) < 0 ||
	    rmdir(to) < 0)
		fail("erase", NULL);
}

static void destroy(const struct host *host, struct guest *guest)
{
	struct error error;
	int64_t start = clock_monotonic();
	if (namespace_driver.kill(host, guest, &error) < 0)
		fail("kill", &error);
	sample("KILL", since(start));
	start = clock_monotonic();
	if (namespace_driver.release(host, guest, &error) < 0)
		fail("release", &error);
	sample("RELEASE", since(start));
	start = clock_monotonic();
	erase(host, guest);
	sample("ERASE", since(start));
}

/* One life: boot, adopt as another spawner, freeze or stop and start, end. */
static void one_life(const struct host *host, uint32_t number)
{
	struct error error;
	struct spawn_create create = default_create();
	struct boot boot = {.create = &create, .fresh = true};
	struct guest guest = {.id = id_new(), .slot = number % host->uid_slots};
	struct guest again = {.id = guest.id, .slot = guest.slot};
	make_files(host, &guest.id);
	int64_t start = clock_monotonic();
	if (namespace_driver.boot(host, &guest, &boot, &error) < 0)
		return fail("boot", &error);
	sample("BOOT", since(start));
	for (uint32_t i = 0; i < guest.phase_count; i++)
		sample(guest.phases[i].name, guest.phases[i].microseconds);
	int fd = connect_init(host, &guest.id);
	if (fd < 0)
		fail("connect", NULL);
	else
		close(fd);
	if (namespace_driver.adopt(host, &again, &error) != 1 || again.init.pid != guest.init.pid ||
	    memcmp(&again.limits, &guest.limits, sizeof(guest.limits)) != 0)
		fail("adopt", &error);
	process_done(&again.init);
	if (number % 3 == 0 && namespace_driver.freeze(host, &guest, true, &error) < 0)
		fail("freeze", &error);
	if (number % 3 == 1) {
		boot.fresh = false;
		if (namespace_driver.kill(host, &guest, &error) < 0 ||
		    namespace_driver.adopt(host, &again, &error) != 0 ||
		    namespace_driver.release(host, &guest, &error) < 0 ||
		    namespace_driver.boot(host, &guest, &boot, &error) < 0)
			return fail("start again", &error);
	}
	destroy(host, &guest);
}

static int say(const struct host *host, const struct id *id, const char *line)
{
	char text[4096];
	ssize_t got;
	int fd = connect_init(host, id);
	if (fd < 0 || write(fd, line, strlen(line)) < 0)
		return -1;
	while ((got = read(fd, text, sizeof(text))) > 0)
		fwrite(text, 1, (size_t)got, stdout);
	fflush(stdout);
	return close(fd);
}

/* Limits and folders come from the environment: this is for people. */
static void shell(const struct host *host, char **lines, int count)
{
	struct error error;
	struct spawn_create create = default_create();
	struct folder_grant mounts[SANDBOX_MOUNTS_MAX] = {0};
	struct boot boot = {.create = &create, .folders = mounts, .fresh = true};
	struct guest guest = {.id = id_new(), .slot = 7};
	uint64_t value;
	const char *text = getenv("DRIVE_MEMORY_MB");
	if (text && text_to_u64(text, 1, 1 << 20, &value) >= 0)
		create.limits.memory = value * MIB;
	text = getenv("DRIVE_DISK_MB");
	if (text && text_to_u64(text, 1, 1 << 20, &value) >= 0)
		create.limits.disk = value * MIB;
	text = getenv("DRIVE_UID");
	if (text && text_to_u64(text, 0, UINT32_MAX, &value) >= 0)
		for (size_t i = 0; i < SANDBOX_MOUNTS_MAX; i++)
			mounts[i].uid = mounts[i].gid = (uint32_t)value;
	text = getenv("DRIVE_FOLDER");
	for (uint32_t mode = 0; text && mode <= MOUNT_COPY_ON_WRITE; mode++) {
		mounts[mode].directory = open(text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		create.mount_modes[mode] = mode;
		create.mount_count = mode + 1;
	}
	make_files(host, &guest.id);
	if (namespace_driver.boot(host, &guest, &boot, &error) < 0)
		return fail("boot", &error);
	for (int i = 0; i < LIMIT_COUNT; i++)
		printf("%s: %s\n", limit_name((enum limit_kind)i),
		       limit_reason_text((enum limit_reason)guest.limit_reasons[i]));
	for (int i = 0; i < count; i++) {
		struct spawn_counters counters;
		printf("--- %s\n", lines[i]);
		fflush(stdout);
		if (strcmp(lines[i], "STOP-START") == 0) {
			boot.fresh = false;
			if (namespace_driver.kill(host, &guest, &error) < 0 ||
			    namespace_driver.release(host, &guest, &error) < 0 ||
			    namespace_driver.boot(host, &guest, &boot, &error) < 0)
				return fail("start again", &error);
		} else if (strcmp(lines[i], "FREEZE") == 0 || strcmp(lines[i], "THAW") == 0) {
			if (namespace_driver.freeze(host, &guest, lines[i][0] == 'F', &error) < 0)
				fail("freeze", &error);
		} else if (strcmp(lines[i], "LIMITS") == 0) {
			struct limits limits = guest.limits;
			limits.cpu_millis = 2000;
			limits.memory *= 2;
			if (namespace_driver.set_limits(host, &guest, &limits, &error) < 0)
				fail("limits", &error);
		} else if (strcmp(lines[i], "COUNTERS") == 0) {
			if (namespace_driver.counters(host, &guest, &counters, &error) < 0)
				fail("counters", &error);
			printf("cpu %llu ns memory %llu peak %llu oom %llu processes %u disk %llu "
			       "inodes %llu\n",
			       (unsigned long long)counters.cpu_ns,
			       (unsigned long long)counters.memory,
			       (unsigned long long)counters.memory_peak,
			       (unsigned long long)counters.oom_kills, counters.processes,
			       (unsigned long long)counters.disk,
			       (unsigned long long)counters.disk_inodes);
		} else if (say(host, &guest.id, lines[i]) < 0) {
			fail("the init's socket", NULL);
		}
	}
	destroy(host, &guest);
	print_samples();
	for (uint32_t i = 0; i < create.mount_count; i++)
		close(mounts[i]);
}

int main(int argc, char **argv)
{
	struct host host = {
	    .instance = "caisson-drive", .uid_base = UID_RANGE_BASE, .uid_slots = 64};
	uint64_t count = 20;
	if (argc < 4 || text_copy(host.state, sizeof(host.state), argv[1]) < 0 ||
	    text_copy(host.runtime, sizeof(host.runtime), argv[2]) < 0) {
		fprintf(stderr, "tier-drive STATE RUNTIME INIT [COUNT | shell LINE...]\n");
		return 2;
	}
	host.init_fd = open(argv[3], O_PATH | O_CLOEXEC);
	if (host.init_fd < 0) {
		perror(argv[3]);
		return 2;
	}
	static const char *const directories[] = {"sandboxes", "trash"};
	for (size_t i = 0; i < 2; i++) {
		char path[600];
		snprintf(path, sizeof(path), "%s/%s", host.state, directories[i]);
		if (mkdir(path, 0711) < 0 && errno != EEXIST)
			return 2;
	}
	struct error error;
	if (namespace_driver.prepare(&host, &error) < 0)
		fail("prepare", &error);
	if (argc > 4 && strcmp(argv[4], "shell") == 0) {
		shell(&host, argv + 5, argc - 5);
	} else {
		if (argc > 4 && text_to_u64(argv[4], 1, SAMPLES_MAX, &count) < 0)
			return 2;
		struct spawn_probe probe;
		namespace_driver.probe(&host, &probe);
		printf("probe: %s %s\n", probe.available ? "available" : "missing:", probe.missing);
		failures += !probe.available;
		for (uint32_t i = 0; i < count && failures < 5; i++)
			one_life(&host, i);
		print_samples();
	}
	check_nothing_left(&host);
	if (namespace_driver.sweep(&host, nothing_known, NULL, &error) < 0)
		fail("sweep", &error);
	printf("%s\n", failures ? "not ok" : "ok");
	return failures ? 1 : 0;
}
