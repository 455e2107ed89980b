/* Floods: each uses up a resource until the kernel refuses, holds it for a moment, and prints
 * what stopped it: "NAME stopped ERRNO COUNT" or, at a bound that every limit should prevent,
 * "NAME endless COUNT". Being killed also counts as stopped; the caller sees that. */
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "probe.h"

#define HOLD_NANOSECONDS 300000000
#define PAGE 4096
#define BLOCK (1 << 20)

static void flood_hold(void)
{
	struct timespec time = {0, HOLD_NANOSECONDS};
	nanosleep(&time, NULL);
}

static long flood_stopped(long count)
{
	int saved = errno;
	flood_hold();
	errno = saved;
	return count;
}

/* Each returns how far it got, with errno; or -1 if nothing stopped it. */

static long flood_processes(void)
{
	for (long count = 0; count < 100000; count++) {
		pid_t pid = fork();
		if (pid < 0)
			return flood_stopped(count);
		if (pid == 0) {
			/* The exec lasts as long as any of these processes. */
			prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
			pause();
			_exit(0);
		}
	}
	return -1;
}

/* Children that are never waited for. */
static long flood_zombies(void)
{
	for (long count = 0; count < 100000; count++) {
		pid_t pid = fork();
		if (pid < 0)
			return flood_stopped(count);
		if (pid == 0)
			_exit(0);
	}
	return -1;
}

static long flood_memory(void)
{
	for (long count = 0; count < 65536; count++) {
		char *block =
		    mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (block == MAP_FAILED)
			return flood_stopped(count);
		for (size_t at = 0; at < BLOCK; at += PAGE)
			block[at] = 1;
	}
	return -1;
}

