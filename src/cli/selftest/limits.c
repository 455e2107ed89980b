/* The items that exhaust a resource: each runs in a sandbox with small limits, which must stop it
 * while the neighbour and the daemon go on. A limit that this host does not enforce is not tried.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/selftest/selftest.h"

#define FLOOD_TIMEOUT 180 /* an emulated machine creates only a thousand files a second */
#define AFTER_TRIES 50

/* True if the limit that an item is about is enforced; an item without one is about a limit of the
 * kernel. */
static bool item_limit_is_enforced(const struct selftest *test, const json_t *item)
{
	const char *limit = member_text(item, "limit");
	if (!*limit)
		return true;
	return json_is_true(json_object_get(json_object_get(test->limits, limit), "enforced"));
}

static bool neighbour_answers(struct selftest *test)
{
	static const char *const words[] = {"/bin/echo", "here", NULL};
	const struct selftest_command command = {.user = "0", .words = words, .timeout = 20};
	struct error error;
	json_t *result = NULL;
	bool there = selftest_exec(test, test->boxes.neighbour, &command, &result, &error) == 0 &&
		     strcmp(member_text(result, "stdout"), "here\n") == 0;
	json_decref(result);
	return there;
}

/* The flood's last line is "NAME stopped WHY COUNT"; a killed flood prints none. If the whole
 * sandbox has ended with it, there is no exit code. */
static void flood_judge(struct selftest *test, const char *id, const char *name,
			const json_t *result)
{
	const char *out = member_text(result, "stdout"), *outcome = "not stopped";
	char wanted[64];
	snprintf(wanted, sizeof(wanted), "\n%s stopped ", name);
	if (strstr(out, wanted) || json_is_true(json_object_get(result, "oom_killed")) ||
	    member_integer(result, "exit_code") == 128 + 9)
		outcome = "stopped";
	else if (member_integer(result, "exit_code") == -1)
		outcome = "ended";
	const json_t *expected = json_object_get(json_object_get(test->items, id), "expect");
	size_t length = strlen(out);
	selftest_note_result(test, id, selftest_result_matches(outcome, expected), "%s: ...%s",
			     outcome, out + (length > 80 ? length - 80 : 0));
}

/* The sandbox too must work again once the flood is over. Its last processes may need a moment to
 * end. */
static int flood_await_recovery(struct selftest *test, struct error *error)
{
	for (int tries = 1;; tries++) {
		json_t *after = NULL;
		int result = selftest_shell(test, test->boxes.small, "echo over", &after, error);
		/* A command that is killed right after its start is an answer too. */
		if (result == 0 && strcmp(member_text(after, "stdout"), "over\n") != 0)
			result = error_set(error, ERROR_INTERNAL, "a command does not run in it");
		json_decref(after);
		if (result >= 0 || error->kind != ERROR_RESOURCE_LIMIT || tries == AFTER_TRIES)
			return result;
		usleep(100 * 1000);
	}
}

static void flood_run_as(struct selftest *test, const char *id, const char *name, const char *user)
{
	const char *const words[] = {"/tmp/caisson-probe", "--flood", name, NULL};
	char memory[24];
	snprintf(memory, sizeof(memory), "%llu", SELFTEST_SMALL_MEMORY_MB * MIB);
	json_t *result = NULL, *environment = json_pack("{s:s}", "PROBE_MEMORY", memory);
	const struct selftest_command command = {
	    .user = user, .words = words, .environment = environment, .timeout = FLOOD_TIMEOUT};
	struct error error;
	selftest_show_progress(test, "%s as uid %s", id, user);
	if (selftest_exec(test, test->boxes.small, &command, &result, &error) < 0)
		selftest_note_result(test, id, false, "%s", error.message);
	else
		flood_judge(test, id, name, result);
	json_decref(result);
	json_decref(environment);
	if (!neighbour_answers(test))
		selftest_note_result(test, id, false, "the neighbour does not answer afterwards");
	if (flood_await_recovery(test, &error) < 0)
		selftest_note_result(test, id, false, "the sandbox does not answer afterwards: %s",
				     error.message);
}

int selftest_run_limits(struct selftest *test, struct error *error)
{
	const char *id;
	json_t *item;
	bool one_id = strcmp(test->rights, "one-id") == 0;
	(void)error;
	json_object_foreach(test->items, id, item)
	{
		if (!selftest_item_is_side(item, "limit"))
			continue;
		if (!text_starts(id, "flood_")) {
			selftest_note_result(test, id, false, "there is no attempt for it");
			continue;
		}
		if (!item_limit_is_enforced(test, item)) {
			selftest_note_untried(test, id, "this host does not enforce that limit");
			continue;
		}
		flood_run_as(test, id, id + strlen("flood_"), "0");
		if (!one_id && !json_is_true(json_object_get(item, "slow")))
			flood_run_as(test, id, id + strlen("flood_"), "1000");
	}
	return 0;
}
