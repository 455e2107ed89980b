/* Checks the tiers: reports what the daemon says about each, and proves it by creating a sandbox,
 * running a command in it and removing it. A child with a time limit asks the daemon, so that the
 * doctor does not hang with a daemon that does not answer. Called by doctor.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/doctor/doctor.h"

#define ANSWER_MAX 65536
#define VERSION_TIMEOUT_MS 20000 /* longer than a daemon takes to start */
#define PROVE_TIMEOUT_MS 60000
#define GVISOR_MEMORY "128M" /* MEMORY_MIN of src/tier/gvisor/driver.c */

struct daemon_question {
	struct client *client;
	const char *tier;
};

/* In the child: replies with JSON, or with an error's message and exit code. */
static int json_reply(const json_t *json, char *text, size_t room)
{
	char *dumped = json ? json_dumps(json, JSON_COMPACT) : NULL;
	int result = dumped && strlen(dumped) < room ? 0 : EMSGSIZE;
	if (result == 0)
		snprintf(text, room, "%s", dumped);
	free(dumped);
	return result;
}

static int error_reply(const struct error *error, char *text, size_t room)
{
	const char *advice = error_info(error->kind)->advice;
	json_t *json = json_pack("{s:s, s:s, s:s}", "error", error->message, "remedy", advice,
				 "code", error_info(error->kind)->code);
	int result = json_reply(json, text, room);
	json_decref(json);
	return result;
}

static int daemon_read_version(void *data, char *text, size_t room)
{
	struct daemon_question *question = data;
	struct error error;
	json_t *answer = NULL;
	if (client_call(question->client, "GET", "/v1/version", NULL, NULL, 0, &answer, &error) < 0)
		return error_reply(&error, text, room);
	return json_reply(answer, text, room);
}

static int sandbox_run_command(struct client *client, const char *id, json_t **ret_result,
			       struct error *error)
{
	DONE_BUFFER struct buffer path = BUFFER(4096);
	if (sandbox_path(&path, id, "/exec", error) < 0)
		return -1;
	json_t *body =
	    json_pack("{s:s, s:i}", "cmd", "test $$ -gt 1 && echo alive", "timeout_seconds", 20);
	int outcome = client_call(client, "POST", path.data, body, NULL, 0, ret_result, error);
	json_decref(body);
	return outcome;
}

static double milliseconds_since(int64_t began)
{
	return (double)(clock_monotonic() - began) / 1e6;
}

static int tier_prove(void *data, char *text, size_t room)
{
	struct daemon_question *question = data;
	struct error error;
	json_t *record = NULL, *result = NULL;
	create_options.isolation = question->tier;
	create_options.timeout = "120";
	/* Do not depend on configured defaults: give what this tier needs at least. */
	if (strcmp(question->tier, "gvisor") == 0)
		create_options.memory = GVISOR_MEMORY;
	int64_t began = clock_monotonic();
	if (client_sandbox_create(question->client, &record, &error) < 0)
		return error_reply(&error, text, room);
	const char *id = member_text(record, "id");
	double created = milliseconds_since(began);
	int outcome = sandbox_run_command(question->client, id, &result, &error);
	double ran = milliseconds_since(began);
	struct error other;
	if (client_sandbox_delete(question->client, id, outcome < 0 ? &other : &error) < 0 &&
	    outcome == 0)
		outcome = -1;
	if (outcome == 0 && (member_integer(result, "exit_code") != 0 ||
			     strcmp(member_text(result, "stdout"), "alive\n") != 0))
		outcome =
		    error_set(&error, ERROR_INTERNAL, "a sandbox ran, but its command failed");
	json_t *answer = json_pack("{s:f, s:f, s:f, s:O}", "create_ms", created, "exec_ms",
				   ran - created, "total_ms", milliseconds_since(began), "limits",
				   json_object_get(record, "limits"));
	int replied =
	    outcome < 0 ? error_reply(&error, text, room) : json_reply(answer, text, room);
	json_decref(answer);
	json_decref(result);
	json_decref(record);
	return replied;
}

/* Asks the daemon from a child. Returns an object, with "error" if there is no answer. */
static json_t *daemon_ask(int (*work)(void *data, char *text, size_t room),
			  struct daemon_question *question, int timeout_ms)
{
	char *text = malloc(ANSWER_MAX);
	if (!text)
		abort();
	int result = doctor_run_child(work, question, timeout_ms, text, ANSWER_MAX);
	json_t *answer = result == 0 ? json_loads(text, 0, NULL) : NULL;
	free(text);
	if (json_is_object(answer))
		return answer;
	json_decref(answer);
	char words[128];
	snprintf(words, sizeof(words), "the daemon did not answer%s%s",
		 result == -ETIMEDOUT ? " within its time" : ": ",
		 result == -ETIMEDOUT ? "" : strerror(result < 0 ? -result : result));
	return json_pack("{s:s, s:s}", "error", words, "remedy", "see the daemon's log");
}

