/* Which runsc this host has. See runsc.h. Its output is parsed as untrusted text: bounded, and
 * only valid parts are used. */
#include "tier/gvisor/runsc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/syscalls.h"
#include "base/text.h"

#define ANSWER_MAX 4096
#define ANSWER_TIMEOUT (5 * NSEC_PER_SEC)
#define DAYS_FRESH 366
#define KEPT_MAX 512
#define KEPT_PATH_MAX 300

static const char *const runsc_paths[] = {"/usr/bin/runsc", "/usr/local/bin/runsc",
					  "/usr/sbin/runsc"};

int runsc_find_path(char path[RUNSC_PATH_MAX])
{
	for (size_t i = 0; i < ARRAY_SIZE(runsc_paths); i++)
		if (access(runsc_paths[i], X_OK) == 0)
			return text_copy(path, RUNSC_PATH_MAX, runsc_paths[i]);
	return -ENOENT;
}

static _Noreturn void child_become_runsc(const char *path, char *const *arguments, int out)
{
	char *const environment[] = {"PATH=/usr/bin:/bin", NULL};
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(null, 2) < 0 ||
	    sys_close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		_exit(126);
	execve(path, arguments, environment);
	_exit(127);
}

/* Reads its output, NUL-terminated, until the end or a time-out. */
static int runsc_ask(const char *path, char *const *arguments, char text[ANSWER_MAX])
{
	int pair[2], status;
	size_t size = 0;
	int64_t until = clock_boot() + ANSWER_TIMEOUT;
	if (pipe2(pair, O_CLOEXEC) < 0)
		return -errno;
	CLOSE_FD int from = pair[0];
	pid_t pid = fork();
	if (pid == 0)
		child_become_runsc(path, arguments, pair[1]);
	close(pair[1]);
	if (pid < 0)
		return -errno;
	while (size < ANSWER_MAX - 1) {
		int left = (int)MAX((until - clock_boot()) / NSEC_PER_MSEC, 0);
		struct pollfd polled = {.fd = from, .events = POLLIN};
		if (poll(&polled, 1, left) <= 0)
			break;
		ssize_t got = read(from, text + size, ANSWER_MAX - 1 - size);
		if (got <= 0)
			break;
		size += (size_t)got;
	}
	text[size] = '\0';
	/* It may still run; its output is complete. */
	kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return size > 0 ? 0 : -ENODATA;
}

/* "runsc version X\n..." */
static int runsc_parse_version(const char *answer, struct runsc *runsc)
{
	static const char start[] = "runsc version ";
	const char *found = strstr(answer, start);
	if (!found)
		return -EBADMSG;
	found += sizeof(start) - 1;
	size_t length = strcspn(found, " \r\n");
	if (length == 0 || length != strspn(found, "0123456789abcdefghijklmnopqrstuvwxyz"
						   "ABCDEFGHIJKLMNOPQRSTUVWXYZ.-+~_"))
		return -EBADMSG;
	int result =
	    text_format(runsc->version, sizeof(runsc->version), "%.*s", (int)length, found);
	if (result < 0)
		return result;
	for (const char *at = runsc->version; *at;) {
		size_t digits = strspn(at, "0123456789");
		uint64_t date;
		char word[16];
		if (digits == 8 && text_format(word, sizeof(word), "%.8s", at) >= 0 &&
		    text_to_u64(word, 20180101, 29991231, &date) == 0)
			runsc->date = (uint32_t)date;
		at += digits > 0 ? digits : 1;
	}
	return 0;
}

/* One platform per line. */
static bool answer_lists_platform(const char *answer, const char *platform)
{
	size_t length = strlen(platform);
	for (const char *line = answer; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, platform, length) == 0 && strchr("\r\n \t", line[length]) != NULL)
			return true;
	}
	return false;
}

/* Identifies the file: a replaced or changed one has other numbers. */
static int file_identify(const char *path, char *text, size_t room)
{
	struct stat status;
	if (stat(path, &status) < 0)
		return -errno;
	return text_format(text, room, "%llu %llu %lld.%09ld %llu",
			   (unsigned long long)status.st_dev, (unsigned long long)status.st_ino,
			   (long long)status.st_mtim.tv_sec, status.st_mtim.tv_nsec,
			   (unsigned long long)status.st_size);
}

static int answer_cache_path(const struct host *host, char path[KEPT_PATH_MAX])
{
	return text_format(path, KEPT_PATH_MAX, "%s/runsc", host->state);
}

