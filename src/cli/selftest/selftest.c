/* `caisson selftest`: tries the escapes of the manifest, which must not be possible, on this host:
 * against the running daemon, in sandboxes of each tier that the manifest covers. Prints the items
 * that did not hold and the number of those that did; the exit code is 0 only if all held.
 * Blocks. */
#include "cli/selftest/selftest.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/client/held_connection.h"

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
	if (sandbox_path(path, box, rest, error) < 0)
		return -1;
	int result = 0;
	for (; query && query[0]; query += 2)
		result |= buffer_append_parameter(path, query[0], query[1]);
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
	int result = client_call(test->client, "POST", path.data, body, NULL, 0, ret_result, error);
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

static void selftest_finish(struct selftest *test)
{
	selftest_show_progress(test, "removing the sandboxes");
	selftest_remove_marker(test);
	interrupts_end();
	selftest_remove_sandboxes(test);
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
	    selftest_make_sandboxes, selftest_run_inside, selftest_run_files, selftest_run_limits,
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
	if (client_call(client, "GET", "/v1/version", NULL, NULL, 0, &version, error) < 0)
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
		error_print("caisson selftest: interrupted; everything that it made is removed");
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
     "only this tier (default: all tiers of the manifest: namespace and gvisor)", "isolation",
     "namespace,gvisor,vm"},
    {"manifest", 0, OPTION_TEXT, &options.manifest, "FILE",
     "another list of attempts and expected results (default: the built-in list)"},
    {0},
};

const struct verb verb_selftest = {
    .name = "selftest",
    .arguments = "--escape [options]",
    .summary = "Try to break out of sandboxes on this host, and count what held",
    .help =
	"Creates a few sandboxes, runs a program in them that tries known ways out of sandboxes, "
	"as\n"
	"root and as an ordinary user, attacks them through the API too, exhausts their limits, "
	"and\n"
	"removes them. Prints a line for each item that did not hold and for each that was not\n"
	"tried, with the reason, and how many held. The exit code is 0 only if all did. It takes "
	"a\n"
	"minute for each tier and leaves nothing behind, also if it is interrupted.\n"
	"\n"
	"  caisson selftest --escape\n"
	"  caisson selftest --escape --isolation namespace --json",
    .options = selftest_specs,
    .run = selftest_run,
};
