/* Walks /proc. Called by killing.c (killing), exec.c (left-over processes) and connection.c
 * (metrics). Reads /proc/PID/stat only: unlike cmdline it never waits for that process's memory. */
#include "init/exec/proc_scan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/limits.h"
#include "base/syscalls.h"
#include "init/runner/runners.h"

#define ENTRIES_MAX (SANDBOX_PIDS_MAX + 64)
#define COMMAND_SIZE 16

/* Further owners, beside a runner's pid and SCAN_STRAYS. */
#define OWNER_NOBODY                                                                               \
	((pid_t)0) /* PID 1, the launcher, runners, processes that entered from outside */
#define OWNER_UNKNOWN ((pid_t)-2) /* its parent was not seen */
#define OWNER_UNSETTLED ((pid_t)-3)

struct proc_entry {
	pid_t pid, parent, owner;
	pid_t group, foreground; /* its process group; the foreground group of its terminal */
	char state;
	bool several_threads;
	char command[COMMAND_SIZE];
};

static struct proc_entry entries[ENTRIES_MAX];
static uint32_t entry_count;
static int proc_fd = -1;

int scan_begin(void)
{
	proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return proc_fd < 0 ? -errno : 0;
}

/* Reads a decimal number after spaces; *at then points behind it. */
static long number_take(const char **at)
{
	while (**at == ' ')
		(*at)++;
	bool negative = **at == '-';
	*at += negative;
	unsigned long value = 0;
	for (; **at >= '0' && **at <= '9'; (*at)++)
		value = value * 10 + (unsigned long)(**at - '0');
	return negative ? (long)-value : (long)value;
}

/* "PID (COMMAND) STATE PARENT GROUP SESSION TERMINAL FOREGROUND ...": the command may hold
 * anything, so that it ends at the last ')'. Field 20 is the number of threads. */
static bool entry_parse_stat(char *text, struct proc_entry *entry)
{
	char *open = strchr(text, '(');
	char *close = strrchr(text, ')');
	if (!open || !close || close < open || close[1] != ' ' || !close[2] || close[3] != ' ')
		return false;
	*close = '\0';
	snprintf(entry->command, sizeof(entry->command), "%s", open + 1);
	entry->state = close[2];
	const char *at = close + 3;
	entry->parent = (pid_t)number_take(&at);
	entry->group = (pid_t)number_take(&at);
	number_take(&at);
	number_take(&at);
	entry->foreground = (pid_t)number_take(&at);
	for (int field = 9; field < 20; field++)
		number_take(&at);
	entry->several_threads = number_take(&at) > 1;
	return true;
}

static bool entry_read(const char *name, struct proc_entry *entry)
{
	char path[32], text[512];
	snprintf(path, sizeof(path), "%s/stat", name);
	int fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t got = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (got <= 0)
		return false;
	text[got] = '\0';
	entry->pid = (pid_t)number_take(&name);
	return entry_parse_stat(text, entry);
}

struct directory_entry {
	uint64_t inode;
	int64_t offset;
	unsigned short length;
	unsigned char type;
	char name[];
};

static void entries_read(void)
{
	static char room[32 * 1024] __attribute__((aligned(8)));
	entry_count = 0;
	lseek(proc_fd, 0, SEEK_SET);
	for (;;) {
		long got = syscall(__NR_getdents64, proc_fd, room, sizeof(room));
		if (got <= 0)
			return;
		for (long at = 0; at < got;) {
			struct directory_entry *item = (struct directory_entry *)(room + at);
			at += item->length;
			if (item->name[0] < '1' || item->name[0] > '9')
				continue;
			if (entry_count == ENTRIES_MAX)
				return;
			if (entry_read(item->name, &entries[entry_count]))
				entry_count++;
		}
	}
}

