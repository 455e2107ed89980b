/* Creates and removes everything that a selftest needs on this host and in the daemon: sandboxes
 * with the probe in them, a marker, listeners. Called by selftest.c; blocks. */
#include "cli/selftest/selftest.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/random.h"
#include "base/text.h"

#define PROBE_BYTES_MAX (4 * MIB)
#define SELFTEST_LIFE 1800

/* Opens the probe beside the running program (build tree), or where `make install` puts it. */
static int probe_open(struct error *error)
{
	static const char *const places[] = {"caisson-probe", "../libexec/caisson/caisson-probe"};
	char program[1024], path[1200];
	ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
	if (length <= 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "/proc/self/exe");
	program[length] = '\0';
	char *slash = strrchr(program, '/');
	if (slash)
		*slash = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		int fd = -1;
		if (text_format(path, sizeof(path), "%s/%s", program, places[i]) == 0)
			fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0)
			return fd;
	}
	return error_set(error, ERROR_INTERNAL,
			 "caisson-probe is neither beside %s/caisson nor in %s/../libexec/caisson: "
			 "install it with `make install`",
			 program, program);
}

static int probe_read(struct buffer *probe, struct error *error)
{
	CLOSE_FD int fd = probe_open(error);
	char block[16384];
	if (fd < 0)
		return -1;
	for (ssize_t got; (got = read(fd, block, sizeof(block))) != 0;) {
		if (got < 0)
			return error_set_errno(error, ERROR_INTERNAL, errno, "caisson-probe");
		if (buffer_append(probe, block, (size_t)got) < 0)
			return error_set(error, ERROR_INTERNAL, "caisson-probe is too long");
	}
	return 0;
}

static int probe_put(struct selftest *test, const char *box, const struct buffer *probe,
		     struct error *error)
{
	static const char *const query[] = {"path", "/tmp/caisson-probe", "mode", "0755", NULL};
	DONE_BUFFER struct buffer path = BUFFER(4096);
	if (selftest_request_path(&path, box, "/files", query, error) < 0)
		return -1;
	struct request request = {
	    .method = "PUT", .path = path.data, .length = (int64_t)probe->size};
	struct exchange *exchange = exchange_new();
	int result = exchange_begin(test->client, &request, exchange, error);
	if (result == 0)
		result = exchange_write(exchange, false, probe->data, probe->size, error);
	if (result == 0)
		result = exchange_read_head(exchange, error);
	exchange_free(exchange);
	return result;
}

/* Prepares programs that other users could gain rights from. Without CAP_SETFCAP inside (a single
 * id) there is no other user either. */
static int box_prepare(struct selftest *test, const char *box, struct error *error)
{
	json_t *result = NULL;
	int outcome = selftest_shell(test, box, "/tmp/caisson-probe --prepare", &result, error);
	json_decref(result);
	return outcome;
}

static int box_make(struct selftest *test, char box[64], bool nested, bool small,
		    const struct buffer *probe, struct error *error)
{
	json_t *record = NULL, *labels = NULL;
	if (pairs_to_json(&create_options.labels, OPTION_PAIRS, &labels, error) < 0)
		return -1;
	json_t *body =
	    json_pack("{s:s, s:i, s:i, s:i, s:i, s:b, s:o}", "isolation", test->tier,
		      "timeout_seconds", SELFTEST_LIFE, "memory_mb",
		      small ? SELFTEST_SMALL_MEMORY_MB : 256, "disk_mb", small ? 64 : 256, "pids",
		      small ? 64 : 256, "nested_userns", nested ? 1 : 0, "labels", labels);
	/* Not interruptible: without the answer we would not know which sandbox to remove. */
	sigset_t all, before;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	int result =
	    client_call(test->client, "POST", "/v1/sandboxes", body, NULL, 0, &record, error);
	sigprocmask(SIG_SETMASK, &before, NULL);
	json_decref(body);
	if (result < 0)
		return -1;
	result = text_copy(box, 64, member_text(record, "id"));
	if (!small && !nested && !test->limits)
		test->limits = json_incref(json_object_get(record, "limits"));
	json_decref(record);
	if (result < 0)
		return error_set(error, ERROR_INTERNAL, "the sandbox's id is too long");
	return probe_put(test, box, probe, error) < 0 ? -1 : box_prepare(test, box, error);
}

static void box_remove(struct selftest *test, char box[64])
{
	struct error error;
	if (!box[0])
		return;
	if (client_sandbox_call(test->client, "DELETE", box, "", NULL, NULL, &error) < 0)
		fprintf(stderr, "caisson selftest: %s was not removed: %s\n", box, error.message);
	box[0] = '\0';
}

/* Listens on sockets of this host, which a sandbox must not reach. */
static int listeners_make(struct selftest *test, struct error *error)
{
	struct sockaddr_un abstract = {.sun_family = AF_UNIX};
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t size = sizeof(address);
	memcpy(abstract.sun_path + 1, test->word, strlen(test->word));
	socklen_t abstract_size =
	    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(test->word));
	test->abstract = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	test->network = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (test->abstract < 0 || test->network < 0 ||
	    bind(test->abstract, (struct sockaddr *)&abstract, abstract_size) < 0 ||
	    listen(test->abstract, 4) < 0 ||
	    bind(test->network, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(test->network, 4) < 0 ||
	    getsockname(test->network, (struct sockaddr *)&address, &size) < 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "listening on this host");
	test->port = ntohs(address.sin_port);
	return 0;
}

/* Makes the marker. A sandbox that reached the host could read and change the marker's folder,
 * whatever its ids are. Other users of this host cannot: they may not list the parent folder and do
 * not know the name. */
