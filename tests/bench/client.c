/* bench-client: reads commands from standard input, one per line with tabs between the words, and
 * answers each with a line of JSON; so its start is in no figure, and tests/bench/run can
 * interleave it with the peers.
 *
 *   bench-client --unix PATH | --tcp PORT [--token TOKEN]
 *
 *   repeat N METHOD PATH [BODY [HEADERS]]
 *                                    one request after another on one connection; HEADERS are
 *                                    "Name: value" with | between
 *   cycle N CREATE EXEC              create, exec, delete (bodies given), N times
 *   burst N CREATE EXEC              N creates at once on N connections, each followed by its exec
 *   rate SECONDS CONNECTIONS PATH [BODY [HEADERS]]
 *                                    GETs (with a body POSTs) per second, each connection with one
 *                                    under way; the times of the last ones
 *   rate-awake ...                   the same by a client that never sleeps: to wake one costs a
 *                                    server more than a small answer does, and who answers faster
 *                                    has to do it less often
 *   put BYTES PATH, get PATH         one large body
 *   rawput PORT BYTES, rawget PORT   the same bytes without HTTP
 *   stream PATH BODY                 an exec as a stream; digest of its standard output
 *   digest BYTES                     digest of so much of the pattern
 *   hold N PATH                      N streams are opened and read until
 *   release                          which closes them
 *   load SECONDS CLIENTS CREATE EXEC each creates, runs ten commands, uses files, deletes, again */
#include "client.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define WORDS_MAX 6
#define LINE_ROOM (16 * 1024)

static uint64_t number(const char *text)
{
	char *end;
	uint64_t value = strtoull(text ? text : "", &end, 10);
	if (!text || *end || end == text)
		client_fail("not a number: %s", text ? text : "(none)");
	return value;
}

static const char *word(char *const *words, size_t index)
{
	if (!words[index])
		client_fail("%s: a word is missing", words[0]);
	return words[index];
}

/* "A: b|C: d" as lines of a head. */
static const char *lines(const char *word)
{
	static char room[1024];
	size_t at = 0;
	if (!word)
		return NULL;
	for (const char *from = word; *from && at + 5 < sizeof(room); from++) {
		if (*from == '|') {
			room[at++] = '\r';
			room[at++] = '\n';
		} else {
			room[at++] = *from;
		}
	}
	memcpy(room + at, "\r\n", 3);
	return room;
}

static void obey(const struct address *address, char *const *words)
{
	const char *verb = words[0];
	if (strcmp(verb, "repeat") == 0)
		measure_repeat(address, number(words[1]), word(words, 2), word(words, 3), words[4],
			       lines(words[5]));
	else if (strcmp(verb, "cycle") == 0)
		measure_cycle(address, number(words[1]), word(words, 2), word(words, 3));
	else if (strcmp(verb, "burst") == 0)
		measure_burst(address, number(words[1]), word(words, 2), word(words, 3));
	else if (strcmp(verb, "rate") == 0 || strcmp(verb, "rate-awake") == 0)
		measure_rate(address, strcmp(verb, "rate") != 0, strtod(word(words, 1), NULL),
			     number(words[2]), word(words, 3), words[4], lines(words[5]));
	else if (strcmp(verb, "put") == 0)
		measure_put(address, number(words[1]), word(words, 2));
	else if (strcmp(verb, "get") == 0)
		measure_get(address, word(words, 1));
	else if (strcmp(verb, "rawput") == 0)
		measure_raw_put((uint16_t)number(words[1]), number(words[2]));
	else if (strcmp(verb, "rawget") == 0)
		measure_raw_get((uint16_t)number(words[1]));
	else if (strcmp(verb, "stream") == 0)
		measure_stream(address, word(words, 1), word(words, 2));
	else if (strcmp(verb, "digest") == 0)
		measure_digest(number(words[1]));
	else if (strcmp(verb, "hold") == 0)
		measure_hold(address, number(words[1]), word(words, 2));
	else if (strcmp(verb, "release") == 0)
		measure_release();
	else if (strcmp(verb, "load") == 0)
		measure_load(address, strtod(word(words, 1), NULL), number(words[2]),
			     word(words, 3), word(words, 4));
	else
		client_fail("no such command: %s", verb);
}

/* As many connections as the system lets us. */
static void raise_files(void)
{
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		client_fail("getrlimit");
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		client_fail("setrlimit");
}

int main(int argc, char **argv)
{
	static const struct option list[] = {{"unix", required_argument, NULL, 'u'},
					     {"tcp", required_argument, NULL, 't'},
					     {"token", required_argument, NULL, 'k'},
					     {NULL, 0, NULL, 0}};
	static char line[LINE_ROOM];
	struct address address = {0};
	int option;
	while ((option = getopt_long(argc, argv, "", list, NULL)) >= 0) {
		switch (option) {
		case 'u':
			address.path = optarg;
			break;
		case 't':
			address.port = (uint16_t)number(optarg);
			break;
		case 'k':
			address.token = optarg;
			break;
		default:
			return 2;
		}
	}
	if (!address.path && !address.port)
		client_fail("--unix PATH or --tcp PORT");
	signal(SIGPIPE, SIG_IGN);
	raise_files();
	while (fgets(line, sizeof(line), stdin)) {
		char *words[WORDS_MAX + 1] = {NULL}, *rest = line;
		line[strcspn(line, "\n")] = '\0';
		for (size_t i = 0; i < WORDS_MAX && rest; i++)
			words[i] = strsep(&rest, "\t");
		obey(&address, words);
		fflush(stdout);
	}
	return 0;
}
