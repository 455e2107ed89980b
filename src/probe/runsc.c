/* The surroundings of a sandbox of the gvisor tier, from inside: the files of runsc
 * (src/tier/gvisor/root.h), its control socket, its processes, the channel between init and
 * shim, and the file server. None of them may be reachable; in another tier they do not exist. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "probe.h"

#define ROUNDS 200

/* Names in runsc's small root, reached by paths that lead up. */
static long try_files_of_runsc(void)
{
	static const char *const ways[] = {"",
					   "/..",
					   "/../../..",
					   "/proc/1/root",
					   "/proc/1/root/..",
					   "/proc/1/cwd/..",
					   "/proc/self/root/..",
					   "/proc/self/cwd/../../..",
					   "/dev/caisson/..",
					   "/dev/caisson/../../.."};
	static const char *const names[] = {"runsc", "b/config.json", "s/pid", "i/init", "errors"};
	char path[128];
	for (size_t w = 0; w < COUNT(ways); w++) {
		for (size_t n = 0; n < COUNT(names); n++) {
			snprintf(path, sizeof(path), "%s/%s", ways[w], names[n]);
			if (access(path, F_OK) == 0)
				return 0;
		}
	}
	return absent();
}

static long connect_unix(const char *path, size_t length)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	memcpy(address.sun_path, path, length);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	long result = connect(fd, (struct sockaddr *)&address,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
	int saved = errno;
	close(fd);
	errno = saved;
	return result;
}

/* An abstract socket in old releases, a file in runsc's state in new ones. */
static long try_control_socket_of_runsc(void)
{
	static const char abstract[] = "\0runsc-sandbox.caisson";
	static const char *const paths[] = {"/s/runsc-caisson.sock", "/../s/runsc-caisson.sock",
					    "/proc/1/root/s/runsc-caisson.sock",
					    "/run/runsc/runsc-caisson.sock",
					    "/var/run/runsc/runsc-caisson.sock"};
	for (size_t i = 0; i < COUNT(paths); i++) {
		if (connect_unix(paths[i], strlen(paths[i]) + 1) == 0)
			return 0;
	}
	return connect_unix(abstract, sizeof(abstract) - 1);
}

static bool is_of_host(const char *text)
{
	static const char *const words[] = {"runsc", "_shim", "caisson-shim", "gofer", "systemd"};
	for (size_t i = 0; i < COUNT(words); i++) {
		if (strstr(text, words[i]))
			return true;
	}
	return false;
}

static bool names_host(int pid, const char *file)
{
	char path[64], text[256];
	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	int fd = (int)open_path(path, O_RDONLY);
	ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	close(fd);
	if (size <= 0)
		return false;
	for (ssize_t i = 0; i < size; i++)
		text[i] = text[i] ? text[i] : ' ';
	text[size] = '\0';
	return is_of_host(text);
}

/* Looks in /proc, and signals processes that /proc does not show. */
static long try_processes_of_host(void)
{
	char path[32];
	for (int pid = 1; pid < 5000; pid++) {
		snprintf(path, sizeof(path), "/proc/%d", pid);
		bool shown = access(path, F_OK) == 0;
		if (shown && (names_host(pid, "comm") || names_host(pid, "cmdline")))
			return 0;
		/* It may have been started between the two checks. */
		if (!shown && kill(pid, 0) == 0 && access(path, F_OK) < 0 && kill(pid, 0) == 0)
			return 0;
	}
	return absent();
}

/* The descriptor itself: a process that has it can talk to the daemon as this sandbox's init. */
static long try_channel_of_init(void)
{
	char path[64];
	for (int fd = 0; fd < 64; fd++) {
		snprintf(path, sizeof(path), "/proc/1/fd/%d", fd);
		int copy = (int)open_path(path, O_RDWR);
		int kind = 0;
		socklen_t size = sizeof(kind);
		if (copy >= 0 && getsockopt(copy, SOL_SOCKET, SO_TYPE, &kind, &size) == 0)
			return 0;
		close(copy);
	}
	return absent();
}

/* A file server that remembers a directory's path or parent can be led upwards: this moves the
 * directory while a process below it opens "..". */
static long try_moved_directory(void)
{
	const char *marker = getenv("PROBE_MARKER");
	char top[64], up[512];
	if (!marker)
		return UNTRIED;
	snprintf(top, sizeof(top), "/tmp/probe-moved-%d", getpid());
	snprintf(up, sizeof(up), "../../../../../../../../../../..%s", marker);
	if (mkdir(top, 0700) < 0 || chdir(top) < 0 || mkdir("a", 0700) < 0 ||
	    mkdir("a/b", 0700) < 0 || mkdir("a/b/c", 0700) < 0)
		return -1;
	int inside = (int)open_path("a/b/c", O_RDONLY | O_DIRECTORY);
	pid_t mover = fork();
	while (mover == 0) {
		(void)!rename("a/b/c", "c");
		(void)!rename("c", "a/b/c");
	}
	long result = -1;
	for (int i = 0; result < 0 && i < ROUNDS; i++)
		result = faccessat(inside, up, F_OK, 0);
	kill(mover, SIGKILL);
	waitpid(mover, NULL, 0);
	return result < 0 ? absent() : 0;
}

static const struct attempt runsc_list[] = {
    TRY(files_of_runsc),  TRY(control_socket_of_runsc), TRY(processes_of_host),
    TRY(channel_of_init), TRY(moved_directory),
};
ATTEMPTS(runsc);
