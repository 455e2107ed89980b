/* Runs the attempts and prints a line for each:
 *     NAME RESULT [ERRNO or signal]       RESULT: done, refused, killed, hung, untried
 *
 *     caisson-probe              tries everything
 *     caisson-probe NAME...      tries these
 *     caisson-probe --list       names the attempts and, with "flood " before them, the floods
 *     caisson-probe --flood NAME uses up a resource until it is stopped
 *     caisson-probe --serve WORD makes the objects that another sandbox looks for
 *     caisson-probe --swap DIRECTORY TARGET SECONDS  swaps files there with links to the target
 *     caisson-probe --prepare    as root: makes programs with rights, which other users then run
 *     caisson-probe --rights     prints the rights that such a program has
 *
 * The environment: PROBE_DIRECTORY, where files are made and left (/tmp); PROBE_ABSTRACT, the
 * abstract socket of a listener on the host; PROBE_PORT, its port; PROBE_MARKER, the path of a file
 * there; PROBE_NEIGHBOUR, the word of a neighbour; PROBE_MEMORY, the sandbox's memory in bytes.
 *
 * Static, so that it runs in any root. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "probe.h"

/* Above all descriptors that an attempt examines. */
#define ANSWER 2000

int probe_runner;

static const struct attempts *const tables[] = {
    &calls_attempts, &sockets_attempts, &processes_attempts,  &privileges_attempts, &modes_attempts,
    &files_attempts, &nested_attempts,  &neighbours_attempts, &ordinary_attempts,   &runsc_attempts,
};

static const struct {
	int number;
	const char *name;
} errno_names[] = {
    {EPERM, "EPERM"},
    {ENOENT, "ENOENT"},
    {ESRCH, "ESRCH"},
    {EBADF, "EBADF"},
    {EACCES, "EACCES"},
    {EFAULT, "EFAULT"},
    {EINVAL, "EINVAL"},
    {ENOMEM, "ENOMEM"},
    {EROFS, "EROFS"},
    {ENOSYS, "ENOSYS"},
    {ENOSPC, "ENOSPC"},
    {ENXIO, "ENXIO"},
    {EIO, "EIO"},
    {ENODEV, "ENODEV"},
    {ENOTDIR, "ENOTDIR"},
    {ENOTTY, "ENOTTY"},
    {EBUSY, "EBUSY"},
    {EAGAIN, "EAGAIN"},
    {EMFILE, "EMFILE"},
    {ENFILE, "ENFILE"},
    {ECONNREFUSED, "ECONNREFUSED"},
    {ENETUNREACH, "ENETUNREACH"},
    {EOPNOTSUPP, "EOPNOTSUPP"},
    {ENOPROTOOPT, "ENOPROTOOPT"},
    {EAFNOSUPPORT, "EAFNOSUPPORT"},
    {EPROTONOSUPPORT, "EPROTONOSUPPORT"},
    {ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"},
};

static void print_errno(char *text, size_t room, int number)
{
	for (size_t i = 0; i < COUNT(errno_names); i++) {
		if (errno_names[i].number == number) {
			snprintf(text, room, "refused %s", errno_names[i].name);
			return;
		}
	}
	snprintf(text, room, "refused %d", number);
}

/* Runs in the attempt's own process. */
static void attempt_run(const struct attempt *attempt)
{
	alarm(10);
	const long *a = attempt->arguments;
	errno = 0;
	long result = attempt->try ? attempt->try()
				   : syscall(attempt->call, a[0], a[1], a[2], a[3], a[4], a[5]);
	char text[64] = "done";
	if (result == -1)
		print_errno(text, sizeof(text), errno);
	else if (attempt->try && result == UNTRIED)
		snprintf(text, sizeof(text), "untried");
	(void)!write(ANSWER, text, strlen(text));
	_exit(0);
}

static void end_describe(int status, char *text, size_t room)
{
	if (!WIFSIGNALED(status))
		return;
	if (WTERMSIG(status) == SIGALRM)
		snprintf(text, room, "hung");
	else if (WTERMSIG(status) == SIGSYS)
		snprintf(text, room, "killed SIGSYS");
	else
		snprintf(text, room, "killed %d", WTERMSIG(status));
}

static void attempt_outcome(const struct attempt *attempt, char *text, size_t room)
{
	int pipes[2];
	if (pipe(pipes) < 0 || dup2(pipes[1], ANSWER) < 0)
		exit(2);
	close(pipes[1]);
	fflush(stdout);
	pid_t pid = fork();
	if (pid < 0)
		exit(2);
	if (pid == 0) {
		close(pipes[0]);
		attempt_run(attempt);
	}
	close(ANSWER);
	int status = 0;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	/* Does not read to the end: an attempt may have left a child that holds the pipe open. */
	fcntl(pipes[0], F_SETFL, O_NONBLOCK);
	ssize_t length = read(pipes[0], text, room - 1);
	close(pipes[0]);
	text[length > 0 ? length : 0] = '\0';
	end_describe(status, text, room);
	if (!text[0])
		snprintf(text, room, "gone");
}

static bool attempt_is_asked_for(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], name) == 0)
			return true;
	}
	return argc < 2;
}

static void attempts_list(void)
{
	for (size_t t = 0; t < COUNT(tables); t++) {
		for (size_t i = 0; i < tables[t]->count; i++)
			printf("%s\n", tables[t]->list[i].name);
	}
	flood_list();
}

int main(int argc, char **argv)
{
	const char *option = argc > 1 ? argv[1] : "";
	probe_runner = getppid();
	if (strcmp(option, "--list") == 0) {
		attempts_list();
		return 0;
	}
	if (strcmp(option, "--flood") == 0 && argc == 3)
		return flood_run(argv[2]);
	if (strcmp(option, "--serve") == 0 && argc == 3)
		return neighbour_serve(argv[2]);
	if (strcmp(option, "--swap") == 0 && argc == 5)
		return races_swap(argv[2], argv[3], strtod(argv[4], NULL));
	if (strcmp(option, "--prepare") == 0)
		return privileges_prepare(argv[0]);
	if (strcmp(option, "--rights") == 0)
		return privileges_report();
	if (option[0] == '-') {
		fprintf(stderr, "caisson-probe: unknown option; src/probe/main.c lists them\n");
		return 2;
	}
	for (size_t t = 0; t < COUNT(tables); t++) {
		for (size_t i = 0; i < tables[t]->count; i++) {
			const struct attempt *attempt = &tables[t]->list[i];
			char text[64];
			if (!attempt_is_asked_for(attempt->name, argc, argv))
				continue;
			attempt_outcome(attempt, text, sizeof(text));
			printf("%s %s\n", attempt->name, text);
		}
	}
	return 0;
}
