/* Another sandbox on the same host, whose objects must not be visible here. The neighbour runs
 * `caisson-probe --serve WORD`; the word is in PROBE_NEIGHBOUR here. */
#include <arpa/inet.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#include "probe.h"

#define SHARED_PROGRAM "/usr/bin/env"

/* All names come from one word, and keys and ports from a number made of it. */
static uint32_t neighbour_number(const char *word)
{
	uint32_t number = 2166136261U;
	for (; *word; word++)
		number = (number ^ (unsigned char)*word) * 16777619U;
	return number | 1;
}

static socklen_t abstract_address(const char *word, struct sockaddr_un *address)
{
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	int size = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "probe-%s", word);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)size);
}

static struct sockaddr_in port_address(const char *word)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_port =
					htons((uint16_t)(20000 + neighbour_number(word) % 20000)),
				    .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

static bool make_file(const char *format, const char *word)
{
	char path[128];
	snprintf(path, sizeof(path), format, word);
	int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0666);
	return fd >= 0 && fchmod(fd, 0666) == 0;
}

int neighbour_serve(const char *word)
{
	char name[128];
	struct sockaddr_un abstract;
	struct sockaddr_in port = port_address(word);
	socklen_t size = abstract_address(word, &abstract);
	int stream = socket(AF_UNIX, SOCK_STREAM, 0), network = socket(AF_INET, SOCK_STREAM, 0);
	snprintf(name, sizeof(name), "/probe-%s", word);
	key_t key = (key_t)neighbour_number(word);
	if (bind(stream, (struct sockaddr *)&abstract, size) < 0 || listen(stream, 8) < 0 ||
	    bind(network, (struct sockaddr *)&port, sizeof(port)) < 0 || listen(network, 8) < 0 ||
	    shmget(key, 4096, IPC_CREAT | 0666) < 0 || msgget(key, IPC_CREAT | 0666) < 0 ||
	    semget(key, 1, IPC_CREAT | 0666) < 0 ||
	    mq_open(name, O_CREAT | O_RDWR, 0666, NULL) < 0 ||
	    !make_file("/dev/shm/probe-%s", word) || !make_file("/tmp/probe-%s", word)) {
		perror("caisson-probe --serve");
		return 1;
	}
	/* A program in the shared layers. */
	int program = (int)open_path(SHARED_PROGRAM, O_RDONLY);
	if (program < 0 || flock(program, LOCK_EX | LOCK_NB) < 0) {
		perror(SHARED_PROGRAM);
		return 1;
	}
	printf("serving\n");
	fflush(stdout);
	alarm(300);
	for (;;) {
		struct timespec time = {0, 20000000};
		close((int)open_path(SHARED_PROGRAM, O_RDONLY));
		nanosleep(&time, NULL);
	}
}

/* Watches and locks belong to the inode, whatever mount it is reached through. */
static long try_neighbours_watched_program(void)
{
	int fd = (int)syscall(SYS_inotify_init1, O_NONBLOCK | O_CLOEXEC);
	struct timespec time = {0, 300000000};
	char events[4096];
	if (!getenv("PROBE_NEIGHBOUR"))
		return UNTRIED;
	if (syscall(SYS_inotify_add_watch, fd, SHARED_PROGRAM, 0xfff) < 0)
		return -1;
	nanosleep(&time, NULL);
	return read(fd, events, sizeof(events)) > 0 ? 0 : absent();
}

static long try_neighbours_locked_program(void)
{
	if (!getenv("PROBE_NEIGHBOUR"))
		return UNTRIED;
	return flock((int)open_path(SHARED_PROGRAM, O_RDONLY), LOCK_EX | LOCK_NB);
}

static const char *neighbour_value(void)
{
	return getenv("PROBE_NEIGHBOUR");
}

static long try_neighbours_abstract_socket(void)
{
	struct sockaddr_un address;
	if (!neighbour_value())
		return UNTRIED;
	socklen_t size = abstract_address(neighbour_value(), &address);
	return connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&address, size);
}

static long try_neighbours_port(void)
{
	if (!neighbour_value())
		return UNTRIED;
	struct sockaddr_in address = port_address(neighbour_value());
	return connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&address,
		       sizeof(address));
}

static long try_neighbours_shared_memory(void)
{
	return neighbour_value() ? shmget((key_t)neighbour_number(neighbour_value()), 0, 0)
				 : UNTRIED;
}

static long try_neighbours_messages(void)
{
	return neighbour_value() ? msgget((key_t)neighbour_number(neighbour_value()), 0) : UNTRIED;
}

static long try_neighbours_semaphores(void)
{
	return neighbour_value() ? semget((key_t)neighbour_number(neighbour_value()), 0, 0)
				 : UNTRIED;
}

static long try_neighbours_queue(void)
{
	char name[128];
	if (!neighbour_value())
		return UNTRIED;
	snprintf(name, sizeof(name), "/probe-%s", neighbour_value());
	return mq_open(name, O_RDONLY);
}

static long find_file(const char *format)
{
	char path[128];
	if (!neighbour_value())
		return UNTRIED;
	snprintf(path, sizeof(path), format, neighbour_value());
	return access(path, F_OK);
}

static long try_neighbours_shared_file(void)
{
	return find_file("/dev/shm/probe-%s");
}

static long try_neighbours_file(void)
{
	return find_file("/tmp/probe-%s");
}

/* Finds its process by the command line. */
static long try_neighbours_process(void)
{
	char path[64], text[256];
	if (!neighbour_value())
		return UNTRIED;
	for (int pid = 1; pid < 70000; pid++) {
		snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
		int fd = (int)open_path(path, O_RDONLY);
		if (fd < 0)
			continue;
		ssize_t size = read(fd, text, sizeof(text));
		close(fd);
		if (size > 0 &&
		    memmem(text, (size_t)size, neighbour_value(), strlen(neighbour_value())))
			return 0;
	}
	return absent();
}

static const struct attempt neighbours_list[] = {
    TRY(neighbours_abstract_socket), TRY(neighbours_port),           TRY(neighbours_shared_memory),
    TRY(neighbours_messages),        TRY(neighbours_semaphores),     TRY(neighbours_queue),
    TRY(neighbours_shared_file),     TRY(neighbours_file),           TRY(neighbours_process),
    TRY(neighbours_watched_program), TRY(neighbours_locked_program),
};
ATTEMPTS(neighbours);
