/* The items that are tried inside: the probe runs as each user, on a terminal, and with user
 * namespaces allowed; its results are compared with the manifest. Blocks while the probe runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/selftest/selftest.h"

#define PROBE "/tmp/caisson-probe"
#define PROBE_TIMEOUT 240

/* How the probe is run: selects the expectations. */
struct setting {
	const char *user;
	const char *box;
	bool nested, terminal;
};

/* "refused" matches every errno, "*" matches everything. */
static bool result_is_expected(const char *result, const char *expected)
{
	if (strcmp(expected, "*") == 0 || strcmp(expected, result) == 0)
		return true;
	return strcmp(expected, "refused") == 0 && text_starts(result, "refused ");
}

bool selftest_result_matches(const char *result, const json_t *expected)
{
	size_t at;
	json_t *one;
	if (json_is_string(expected))
		return result_is_expected(result, json_string_value(expected));
	json_array_foreach(expected, at, one)
	{
		if (json_is_string(one) && result_is_expected(result, json_string_value(one)))
			return true;
	}
	return false;
}

/* The most specific expectation of the item. */
static const json_t *item_expectation(const struct selftest *test, const json_t *item,
				      const struct setting *setting)
{
	char both[32];
	const json_t *rights = json_object_get(item, "rights"), *found = NULL;
	snprintf(both, sizeof(both), "%s nested", test->rights);
	if (setting->nested)
		found = json_object_get(rights, both);
	if (!found)
		found = json_object_get(rights, test->rights);
	if (!found && setting->nested)
		found = json_object_get(item, "nested");
	if (!found)
		found = json_object_get(json_object_get(item, "expect_as"), setting->user);
	return found ? found : json_object_get(item, "expect");
}

static bool item_is_tried_as(const json_t *item, const char *user)
{
	size_t at;
	json_t *one;
	json_array_foreach(json_object_get(item, "users"), at, one)
	{
		char text[24];
		snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(one));
		if (strcmp(text, user) == 0)
			return true;
	}
	return false;
}

static void result_judge(struct selftest *test, const struct setting *setting, const char *id,
			 const char *result)
{
	const json_t *item = json_object_get(test->items, id);
	if (!item && selftest_item_is_elsewhere(test, id))
		return;
	if (!item) {
		selftest_note_result(test, id, false,
				     "the probe tries it, but the manifest has no such item");
		return;
	}
	if (!item_is_tried_as(item, setting->user))
		return;
	/* Items that need something on this host that only we could provide. */
	if (strcmp(result, "untried") == 0 && test->client->remote) {
		selftest_note_untried(test, id, "the daemon is on another machine");
		return;
	}
	const json_t *expected = item_expectation(test, item, setting);
	char *text = json_dumps(expected, JSON_ENCODE_ANY);
	selftest_note_result(test, id, selftest_result_matches(result, expected),
			     "%s as uid %s%s%s, expected %s", result, setting->user,
			     setting->nested ? " with nested namespaces" : "",
			     setting->terminal ? " with a terminal" : "", text ? text : "nothing");
	free(text);
}

/* Evaluates lines "NAME RESULT...". Other output comes from the attempts and is ignored. */
static size_t result_lines_judge(struct selftest *test, const struct setting *setting, char *text)
{
	size_t count = 0;
	for (char *line; (line = strsep(&text, "\n"));) {
		line[strcspn(line, "\r")] = '\0';
		char *space = strchr(line, ' ');
		if (!space)
			continue;
		*space = '\0';
		result_judge(test, setting, line, space + 1);
		count++;
	}
	return count;
}

/* Notes items that this setting should have tried and did not: the probe ended early, or lacks
 * them. */
static void missing_items_note(struct selftest *test, const struct setting *setting)
{
	const char *id;
	json_t *item;
	json_object_foreach(test->items, id, item)
	{
		const char *machine = member_text(item, "machine");
		if (!selftest_item_is_side(item, "inside") ||
		    !item_is_tried_as(item, setting->user) || json_object_get(test->results, id))
			continue;
		if (*machine && strcmp(machine, test->machine) != 0)
			selftest_note_untried(test, id, "another kind of processor");
		else
			selftest_note_result(test, id, false, "the probe does not try it");
	}
}

static json_t *probe_environment(const struct selftest *test)
{
	char port[16];
	json_t *environment = json_pack("{s:s}", "PROBE_NEIGHBOUR", test->word);
	if (!test->marker[0])
		return environment;
	snprintf(port, sizeof(port), "%u", test->port);
	json_object_set_new(environment, "PROBE_MARKER", json_string(test->marker));
	json_object_set_new(environment, "PROBE_ABSTRACT", json_string(test->word));
	json_object_set_new(environment, "PROBE_PORT", json_string(port));
	return environment;
}

/* Items that write to a terminal; tried on an exec's terminal. */
static const char *const terminal_words[] = {PROBE,         "tiocsti",  "tiocsti_high_bits",
					     "tioclinux",   "tiocsetd", "tioccons",
					     "tiocvhangup", NULL};

/* All attempts of the probe, so that one without an item is noticed. In other tiers only those of
 * the items: an attempt that is no escape there may end the sandbox. The caller frees the array;
 * the texts belong to the items. */
