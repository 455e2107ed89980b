/* bench/floor: what a sandbox of the namespace tier costs with no daemon around. It makes the same
 * namespaces, id maps, mounts, overlay, disk image on a loop device, cgroups, limits, capabilities
 * and filter, runs one command, and removes all of it: the limit that the daemon is compared with.
 * It needs root.
 *
 *   floor --layer DIR --image FILE --directory DIR [--no-disk] [--no-cgroups]
 *         [--rounds N | --burst N [--jobs J] | --serve] -- COMMAND [ARGUMENT...]
 *
 * --layer is a template's skeleton, --image an empty ext4, --directory where copies of it go: those
 * of a daemon's state directory, so that both work on the same. --serve reads lines from standard
 * input, "rounds N" or "burst N J", so that its rounds can be interleaved with others'. Each round
 * prints a line of JSON, in microseconds; a burst prints one for all of it. */
#include "floor.h"

#include <errno.h>
#include <getopt.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"

#define BURST_MAX 256
#define BURST_PATIENCE_MS 20000

void floor_fail(const char *what)
{
	fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static double microseconds(int64_t nanoseconds)
{
	return (double)nanoseconds / 1000.0;
}

static void round_once(const struct floor_options *options)
{
	static uint32_t slot;
	struct floor_sandbox sandbox;
	floor_make(&sandbox, options, slot++);
	floor_remove(&sandbox);
	printf("{\"first_output\":%.1f,\"total\":%.1f,\"phases\":{",
	       microseconds(sandbox.first_output - sandbox.began),
	       microseconds(sandbox.ended - sandbox.began));
	for (uint32_t i = 0; i < sandbox.phase_count; i++)
		printf("%s\"%s\":%.1f", i ? "," : "", sandbox.phases[i].name,
		       microseconds(sandbox.phases[i].nanoseconds));
	printf("}}\n");
	fflush(stdout);
}

/* One of a burst, in a process of its own: says when it has its first output, and removes it when
 * told (its standard input's end). */
static _Noreturn void burst_worker(const struct floor_options *options, uint32_t slot, int report,
				   int release)
{
	struct floor_sandbox sandbox;
	char byte;
	floor_make(&sandbox, options, slot);
	if (fd_write_full(report, &sandbox.first_output, sizeof(sandbox.first_output)) < 0)
		_exit(1);
	while (read(release, &byte, 1) < 0 && errno == EINTR)
		;
	floor_remove(&sandbox);
	_exit(0);
}

/* `count` sandboxes that are all there at the end, `jobs` in the making at a time: more than there
 * are processors only wait for each other. */
static void burst(const struct floor_options *options, uint32_t count, uint32_t jobs)
{
	int report[2], release[2], status;
	uint32_t started = 0, up = 0, failed = 0;
	int64_t last = 0, value;
	if (pipe2(report, O_CLOEXEC) < 0 || pipe2(release, O_CLOEXEC) < 0)
		floor_fail("pipes");
	int64_t began = clock_monotonic();
	while (up < count) {
		for (; started < count && started - up < jobs; started++) {
			pid_t pid = fork();
			if (pid < 0)
				floor_fail("fork");
			if (pid == 0) {
				close(report[0]);
				close(release[1]);
				burst_worker(options, started, report[1], release[0]);
			}
		}
		/* One that failed says nothing: its message is on standard error. */
		struct pollfd ready = {.fd = report[0], .events = POLLIN};
		if (poll(&ready, 1, BURST_PATIENCE_MS) <= 0 ||
		    fd_read_full(report[0], &value, sizeof(value)) < 0)
			break;
		up++;
		last = MAX(last, value);
	}
	close(release[1]);
	for (uint32_t i = 0; i < started; i++) {
		if (wait(&status) < 0 || status != 0)
			failed++;
	}
	fd_close(&report[0]);
	fd_close(&report[1]);
	close(release[0]);
	printf("{\"count\":%u,\"up\":%u,\"failed\":%u,\"jobs\":%u,\"wall\":%.1f,"
	       "\"with_removal\":%.1f}\n",
	       count, up, failed, jobs, microseconds(last - began),
	       microseconds(clock_monotonic() - began));
	fflush(stdout);
}

static uint32_t number(const char *text, uint32_t most)
{
	uint64_t value;
	if (text_to_u64(text, 1, most, &value) < 0) {
		fprintf(stderr, "floor: not a number from 1 to %u: %s\n", most, text);
		exit(2);
	}
	return (uint32_t)value;
}

static void serve(const struct floor_options *options)
{
	char line[128];
	while (fgets(line, sizeof(line), stdin)) {
		char *rest = line;
		line[strcspn(line, "\n")] = '\0';
		const char *verb = strsep(&rest, " ");
		const char *first = strsep(&rest, " ");
		const char *second = strsep(&rest, " ");
		if (strcmp(verb, "rounds") == 0 && first) {
			for (uint32_t i = number(first, 1000000); i > 0; i--)
				round_once(options);
		} else if (strcmp(verb, "burst") == 0 && first && second) {
			burst(options, number(first, BURST_MAX), number(second, BURST_MAX));
		} else {
			fprintf(stderr, "floor: rounds N, or burst N J\n");
			exit(2);
		}
	}
}

int main(int argc, char **argv)
{
	static const struct option list[] = {
	    {"layer", required_argument, NULL, 'l'},     {"image", required_argument, NULL, 'i'},
	    {"directory", required_argument, NULL, 'd'}, {"no-disk", no_argument, NULL, 'D'},
	    {"no-cgroups", no_argument, NULL, 'C'},      {"rounds", required_argument, NULL, 'r'},
	    {"burst", required_argument, NULL, 'b'},     {"jobs", required_argument, NULL, 'j'},
	    {"serve", no_argument, NULL, 's'},           {NULL, 0, NULL, 0}};
	struct floor_options options = {.disk = true, .cgroups = true};
	uint32_t rounds = 0, burst_count = 0, jobs = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
	bool serving = false;
	int option;
	while ((option = getopt_long(argc, argv, "+", list, NULL)) >= 0) {
		switch (option) {
		case 'l':
			options.layer = optarg;
			break;
		case 'i':
			options.image = optarg;
			break;
		case 'd':
			options.directory = optarg;
			break;
		case 'D':
			options.disk = false;
			break;
		case 'C':
			options.cgroups = false;
			break;
		case 'r':
			rounds = number(optarg, 1000000);
			break;
		case 'b':
			burst_count = number(optarg, BURST_MAX);
			break;
		case 'j':
			jobs = number(optarg, BURST_MAX);
			break;
		case 's':
			serving = true;
			break;
		default:
			return 2;
		}
	}
	options.command = argv + optind;
	if (!options.layer || !options.image || !options.directory || optind == argc ||
	    !(rounds || burst_count || serving)) {
		fprintf(stderr, "usage: floor --layer DIR --image FILE --directory DIR [--no-disk] "
				"[--no-cgroups]\n             [--rounds N | --burst N [--jobs J] | "
				"--serve] -- COMMAND...\n");
		return 2;
	}
	if (options.cgroups)
		floor_find_cgroups();
	for (; rounds > 0; rounds--)
		round_once(&options);
	if (burst_count)
		burst(&options, burst_count, jobs);
	if (serving)
		serve(&options);
	return 0;
}