/* The kernel lists /proc by ascending pid. */
static struct proc_entry *entry_find(pid_t pid)
{
	uint32_t low = 0, high = entry_count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (entries[middle].pid == pid)
			return &entries[middle];
		if (entries[middle].pid < pid)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

/* The owner of a process, if it is known without the owner of its parent. */
static pid_t entry_direct_owner(const struct proc_entry *entry)
{
	if (entry->pid == 1 || entry->parent == 0)
		return OWNER_NOBODY;
	if (entry->parent == 1)
		return runners_include(entry->pid) ? OWNER_NOBODY : SCAN_STRAYS;
	if (runners_include(entry->parent))
		return entry->parent;
	return OWNER_UNSETTLED;
}

/* Follows the parents up to one whose owner is known, and gives that owner to all on the way.
 * The number of steps is bounded: entries were read at different times and could even form a
 * circle. */
static void entry_resolve_owner(struct proc_entry *entry)
{
	pid_t owner = OWNER_UNSETTLED;
	uint32_t steps = 0;
	for (struct proc_entry *at = entry; owner == OWNER_UNSETTLED && steps <= entry_count;
	     steps++) {
		owner = at->owner;
		if (owner != OWNER_UNSETTLED)
			break;
		struct proc_entry *parent = entry_find(at->parent);
		if (!parent) {
			owner = OWNER_UNKNOWN;
			break;
		}
		at = parent;
	}
	if (owner == OWNER_UNSETTLED)
		owner = OWNER_UNKNOWN;
	for (struct proc_entry *at = entry; at && at->owner == OWNER_UNSETTLED;
	     at = entry_find(at->parent))
		at->owner = owner;
}

bool scan_processes(void)
{
	bool complete = true;
	entries_read();
	for (uint32_t i = 0; i < entry_count; i++)
		entries[i].owner = entry_direct_owner(&entries[i]);
	for (uint32_t i = 0; i < entry_count; i++) {
		entry_resolve_owner(&entries[i]);
		complete = complete && entries[i].owner != OWNER_UNKNOWN;
	}
	return complete && entry_count < ENTRIES_MAX;
}

/* A runner that was reaped has the pid 0: no process is below it. */
static bool entry_is_below(const struct proc_entry *entry, pid_t below)
{
	return below != OWNER_NOBODY && entry->owner == below;
}

/* A main thread that has ended is shown as a zombie while its other threads run on. */
static bool entry_is_live(const struct proc_entry *entry)
{
	return (entry->state != 'Z' && entry->state != 'X') || entry->several_threads;
}

uint32_t scan_count_live(pid_t below)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < entry_count; i++)
		count += entry_is_below(&entries[i], below) && entry_is_live(&entries[i]);
	return count;
}

uint32_t scan_count_running(pid_t below)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < entry_count; i++)
		count += entry_is_below(&entries[i], below) && entry_is_live(&entries[i]) &&
			 entries[i].state != 'T' && entries[i].state != 't';
	return count;
}

void scan_signal(pid_t below, int signal)
{
	for (uint32_t i = 0; i < entry_count; i++)
		if (entry_is_below(&entries[i], below) && entry_is_live(&entries[i]))
			kill(entries[i].pid, signal);
}

void scan_each(pid_t below, void (*each)(void *data, pid_t pid, const char *command), void *data)
{
	for (uint32_t i = 0; i < entry_count; i++)
		if (entry_is_below(&entries[i], below) && entry_is_live(&entries[i]))
			each(data, entries[i].pid, entries[i].command);
}

uint32_t scan_count_all(void)
{
	return entry_count;
}

bool scan_signal_foreground(pid_t pid, pid_t parent, int signal)
{
	char name[16];
	struct proc_entry leader;
	bool any = false;
	snprintf(name, sizeof(name), "%d", (int)pid);
	if (!entry_read(name, &leader) || leader.parent != parent || leader.foreground <= 1)
		return false;
	/* Signals each process by itself: the number of a group that has ended may be in use
	 * again. */
	scan_processes();
	for (uint32_t i = 0; i < entry_count; i++) {
		const struct proc_entry *entry = &entries[i];
		if (entry_is_below(entry, parent) && entry_is_live(entry) &&
		    entry->group == leader.foreground)
			any = kill(entry->pid, signal) == 0 || any;
	}
	return any;
}

void scan_signal_child(pid_t pid, pid_t parent, int signal)
{
	/* Opens the pidfd first and checks the parent then: the signal goes to the checked
	 * process, even if its number is used again. */
	CLOSE_FD int pidfd = sys_pidfd_open(pid, 0);
	char name[16];
	struct proc_entry entry;
	snprintf(name, sizeof(name), "%d", (int)pid);
	if ((pidfd < 0 && pidfd != -ENOSYS) || !entry_read(name, &entry) || entry.parent != parent)
		return;
	if (pidfd >= 0)
		sys_pidfd_send_signal(pidfd, signal);
	else /* gVisor has no pidfds; it does not use numbers again for a long time */
		kill(pid, signal);
}