static int marker_make(struct selftest *test, struct error *error)
{
	unsigned char bytes[12];
	char name[2 * sizeof(bytes) + 1];
	random_bytes(bytes, sizeof(bytes));
	text_hex(bytes, sizeof(bytes), name);
	snprintf(test->outer, sizeof(test->outer), "/tmp/caisson-selftest-XXXXXX");
	if (!mkdtemp(test->outer)) {
		test->outer[0] = '\0';
		return error_set_errno(error, ERROR_INTERNAL, errno, "a folder in /tmp");
	}
	snprintf(test->folder, sizeof(test->folder), "%s/%s", test->outer, name);
	if (mkdir(test->folder, 0700) < 0) {
		test->folder[0] = '\0';
		return error_set_errno(error, ERROR_INTERNAL, errno, "a folder in %s", test->outer);
	}
	snprintf(test->marker, sizeof(test->marker), "%s/marker", test->folder);
	CLOSE_FD int fd = open(test->marker, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
	if (fd < 0 || fd_write_full(fd, test->secret, strlen(test->secret)) < 0 ||
	    fchmod(fd, 0666) < 0 || chmod(test->folder, 0777) < 0 || chmod(test->outer, 0711) < 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "%s", test->marker);
	return 0;
}

/* A tier with a kernel of its own has ids of its own: its id map does not show the host's ids.
 * Requesting another user shows whether there is more than one id. */
static int box_rights_find_by_trial(struct selftest *test, struct error *error)
{
	static const char *const words[] = {"/bin/uname", "-m", NULL};
	const struct selftest_command command = {.user = "1000", .words = words, .timeout = 30};
	json_t *result = NULL;
	int outcome = selftest_exec(test, test->boxes.main, &command, &result, error);
	bool one_id = outcome < 0 && error->kind == ERROR_BAD_USER;
	if (one_id)
		outcome = selftest_shell(test, test->boxes.main, "uname -m", &result, error);
	if (outcome < 0)
		return -1;
	snprintf(test->rights, sizeof(test->rights), "%s", one_id ? "one-id" : "root");
	const char *machine = member_text(result, "stdout");
	snprintf(test->machine, sizeof(test->machine), "%.*s", (int)strcspn(machine, "\n"),
		 machine);
	json_decref(result);
	return 0;
}

/* Reads from a sandbox's id map which ids it has, and so whether the daemon's spawner runs as
 * root. */
static int box_rights_find(struct selftest *test, struct error *error)
{
	json_t *result = NULL;
	if (selftest_shell(test, test->boxes.main, "cat /proc/self/uid_map; uname -m", &result,
			   error) < 0)
		return -1;
	unsigned long long inside = 0, outside = 0, count = 0;
	const char *out = member_text(result, "stdout"), *second = strchr(out, '\n');
	int fields = sscanf(out, "%llu %llu %llu", &inside, &outside, &count);
	snprintf(test->rights, sizeof(test->rights), "%s",
		 count <= 1                 ? "one-id"
		 : outside >= 0x70000000ULL ? "root"
					    : "subuid");
	const char *machine = strrchr(out, '\n') > second ? second + 1 : "";
	snprintf(test->machine, sizeof(test->machine), "%.*s", (int)strcspn(machine, "\n"),
		 machine);
	json_decref(result);
	return fields == 3 ? 0 : error_set(error, ERROR_INTERNAL, "the sandbox has no uid map");
}

int selftest_make_sandboxes(struct selftest *test, struct error *error)
{
	DONE_BUFFER struct buffer probe = BUFFER(PROBE_BYTES_MAX);
	unsigned char bytes[16];
	random_bytes(bytes, sizeof(bytes));
	text_hex(bytes, sizeof(bytes), test->word);
	random_bytes(bytes, sizeof(bytes));
	text_hex(bytes, sizeof(bytes), test->secret);
	selftest_show_progress(test, "making sandboxes");
	if (probe_read(&probe, error) < 0)
		return -1;
	if (!test->client->remote &&
	    (listeners_make(test, error) < 0 || marker_make(test, error) < 0))
		return -1;
	if (box_make(test, test->boxes.main, false, false, &probe, error) < 0 ||
	    box_make(test, test->boxes.neighbour, false, false, &probe, error) < 0 ||
	    box_make(test, test->boxes.small, false, true, &probe, error) < 0)
		return -1;
	/* A tier without nested user namespaces refuses this. */
	struct error refused = {0};
	if (box_make(test, test->boxes.nested, true, false, &probe, &refused) < 0 &&
	    refused.kind != ERROR_UNSUPPORTED && refused.kind != ERROR_INVALID) {
		*error = refused;
		return -1;
	}
	return strcmp(test->tier, "namespace") == 0 ? box_rights_find(test, error)
						    : box_rights_find_by_trial(test, error);
}

void selftest_remove_marker(struct selftest *test)
{
	if (test->marker[0])
		unlink(test->marker);
	if ((test->folder[0] && rmdir(test->folder) < 0) ||
	    (test->outer[0] && rmdir(test->outer) < 0))
		fprintf(stderr, "caisson selftest: %s was not removed: %s\n", test->outer,
			strerror(errno));
}

void selftest_remove_sandboxes(struct selftest *test)
{
	box_remove(test, test->boxes.main);
	box_remove(test, test->boxes.neighbour);
	box_remove(test, test->boxes.small);
	box_remove(test, test->boxes.nested);
	fd_close(&test->abstract);
	fd_close(&test->network);
	json_decref(test->limits);
	test->limits = NULL;
}
