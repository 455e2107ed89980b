/* `caisson selftest`: tries on this host what the manifest of escapes says must not be possible,
 * against the running daemon, in sandboxes of each tier that the manifest covers. Prints what did
 * not hold and how many items did; the exit code is 0 only if all did. Blocks. */
#include "cli/selftest/selftest.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
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
#include "cli/client/held_connection.h"

#define PROBE_BYTES_MAX (4 * MIB)
#define SELFTEST_LIFE 1800

static struct {
	bool escape;
	const char *isolation, *manifest;
} options;

/* --- Interrupts --- */

static const int interrupts[] = {SIGINT, SIGTERM, SIGHUP};
static volatile sig_atomic_t interrupt_signal; /* the first signal; 0: none */
static volatile sig_atomic_t cleaning_up;      /* clean-up requests are not interrupted */

/* The alarm repeats the interruption: a signal that arrives just before a blocking call does not
 * interrupt it. */
static void interrupt_handle(int number)
{
	bool first = interrupt_signal == 0;
	if (number != SIGALRM && first)
		interrupt_signal = number;
	if (!cleaning_up) {
		client_interrupted = 1;
		alarm(1);
	} else if (number != SIGALRM && !first) {
		/* Interrupted again: exit at once. The sandboxes end with the connection that holds
		 * them. */
		_exit(128 + number);
	}
}

