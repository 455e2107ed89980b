/* What is measured inside a sandbox, and, with the same program, on the host beside it. Static, so
 * that it runs in any root. Every time is in microseconds, as a line of JSON.
 *
 *   bench-inside spawn N COMMAND...   posix_spawn, its output read to the end, wait; N times
 *   bench-inside fork N COMMAND...    the same with fork and exec
 *   bench-inside pattern BYTES        so many bytes of the pattern to standard output */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pattern.h"

extern char **environ;

static void fail(const char *what)
{
	fprintf(stderr, "bench-inside: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static pid_t start_spawn(char **command, int output)
{
	posix_spawn_file_actions_t actions;
	pid_t pid;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, output, 1);
	errno = posix_spawn(&pid, command[0], &actions, NULL, command, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (errno)
		fail("posix_spawn");
	return pid;
}

static pid_t start_fork(char **command, int output)
{
	pid_t pid = fork();
	if (pid < 0)
		fail("fork");
	if (pid == 0) {
		dup2(output, 1);
		execve(command[0], command, environ);
		_exit(127);
	}
	return pid;
}

static double run_once(pid_t (*start)(char **, int), char **command)
{
	int pipes[2], status;
	char data[4096];
	double began = now();
	if (pipe2(pipes, O_CLOEXEC) < 0)
		fail("pipe");
	pid_t pid = start(command, pipes[1]);
	close(pipes[1]);
	while (read(pipes[0], data, sizeof(data)) > 0)
		;
	if (waitpid(pid, &status, 0) < 0 || status != 0)
		fail(command[0]);
	close(pipes[0]);
	return now() - began;
}

static void pattern(uint64_t size)
{
	static uint64_t block[8192];
	for (uint64_t at = 0; at < size;) {
		size_t length = size - at < sizeof(block) ? (size_t)(size - at) : sizeof(block);
		pattern_fill(at, block, length);
		for (size_t done = 0; done < length;) {
			ssize_t put = write(1, (char *)block + done, length - done);
			if (put < 0)
				fail("write");
			done += (size_t)put;
		}
		at += length;
	}
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "pattern") == 0) {
		pattern(strtoull(argv[2], NULL, 10) / 8 * 8);
		return 0;
	}
	if (argc < 4 || (strcmp(argv[1], "spawn") != 0 && strcmp(argv[1], "fork") != 0)) {
		fprintf(stderr, "usage: bench-inside spawn|fork N COMMAND...|pattern BYTES\n");
		return 2;
	}
	unsigned long count = strtoul(argv[2], NULL, 10);
	printf("[");
	for (unsigned long i = 0; i < count; i++)
		printf("%s%.1f", i ? "," : "",
		       run_once(argv[1][0] == 's' ? start_spawn : start_fork, argv + 3));
	printf("]\n");
	return 0;
}