static const char **probe_words(const struct selftest *test, const struct setting *setting)
{
	const char *id;
	json_t *item;
	size_t count = 0;
	const char **words =
	    calloc(json_object_size(test->items) + ARRAY_SIZE(terminal_words), sizeof(*words));
	if (!words)
		abort();
	words[count++] = PROBE;
	for (size_t i = 1; setting->terminal && terminal_words[i]; i++)
		if (!selftest_item_is_elsewhere(test, terminal_words[i]))
			words[count++] = terminal_words[i];
	if (setting->terminal || strcmp(test->tier, "namespace") == 0)
		return words;
	json_object_foreach(test->items, id, item)
	{
		if (selftest_item_is_side(item, "inside") && item_is_tried_as(item, setting->user))
			words[count++] = id;
	}
	return words;
}

static int probe_run(struct selftest *test, const struct setting *setting, struct error *error)
{
	json_t *result = NULL;
	const char **words = probe_words(test, setting);
	struct selftest_command command = {
	    .user = setting->user,
	    .words = words,
	    .environment = probe_environment(test),
	    .timeout = PROBE_TIMEOUT,
	    .terminal = setting->terminal,
	};
	int outcome = selftest_exec(test, setting->box, &command, &result, error);
	json_decref(command.environment);
	free(words);
	if (outcome < 0)
		return -1;
	FREE_TEXT char *text = text_duplicate(member_text(result, "stdout"));
	size_t count = result_lines_judge(test, setting, text);
	long long code = (long long)member_integer(result, "exit_code");
	json_decref(result);
	if (code != 0)
		return error_set(error, ERROR_INTERNAL,
				 "the probe ended with %lld after %zu attempts as uid %s", code,
				 count, setting->user);
	return 0;
}

/* After all attempts PID 1 must still work. */
static void box_check_alive(struct selftest *test, const char *box)
{
	static const char *const words[] = {"/bin/echo", "alive", NULL};
	json_t *result = NULL;
	struct error error;
	const struct selftest_command command = {.user = "0", .words = words, .timeout = 20};
	bool alive = selftest_exec(test, box, &command, &result, &error) == 0 &&
		     strcmp(member_text(result, "stdout"), "alive\n") == 0;
	if (!selftest_item_is_elsewhere(test, "init_survives"))
		selftest_note_result(test, "init_survives", alive, "the sandbox no longer answers");
	json_decref(result);
}

/* The probe lists its floods separately: each must be an item. */
static int floods_check(struct selftest *test, struct error *error)
{
	static const char *const words[] = {PROBE, "--list", NULL};
	const struct selftest_command command = {.user = "0", .words = words, .timeout = 20};
	json_t *result = NULL;
	if (selftest_exec(test, test->boxes.main, &command, &result, error) < 0)
		return -1;
	FREE_TEXT char *text = text_duplicate(member_text(result, "stdout"));
	json_decref(result);
	char *rest = text;
	for (char *line; (line = strsep(&rest, "\n"));) {
		char id[64];
		if (!text_starts(line, "flood "))
			continue;
		snprintf(id, sizeof(id), "flood_%s", line + strlen("flood "));
		if (!selftest_has_item(test, id) && !selftest_item_is_elsewhere(test, id))
			selftest_note_result(test, id, false,
					     "the probe has it, but the manifest has no such item");
	}
	return 0;
}

static int neighbour_start(struct selftest *test, struct error *error)
{
	DONE_BUFFER struct buffer path = BUFFER(4096);
	if (selftest_request_path(&path, test->boxes.neighbour, "/exec", NULL, error) < 0)
		return -1;
	json_t *body =
	    json_pack("{s:[s,s,s], s:b}", "argv", PROBE, "--serve", test->word, "background", 1);
	int result = client_call(test->client, "POST", path.data, body, NULL, 0, NULL, error);
	json_decref(body);
	if (result < 0)
		return -1;
	char command[160];
	/* A loaded host may need seconds to start it. */
	snprintf(command, sizeof(command),
		 "for i in $(seq 100); do [ -e /tmp/probe-%s ] && exit 0; sleep 0.2; done; exit 1",
		 test->word);
	json_t *answer = NULL;
	if (selftest_shell(test, test->boxes.neighbour, command, &answer, error) < 0)
		return -1;
	bool there = member_integer(answer, "exit_code") == 0;
	json_decref(answer);
	return there ? 0 : error_set(error, ERROR_INTERNAL, "the neighbour did not start");
}

int selftest_run_inside(struct selftest *test, struct error *error)
{
	const struct setting settings[] = {
	    {.user = "0", .box = test->boxes.main},
	    {.user = "1000", .box = test->boxes.main},
	    {.user = "0", .box = test->boxes.main, .terminal = true},
	    {.user = "1000", .box = test->boxes.main, .terminal = true},
	    {.user = "0", .box = test->boxes.nested, .nested = true},
	    {.user = "1000", .box = test->boxes.nested, .nested = true},
	};
	bool one_id = strcmp(test->rights, "one-id") == 0;
	if (floods_check(test, error) < 0 || neighbour_start(test, error) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		if (!settings[i].box[0] || (one_id && strcmp(settings[i].user, "0") != 0))
			continue;
		selftest_show_progress(test, "inside, as uid %s%s", settings[i].user,
				       settings[i].nested ? ", nested" : "");
		if (probe_run(test, &settings[i], error) < 0)
			return -1;
		if (!settings[i].nested && !settings[i].terminal)
			missing_items_note(test, &settings[i]);
	}
	if (one_id)
		selftest_note_untried_side(test, "inside", "a sandbox has one id only here");
	box_check_alive(test, test->boxes.main);
	return 0;
}