/* Advice for an unavailable tier, if we know more than the daemon said. */
static const char *tier_remedy_text(const char *tier, const char *missing)
{
	char path[128];
	if (strstr(missing, "no such tier") || strstr(missing, "not built in") ||
	    strstr(missing, "no driver"))
		return "";
	if (strcmp(tier, "gvisor") == 0 && !doctor_find_program("runsc", path))
		return "install a current release of gVisor's runsc (Debian 12's own has known "
		       "escapes)";
	return "see the checks above that are marked FAIL or warn";
}

/* The tier's limits without "value": the values are those of the probe and mean nothing here. */
static json_t *limits_without_values(const json_t *limits)
{
	json_t *kept = json_object();
	const char *name;
	json_t *limit;
	json_object_foreach((json_t *)limits, name, limit)
	{
		bool enforced = json_is_true(json_object_get(limit, "enforced"));
		const char *reason = member_text(limit, "reason");
		json_object_set_new(kept, name,
				    enforced
					? json_pack("{s:b}", "enforced", 1)
					: json_pack("{s:b, s:s}", "enforced", 0, "reason", reason));
	}
	return kept;
}

/* No "remedy" if there is nothing to do, as with the checks. */
static void tier_set_remedy(json_t *tier, const char *remedy)
{
	if (*remedy)
		json_object_set_new(tier, "remedy", json_string(remedy));
}

static void tier_add_proof(struct client *client, json_t *tier)
{
	struct daemon_question question = {.client = client, .tier = member_text(tier, "name")};
	json_t *proof = daemon_ask(tier_prove, &question, PROVE_TIMEOUT_MS);
	const char *failure = member_text(proof, "error");
	bool proven = !*failure;
	json_object_set_new(tier, "proven", json_boolean(proven));
	if (proven) {
		json_t *limits = json_object_get(proof, "limits");
		json_object_set_new(tier, "limits", limits_without_values(limits));
		static const char *const times[] = {"create_ms", "exec_ms", "total_ms"};
		for (size_t i = 0; i < ARRAY_SIZE(times); i++)
			json_object_set(tier, times[i], json_object_get(proof, times[i]));
	} else if (strcmp(member_text(proof, "code"), error_info(ERROR_FORBIDDEN)->code) == 0) {
		/* The spawner's probe ran a sandbox when the daemon started. */
		json_object_set_new(tier, "probed", json_true());
	} else {
		json_object_set_new(tier, "missing", json_string(failure));
		tier_set_remedy(tier, member_text(proof, "remedy"));
	}
	json_decref(proof);
}

static json_t *tier_describe(struct client *client, const json_t *said)
{
	const char *name = member_text(said, "name"), *missing = member_text(said, "missing");
	bool available = json_is_true(json_object_get(said, "available"));
	json_t *tier =
	    json_pack("{s:s, s:b, s:b}", "name", name, "available", available, "proven", 0);
	json_object_set_new(tier, "limits", limits_without_values(json_object_get(said, "limits")));
	if (available && json_is_true(json_object_get(said, "by_name_only")))
		json_object_set_new(tier, "by_name_only", json_string(missing));
	if (available) {
		tier_add_proof(client, tier);
	} else {
		json_object_set_new(tier, "missing", json_string(missing));
		tier_set_remedy(tier, tier_remedy_text(name, missing));
	}
	return tier;
}

json_t *doctor_tiers_json(struct client *client)
{
	struct daemon_question question = {.client = client};
	json_t *tiers = json_array(),
	       *version = daemon_ask(daemon_read_version, &question, VERSION_TIMEOUT_MS), *said;
	const char *failure = member_text(version, "error");
	static const char *const names[] = {"namespace", "gvisor", "vm"};
	for (size_t i = 0; *failure && i < ARRAY_SIZE(names); i++)
		json_array_append_new(tiers, json_pack("{s:s, s:b, s:b, s:b, s:{}, s:s, s:s}",
						       "name", names[i], "available", 0, "unknown",
						       1, "proven", 0, "limits", "missing", failure,
						       "remedy", member_text(version, "remedy")));
	size_t at;
	json_array_foreach(json_object_get(version, "isolation"), at, said)
	{
		json_array_append_new(tiers, tier_describe(client, said));
	}
	json_decref(version);
	return tiers;
}