static long flood_shared_memory(void)
{
	static char block[BLOCK];
	memset(block, 1, sizeof(block));
	int fd = open("/dev/shm/flood", O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
	for (long count = 0; fd >= 0 && count < 65536; count++) {
		if (write(fd, block, sizeof(block)) < 0) {
			int saved = errno;
			unlink("/dev/shm/flood");
			errno = saved;
			return flood_stopped(count);
		}
	}
	return -1;
}

static long flood_disk(void)
{
	static char block[BLOCK];
	memset(block, 1, sizeof(block));
	int fd = open("/tmp/flood", O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
	for (long count = 0; fd >= 0 && count < 65536; count++) {
		if (write(fd, block, sizeof(block)) < 0) {
			int saved = errno;
			unlink("/tmp/flood");
			errno = saved;
			return flood_stopped(count);
		}
	}
	return -1;
}

static void remove_inodes(const char *directory, long count)
{
	char path[64];
	for (long i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/%ld", directory, i);
		unlink(path);
	}
	rmdir(directory);
}

static long use_up_inodes(const char *directory)
{
	char path[64];
	mkdir(directory, 0700);
	for (long count = 0; count < 4000000; count++) {
		snprintf(path, sizeof(path), "%s/%ld", directory, count);
		if (symlink("x", path) < 0) {
			int saved = errno;
			remove_inodes(directory, count);
			errno = saved;
			return count;
		}
	}
	return -1;
}

static long flood_inodes(void)
{
	return use_up_inodes("/tmp/flood-inodes");
}

static long flood_shared_inodes(void)
{
	return use_up_inodes("/dev/shm/flood-inodes");
}

static long flood_descriptors(void)
{
	for (long count = 0; count < 4000000; count++) {
		if (dup(0) < 0)
			return flood_stopped(count);
	}
	return -1;
}

static long flood_terminals(void)
{
	for (long count = 0; count < 4000; count++) {
		if (open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC) < 0)
			return flood_stopped(count);
	}
	return -1;
}

static long flood_watches(void)
{
	for (long count = 0; count < 4000; count++) {
		if (syscall(SYS_inotify_init1, O_CLOEXEC) < 0)
			return flood_stopped(count);
	}
	return -1;
}

static long flood_queues(void)
{
	char name[32];
	for (long count = 0; count < 4000; count++) {
		snprintf(name, sizeof(name), "flood-%ld", count);
		if (syscall(SYS_mq_open, name, O_CREAT | O_RDWR, 0600, NULL) < 0) {
			int saved = errno;
			for (long i = 0; i < count; i++) {
				snprintf(name, sizeof(name), "flood-%ld", i);
				syscall(SYS_mq_unlink, name);
			}
			errno = saved;
			return count;
		}
	}
	return -1;
}

/* The sandbox's memory: PROBE_MEMORY, else what /proc/meminfo says. */
static unsigned long long memory_total(void)
{
	char text[256] = "";
	if (getenv("PROBE_MEMORY"))
		return strtoull(getenv("PROBE_MEMORY"), NULL, 10);
	int fd = (int)open_path("/proc/meminfo", O_RDONLY);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		return 0;
	char *number = strpbrk(text, "0123456789");
	return number ? strtoull(number, NULL, 10) * 1024 : 0;
}

/* Opens a socket with a port of its own; -1: no more can be opened. */
static int open_receiver(struct sockaddr_in *ret_address)
{
	int receiver = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), room = 1 << 30;
	socklen_t size = sizeof(*ret_address);
	*ret_address =
	    (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	if (receiver < 0)
		return -1;
	setsockopt(receiver, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	if (bind(receiver, (struct sockaddr *)ret_address, sizeof(*ret_address)) < 0 ||
	    getsockname(receiver, (struct sockaddr *)ret_address, &size) < 0)
		return -1;
	return receiver;
}

/* Fills a socket that is not read; returns how much kernel memory it then holds. */
static unsigned long long fill_socket(int sender, int receiver, const struct sockaddr_in *address)
{
	static const char datagram[32000];
	uint32_t information[16] = {0};
	socklen_t information_size = sizeof(information);
	for (int i = 0; i < 14; i++)
		sendto(sender, datagram, sizeof(datagram), MSG_DONTWAIT,
		       (const struct sockaddr *)address, sizeof(*address));
	if (getsockopt(receiver, SOL_SOCKET, SO_MEMINFO, information, &information_size) < 0)
		return 0;
	return information[0]; /* SK_MEMINFO_RMEM_ALLOC */
}

/* Counts the bytes in the sockets, for a kernel that does not report them (gVisor's). */
static unsigned long long drain_sockets(const int *receivers, int count)
{
	static char datagram[32000];
	unsigned long long held = 0;
	for (int i = 0; i < count; i++) {
		for (ssize_t got;
		     (got = recv(receivers[i], datagram, sizeof(datagram), MSG_DONTWAIT)) > 0;)
			held += (unsigned long long)got;
	}
	return held;
}

/* Data in sockets is memory of the host too and must count against the sandbox's limit. All
 * sockets are opened first, because the kernel cannot refuse memory for data that arrives. At the
 * end this waits for a moment, so that the limit can stop it. */
static long flood_sockets(void)
{
	enum { SOCKETS = 2000 };
	static int receivers[SOCKETS];
	static struct sockaddr_in addresses[SOCKETS];
	unsigned long long held = 0, total = memory_total();
	int count = 0, sender = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	while (count < SOCKETS && (receivers[count] = open_receiver(&addresses[count])) >= 0)
		count++;
	for (int i = 0; i < count && (total == 0 || held <= 2 * total); i++)
		held += fill_socket(sender, receivers[i], &addresses[i]);
	if (held == 0)
		held = drain_sockets(receivers, count);
	if (held == 0)
		return -1; /* nothing arrived, so nothing was tried */
	if (total > 0 && held > total) {
		sleep(10); /* time for the limit to stop this */
		return -1;
	}
	errno = ENOBUFS;
	return flood_stopped((long)(held >> 20));
}

static long flood_timers(void)
{
	int timer;
	for (long count = 0; count < 4000000; count++) {
		if (syscall(SYS_timer_create, CLOCK_MONOTONIC, NULL, &timer) < 0)
			return flood_stopped(count);
	}
	return -1;
}

/* Far more output than an exec keeps: the exec's log bounds it, and this loop ends by itself. */
static long flood_output(void)
{
	static char block[BLOCK];
	memset(block, 'x', sizeof(block));
	for (int i = 0; i < 256; i++) {
		if (write(STDOUT_FILENO, block, sizeof(block)) < 0)
			return i;
	}
	errno = 0;
	return 256;
}

static const struct {
	const char *name;
	long (*run)(void);
} floods[] = {
    {"processes", flood_processes},
    {"zombies", flood_zombies},
    {"memory", flood_memory},
    {"shared_memory", flood_shared_memory},
    {"disk", flood_disk},
    {"inodes", flood_inodes},
    {"shared_inodes", flood_shared_inodes},
    {"descriptors", flood_descriptors},
    {"terminals", flood_terminals},
    {"watches", flood_watches},
    {"queues", flood_queues},
    {"sockets", flood_sockets},
    {"timers", flood_timers},
    {"output", flood_output},
};

void flood_list(void)
{
	for (size_t i = 0; i < COUNT(floods); i++)
		printf("flood %s\n", floods[i].name);
}

int flood_run(const char *name)
{
	signal(SIGCHLD, SIG_DFL);
	for (size_t i = 0; i < COUNT(floods); i++) {
		if (strcmp(floods[i].name, name) != 0)
			continue;
		long count = floods[i].run();
		if (count < 0)
			printf("\n%s endless\n", name);
		else
			printf("\n%s stopped %s %ld\n", name, strerror(errno), count);
		fflush(stdout);
		/* Forked processes end with the exec. */
		return count < 0;
	}
	fprintf(stderr, "caisson-probe: unknown flood \"%s\"\n", name);
	return 2;
}