/* "identity\nrunsc version X\nplatform\n". */
static bool answer_cache_read(const struct host *host, struct runsc *runsc)
{
	char path[KEPT_PATH_MAX], text[KEPT_MAX], identity[KEPT_MAX];
	if (answer_cache_path(host, path) < 0 ||
	    file_identify(runsc->path, identity, sizeof(identity)) < 0 ||
	    fd_read_small(AT_FDCWD, path, text, sizeof(text)) < 0)
		return false;
	size_t length = strlen(identity);
	if (strncmp(text, identity, length) != 0 || text[length] != '\n' ||
	    runsc_parse_version(text + length, runsc) < 0)
		return false;
	return text_copy(runsc->platform, sizeof(runsc->platform),
			 answer_lists_platform(text + length, "systrap") ? "systrap" : "ptrace") >=
	       0;
}

/* A failure is harmless: runsc is asked again. */
static void answer_cache_write(const struct host *host, const struct runsc *runsc)
{
	char path[KEPT_PATH_MAX], new_path[KEPT_PATH_MAX], text[KEPT_MAX], identity[KEPT_MAX];
	if (answer_cache_path(host, path) < 0 ||
	    text_format(new_path, sizeof(new_path), "%s.%d", path, (int)getpid()) < 0 ||
	    file_identify(runsc->path, identity, sizeof(identity)) < 0 ||
	    text_format(text, sizeof(text), "%s\nrunsc version %s\n%s\n", identity, runsc->version,
			runsc->platform) < 0)
		return;
	CLOSE_FD int fd =
	    open(new_path, O_CREAT | O_TRUNC | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (fd_write_full(fd, text, strlen(text)) < 0 || rename(new_path, path) < 0)
		unlink(new_path);
}

int runsc_find(const struct host *host, struct runsc *ret_runsc, struct error *error)
{
	char *const version[] = {"runsc", "--version", NULL};
	char *const platforms[] = {"runsc", "help", "platforms", NULL};
	char answer[ANSWER_MAX];
	*ret_runsc = (struct runsc){.date = 0};
	int result = runsc_find_path(ret_runsc->path);
	if (result < 0)
		return error_set(error, ERROR_TIER_UNAVAILABLE,
				 "runsc is not installed: install gVisor (Debian: `apt-get "
				 "install runsc`; a newer release: https://gvisor.dev)");
	if (answer_cache_read(host, ret_runsc))
		return 0;
	result = runsc_ask(ret_runsc->path, version, answer);
	if (result >= 0)
		result = runsc_parse_version(answer, ret_runsc);
	if (result < 0)
		return error_set(error, ERROR_TIER_UNAVAILABLE,
				 "%s does not report its version: %s", ret_runsc->path,
				 strerror(-result));
	/* Every release has ptrace. kvm is never chosen: a /dev/kvm that exists may not work,
	 * and then hangs. */
	bool fast = runsc_ask(ret_runsc->path, platforms, answer) == 0 &&
		    answer_lists_platform(answer, "systrap");
	if (text_copy(ret_runsc->platform, sizeof(ret_runsc->platform),
		      fast ? "systrap" : "ptrace") < 0)
		return error_set(error, ERROR_INTERNAL, "the platform's name is too long");
	answer_cache_write(host, ret_runsc);
	return 0;
}

/* Days since 1970, or -1. */
static int64_t date_to_days(uint32_t date)
{
	struct tm when = {.tm_year = (int)(date / 10000) - 1900,
			  .tm_mon = (int)(date / 100 % 100) - 1,
			  .tm_mday = (int)(date % 100)};
	time_t seconds = date == 0 ? -1 : timegm(&when);
	return seconds < 0 ? -1 : seconds / (24 * 3600);
}

void runsc_auto_objection(const struct runsc *runsc, int64_t now, char *text, size_t room)
{
	int64_t today = now / NSEC_PER_SEC / (24 * 3600), made = date_to_days(runsc->date);
	bool old = made < 0 || today - made > DAYS_FRESH;
	bool slow = strcmp(runsc->platform, "systrap") != 0;
	text[0] = '\0';
	if (!old && !slow)
		return;
	snprintf(text, room,
		 "used when asked for by name, not by `auto`: runsc %s %s%s%s%s; a current release "
		 "is at https://gvisor.dev",
		 runsc->version,
		 made < 0 ? "has no date in its version" : (old ? "is over a year old" : ""),
		 old && slow ? " and " : "", slow ? "has only the slow platform " : "",
		 slow ? runsc->platform : "");
}