static void interrupts_catch(void)
{
	const struct sigaction action = {.sa_handler = interrupt_handle};
	struct sigaction before;
	cleaning_up = 0;
	sigaction(SIGALRM, &action, NULL);
	/* `nohup` and a shell's `&` ignore some of them: leave those ignored. */
	for (size_t i = 0; i < ARRAY_SIZE(interrupts); i++)
		if (sigaction(interrupts[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
			sigaction(interrupts[i], &action, NULL);
}

static void interrupts_end(void)
{
	cleaning_up = 1;
	client_interrupted = 0;
	alarm(0);
}

/* --- Results --- */

static json_t *item_result(struct selftest *test, const char *id)
{
	json_t *result = json_object_get(test->results, id);
	if (!result) {
		result = json_pack("{s:i, s:[]}", "tried", 0, "failures");
		json_object_set_new(test->results, id, result);
	}
	return result;
}

void selftest_note_result(struct selftest *test, const char *id, bool held, const char *format, ...)
{
	json_t *result = item_result(test, id);
	json_object_set_new(result, "tried", json_integer(member_integer(result, "tried") + 1));
	if (!json_object_get(test->items, id))
		json_object_set_new(result, "unlisted", json_true());
	else if (held)
		return;
	char text[512];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	text[text_utf8_prefix(text, strlen(text))] = '\0';
	if (json_object_get(result, "unlisted") && held)
		snprintf(text, sizeof(text), "it is tried, but the manifest has no such item");
	json_t *failures = json_object_get(result, "failures");
	if (json_array_size(failures) < 8)
		json_array_append_new(failures, json_string(text));
}

void selftest_note_untried(struct selftest *test, const char *id, const char *why)
{
	json_object_set_new(item_result(test, id), "untried", json_string(why));
}

void selftest_note_untried_side(struct selftest *test, const char *side, const char *why)
{
	const char *id;
	json_t *item;
	json_object_foreach(test->items, id, item)
	{
		if (selftest_item_is_side(item, side) && !json_object_get(test->results, id))
			selftest_note_untried(test, id, why);
	}
}

bool selftest_has_item(const struct selftest *test, const char *id)
{
	return json_object_get(test->items, id) != NULL;
}

bool selftest_item_is_side(const json_t *item, const char *side)
{
	return strcmp(member_text(item, "side"), side) == 0;
}

void selftest_show_progress(const struct selftest *test, const char *format, ...)
{
	if (cli_json || !isatty(STDERR_FILENO))
		return;
	va_list args;
	va_start(args, format);
	fprintf(stderr, "\r\033[K%s: ", test->tier);
	vfprintf(stderr, format, args);
	va_end(args);
	fflush(stderr);
}

static void progress_line_clear(void)
{
	if (!cli_json && isatty(STDERR_FILENO))
		fprintf(stderr, "\r\033[K");
}

/* --- Requests --- */

int selftest_request_path(struct buffer *path, const char *box, const char *rest,
			  const char *const *query, struct error *error)
{
	if (sandbox_path_append(path, box, rest, error) < 0)
		return -1;
	int result = 0;
	char separator = '?';
	for (; query && query[0]; query += 2) {
		result |= buffer_printf(path, "%c%s=", separator, query[0]);
		result |= buffer_append_encoded(path, query[1]);
		separator = '&';
	}
	return result < 0 ? error_set(error, ERROR_TOO_LARGE, "a request is too long") : 0;
}

int selftest_exec(struct selftest *test, const char *box, const struct selftest_command *command,
		  json_t **ret_result, struct error *error)
{
	DONE_BUFFER struct buffer path = BUFFER(4096);
	if (selftest_request_path(&path, box, "/exec", NULL, error) < 0)
		return -1;
	json_t *words = json_array();
	for (const char *const *word = command->words; *word; word++)
		json_array_append_new(words, json_string(*word));
	json_t *body =
	    json_pack("{s:o, s:s, s:i, s:b}", "argv", words, "user", command->user,
		      "timeout_seconds", command->timeout, "tty", command->terminal ? 1 : 0);
	if (command->environment)
		json_object_set(body, "env", command->environment);
	int result =
	    client_request_json(test->client, "POST", path.data, body, NULL, 0, ret_result, error);
	json_decref(body);
	return result;
}

int selftest_shell(struct selftest *test, const char *box, const char *command, json_t **ret_result,
		   struct error *error)
{
	const char *const words[] = {"/bin/sh", "-c", command, NULL};
	const struct selftest_command shell = {.user = "0", .words = words, .timeout = 30};
	return selftest_exec(test, box, &shell, ret_result, error);
}

/* --- The probe --- */

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
	struct exchange *exchange = calloc(1, sizeof(*exchange));
	if (!exchange)
		abort();
	exchange->fd = -1;
	int result = exchange_begin(test->client, &request, exchange, error);
	if (result == 0)
		result = exchange_write(exchange, false, probe->data, probe->size, error);
	if (result == 0)
		result = exchange_read_head(exchange, error);
	exchange_done(exchange);
	free(exchange);
	return result;
}

/* --- What a run creates and removes --- */

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
	if (pairs_to_json(&create_options.labels, false, &labels, error) < 0)
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
	int result = client_request_json(test->client, "POST", "/v1/sandboxes", body, NULL, 0,
					 &record, error);
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
	DONE_BUFFER struct buffer path = BUFFER(4096);
	struct error error;
	if (!box[0])
		return;
	if (sandbox_path_append(&path, box, "", &error) < 0 ||
	    client_request_json(test->client, "DELETE", path.data, NULL, NULL, 0, NULL, &error) < 0)
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

/* A tier with a kernel of its own has ids of its own: its id map does not tell the host's ids.
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

/* Which ids a sandbox has, from its id map: whether the daemon's spawner is root's. */
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

static int selftest_prepare(struct selftest *test, struct error *error)
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

static void marker_remove(struct selftest *test)
{
	if (test->marker[0])
		unlink(test->marker);
	if ((test->folder[0] && rmdir(test->folder) < 0) ||
	    (test->outer[0] && rmdir(test->outer) < 0))
		fprintf(stderr, "caisson selftest: %s was not removed: %s\n", test->outer,
			strerror(errno));
}

static void selftest_finish(struct selftest *test)
{
	selftest_show_progress(test, "removing the sandboxes");
	marker_remove(test);
	interrupts_end();
	box_remove(test, test->boxes.main);
	box_remove(test, test->boxes.neighbour);
	box_remove(test, test->boxes.small);
	box_remove(test, test->boxes.nested);
	fd_close(&test->abstract);
	fd_close(&test->network);
	json_decref(test->limits);
	test->limits = NULL;
	progress_line_clear();
}

/* --- The report --- */

struct tally {
	size_t held, failed, untried;
};

static void failures_print(const struct selftest *test, const char *id, const json_t *failures)
{
	size_t at;
	json_t *text;
	const json_t *item = json_object_get(test->items, id);
	json_array_foreach(failures, at, text)
	{
		printf("%s: %s: ", test->tier, id);
		safe_text_print(json_string_value(text));
		printf("\n");
	}
	if (*member_text(item, "attempt"))
		printf("  %s\n", member_text(item, "attempt"));
}

static struct tally tier_report(struct selftest *test)
{
	struct tally tally = {0};
	const char *id;
	json_t *item, *result;
	json_object_foreach(test->items, id, item)
	{
		(void)item;
		if (!json_object_get(test->results, id))
			selftest_note_result(test, id, false, "nothing tries it");
	}
	json_object_foreach(test->results, id, result)
	{
		json_t *failures = json_object_get(result, "failures");
		bool failed = json_array_size(failures) > 0;
		bool tried = member_integer(result, "tried") > 0;
		tally.failed += failed;
		tally.held += !failed && tried;
		tally.untried += !failed && !tried;
		json_object_set_new(result, "held", json_boolean(!failed && tried));
		if (cli_json)
			continue;
		if (failed)
			failures_print(test, id, failures);
		else if (!tried)
			printf("%s: %s: not tried: %s\n", test->tier, id,
			       member_text(result, "untried"));
	}
	if (!cli_json) {
		printf("%s: %zu/%zu held", test->tier, tally.held, tally.held + tally.failed);
		if (tally.untried > 0)
			printf(", %zu not tried", tally.untried);
		printf("\n");
	}
	return tally;
}

static int tier_run(struct client *client, json_t *manifest, const char *tier, json_t *answer,
		    struct error *error)
{
	static int (*const steps[])(struct selftest *, struct error *) = {
	    selftest_prepare, selftest_run_inside, selftest_run_files, selftest_run_limits,
	    selftest_run_client};
	struct selftest test = {.client = client,
				.tier = tier,
				.manifest = manifest,
				.items = selftest_items(manifest, tier),
				.results = json_object(),
				.abstract = -1,
				.network = -1};
	int result = 0;
	interrupts_catch();
	for (size_t i = 0; result == 0 && i < ARRAY_SIZE(steps); i++)
		result = steps[i](&test, error);
	selftest_finish(&test);
	/* A step may have counted the interrupted request as an answer. */
	if (interrupt_signal)
		result = error_set(error, ERROR_CANCELLED, "interrupted");
	struct tally tally = {0};
	if (result == 0) {
		tally = tier_report(&test);
		json_object_set_new(answer, tier,
				    json_pack("{s:i, s:i, s:i, s:s, s:s, s:O}", "held",
					      (int)tally.held, "failed", (int)tally.failed,
					      "untried", (int)tally.untried, "rights", test.rights,
					      "marker", test.marker, "items", test.results));
	}
	json_decref(test.items);
	json_decref(test.results);
	return result < 0 ? -1 : tally.failed > 0;
}

/* True if this host has the tier; else *ret_missing says why not. */
static bool tier_is_available(const json_t *version, const char *tier, const char **ret_missing)
{
	size_t at;
	json_t *one;
	*ret_missing = "the daemon does not know it";
	json_array_foreach(json_object_get(version, "isolation"), at, one)
	{
		if (strcmp(member_text(one, "name"), tier) != 0)
			continue;
		*ret_missing = member_text(one, "missing");
		return json_is_true(json_object_get(one, "available"));
	}
	return false;
}

static int tiers_run(struct client *client, json_t *manifest, json_t *answer, struct error *error)
{
	static const char *const tiers[] = {"namespace", "gvisor", "vm"};
	json_t *version = NULL;
	int worst = 0;
	bool any = false;
	if (client_request_json(client, "GET", "/v1/version", NULL, NULL, 0, &version, error) < 0)
		return -1;
	for (size_t i = 0; worst >= 0 && i < ARRAY_SIZE(tiers); i++) {
		const char *missing = NULL;
		if (options.isolation && strcmp(options.isolation, tiers[i]) != 0)
			continue;
		json_t *items = selftest_items(manifest, tiers[i]);
		bool covered = json_object_size(items) > 0;
		json_decref(items);
		bool available = tier_is_available(version, tiers[i], &missing);
		if (available && !covered)
			missing = "the manifest has no items for it";
		if (!available || !covered) {
			if (options.isolation)
				worst = error_set(error, ERROR_UNSUPPORTED, "tier %s: %s", tiers[i],
						  missing);
			else if (!cli_json)
				printf("%s: not tried: %s\n", tiers[i], missing);
			continue;
		}
		any = true;
		int result = tier_run(client, manifest, tiers[i], answer, error);
		worst = result < 0 ? result : MAX(worst, result);
	}
	json_decref(version);
	if (worst == 0 && !any)
		worst = error_set(error, ERROR_UNSUPPORTED, "no tier of the manifest is available");
	return worst;
}

static int selftest_run(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc > 1)
		return error_set(error, ERROR_USAGE, "selftest takes no argument (\"%s\")",
				 argv[1]);
	if (!options.escape)
		return error_set(
		    error, ERROR_USAGE,
		    "selftest needs --escape: it tries on this host what a sandbox must "
		    "not let through");
	json_t *manifest = NULL, *answer = json_object();
	int result = selftest_load_manifest(options.manifest, &manifest, error);
	struct exchange *hold = NULL;
	if (result == 0)
		result = held_connection_open(client, &hold, error);
	if (result == 0)
		result = tiers_run(client, manifest, answer, error);
	held_connection_close(hold);
	if (interrupt_signal) {
		error_line_print("caisson selftest: interrupted; what it made is removed");
		result = 128 + interrupt_signal;
	} else if (result >= 0 && cli_json) {
		json_print(answer);
	}
	json_decref(answer);
	json_decref(manifest);
	return result;
}

static const struct option_spec selftest_specs[] = {
    {"escape", 0, OPTION_FLAG, &options.escape, NULL,
     "try to get out of sandboxes, as root and as an ordinary user"},
    {"isolation", 0, OPTION_TEXT, &options.isolation, "TIER",
     "this tier only (default: all that the manifest has items for: namespace and gvisor)"},
    {"manifest", 0, OPTION_TEXT, &options.manifest, "FILE",
     "another list of attempts and what must come of them (default: the one built in)"},
    {0},
};

const struct verb verb_selftest = {
    .name = "selftest",
    .arguments = "--escape [options]",
    .summary = "Try to break out of sandboxes on this host, and count what held",
    .help =
	"Makes a few sandboxes, carries a program into them that tries what is known to lead out\n"
	"of sandboxes, as root and as an ordinary user, attacks them from the API's side too, "
	"fills\n"
	"their limits, and removes them. Prints a line for each item that did not hold and for "
	"each\n"
	"that was not tried, with the reason, and how many held. The exit code is 0 only when all\n"
	"did. It takes a minute for each tier and leaves nothing behind, also when it is\n"
	"interrupted.\n\n"
	"  caisson selftest --escape\n"
	"  caisson selftest --escape --isolation namespace --json",
    .options = selftest_specs,
    .run = selftest_run,
};
