/* `caisson doctor`: what this host can do, what is missing and the command that fixes it. It proves
 * each tier by running a sandbox. The checks are in the other files of this folder; this file has
 * their list, the output and the exit code. Changes nothing on the host; every check is bounded in
 * time. */
#include "cli/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/client/instance.h"

/* Version of the --json output: raised when a member is removed or changes its meaning. */
#define REPORT_VERSION 1

void finding_set(struct finding *finding, enum verdict verdict, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(finding->text, sizeof(finding->text), format, args);
	va_end(args);
	finding->verdict = verdict;
}

void finding_set_remedy(struct finding *finding, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(finding->remedy, sizeof(finding->remedy), format, args);
	va_end(args);
}

/* The names are part of the --json output and must not change. */
static const struct doctor_check {
	const char *name;
	DOCTOR_CHECK((*look));
} checks[] = {
    {"kernel", doctor_check_kernel},
    {"system calls", doctor_check_calls},
    {"user", doctor_check_user},
    {"subordinate ids", doctor_check_subordinate_ids},
    {"namespaces", doctor_check_namespaces},
    {"restrictions", doctor_check_restrictions},
    {"proc", doctor_check_proc},
    {"cgroups", doctor_check_cgroups},
    {"delegation", doctor_check_delegation},
    {"overlayfs", doctor_check_overlay},
    {"idmapped mounts", doctor_check_idmapped},
    {"disk limit", doctor_check_disk_limit},
    {"seccomp", doctor_check_seccomp},
    {"landlock", doctor_check_landlock},
    {"nftables", doctor_check_nftables},
    {"virtualization", doctor_check_kvm},
    {"runsc", doctor_check_runsc},
    {"state directory", doctor_check_state},
    {"host limits", doctor_check_limits},
    {"clock", doctor_check_clock},
    {"daemon", doctor_check_instance},
};

static const char *const verdict_names[] = {"ok", "info", "warning", "failed"};
static const char *const marks[] = {"ok  ", "info", "warn", "FAIL"};
static const char *const colours[] = {"\033[32m", "\033[36m", "\033[33m", "\033[31m"};

static bool output_is_coloured(void)
{
	const char *terminal = getenv("TERM");
	return isatty(STDOUT_FILENO) && !getenv("NO_COLOR") && terminal &&
	       strcmp(terminal, "dumb") != 0;
}

static void finding_line_print(enum verdict verdict, const char *name, const char *text,
			       const char *remedy)
{
	bool colour = output_is_coloured();
	printf("%s%s%s  %-16s ", colour ? colours[verdict] : "", marks[verdict],
	       colour ? "\033[0m" : "", name);
	safe_text_print(text);
	putchar('\n');
	if (*remedy) {
		printf("      %-16s -> ", "");
		safe_text_print(remedy);
		putchar('\n');
	}
	fflush(stdout);
}

static json_t *host_examine(const struct client *client)
{
	json_t *list = json_array();
	for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
		struct finding finding = {0};
		int64_t began = clock_monotonic();
		checks[i].look(client, &finding);
		double took = (double)(clock_monotonic() - began) / 1e6;
		json_t *entry =
		    json_pack("{s:s, s:s, s:s, s:f}", "name", checks[i].name, "status",
			      verdict_names[finding.verdict], "text", finding.text, "ms", took);
		/* A program's output may not be valid UTF-8. */
		if (!entry)
			entry = json_pack("{s:s, s:s, s:s, s:f}", "name", checks[i].name, "status",
					  verdict_names[finding.verdict], "text", "", "ms", took);
		if (*finding.remedy)
			json_object_set_new(entry, "remedy", json_string(finding.remedy));
		json_array_append_new(list, entry);
		if (!cli_json)
			finding_line_print(finding.verdict, checks[i].name, finding.text,
					   finding.remedy);
	}
	return list;
}

/* Prints the enforced limits in one line, and the others grouped by reason. */
static void limits_print(json_t *limits)
{
	char line[256] = "";
	const char *name;
	json_t *limit;
	json_object_foreach(limits, name, limit)
	{
		size_t used = strlen(line);
		if (json_is_true(json_object_get(limit, "enforced")))
			snprintf(line + used, sizeof(line) - used, "%s%s", used ? ", " : "", name);
	}
	printf("      %-16s    enforced: %s\n", "", *line ? line : "nothing");
	unenforced_limits_print(limits, "                          NOT enforced: ");
}

static bool limits_are_enforced(const json_t *limits)
{
	const char *name;
	json_t *limit;
	bool all = true;
	json_object_foreach((json_t *)limits, name, limit)
	{
		all = all && json_is_true(json_object_get(limit, "enforced"));
	}
	return all;
}

/* True if the checks on which limits depend have remedies. */
static bool checks_have_more(const json_t *checks_done)
{
	static const char *const names[] = {"cgroups", "delegation", "disk limit"};
	size_t at;
	json_t *check;
	json_array_foreach(checks_done, at, check)
	{
		for (size_t i = 0; i < ARRAY_SIZE(names); i++)
			if (strcmp(member_text(check, "name"), names[i]) == 0 &&
			    strcmp(member_text(check, "status"), "ok") != 0)
				return true;
	}
	return false;
}

static void tier_print(const json_t *tier, bool more_above)
{
	char name[32], text[1024];
	bool proven = json_is_true(json_object_get(tier, "proven"));
	bool probed = json_is_true(json_object_get(tier, "probed"));
	snprintf(name, sizeof(name), "tier %s", member_text(tier, "name"));
	if (!proven && !probed) {
		snprintf(text, sizeof(text), "not available: %s", member_text(tier, "missing"));
		bool broken = json_is_true(json_object_get(tier, "available"));
		finding_line_print(broken ? VERDICT_WARNING : VERDICT_INFORMATION, name, text,
				   member_text(tier, "remedy"));
		return;
	}
	json_t *limits = json_object_get(tier, "limits");
	if (probed)
		snprintf(text, sizeof(text),
			 "the daemon ran a sandbox when it started; this token may not make one");
	else
		snprintf(text, sizeof(text),
			 "a sandbox ran: made in %.0f ms, command in %.0f ms, all %.0f ms",
			 json_number_value(json_object_get(tier, "create_ms")),
			 json_number_value(json_object_get(tier, "exec_ms")),
			 json_number_value(json_object_get(tier, "total_ms")));
	finding_line_print(limits_are_enforced(limits) ? VERDICT_OK : VERDICT_WARNING, name, text,
			   "");
	limits_print(limits);
	if (*member_text(tier, "by_name_only"))
		printf("      %-16s    %s\n", "", member_text(tier, "by_name_only"));
	if (!limits_are_enforced(limits) && more_above)
		printf("      %-16s -> cgroups, delegation and disk limit above say what helps\n",
		       "");
}

static void tiers_print(const json_t *tiers, const json_t *checks_done)
{
	const json_t *tier, *first = json_array_get(tiers, 0);
	size_t at;
	/* Without a daemon all tiers have the same problem. */
	if (json_is_true(json_object_get(first, "unknown"))) {
		finding_line_print(VERDICT_FAILED, "tiers", member_text(first, "missing"),
				   member_text(first, "remedy"));
		return;
	}
	json_array_foreach(tiers, at, tier)
	{
		tier_print(tier, checks_have_more(checks_done));
	}
}

static int doctor_run(struct client *client, int argc, char **argv, struct error *error)
{
	if (argc > 1)
		return error_set(error, ERROR_USAGE, "doctor takes no argument (\"%s\")", argv[1]);
	bool works = false;
	struct error ignored;
	/* An unknown or contradictory state directory is a finding, not an error. */
	(void)!instance_find_state(client, &ignored);
	json_t *list = host_examine(client), *tiers = doctor_tiers_json(client), *tier;
	size_t at;
	json_array_foreach(tiers, at, tier)
	{
		works = works || json_is_true(json_object_get(tier, "proven")) ||
			json_is_true(json_object_get(tier, "probed"));
	}
	if (!cli_json)
		tiers_print(tiers, list);
	if (cli_json) {
		json_t *report = json_pack("{s:i, s:s, s:o, s:o, s:b}", "report_version",
					   REPORT_VERSION, "caisson", CAISSON_VERSION, "checks",
					   list, "tiers", tiers, "works", works);
		json_print(report);
		json_decref(report);
	} else {
		printf("\n%s\n", works ? "This host runs sandboxes."
				       : "No tier works on this host: no sandbox can be run.");
		json_decref(list);
		json_decref(tiers);
	}
	return works ? 0 : 1;
}

const struct verb verb_doctor = {
    .name = "doctor",
    .arguments = "[--json]",
    .summary = "Check what this host can isolate, and prove it",
    .help =
	"Looks at the kernel, namespaces, cgroups, file systems and what the tiers need, says\n"
	"what is missing and the command that fixes it, and proves each tier by running a command\n"
	"in a sandbox of it. Exits with 0 if at least one tier works, else with 1; warnings do "
	"not\n"
	"count. Changes nothing. Root and ordinary users can run it; it reports what that user "
	"gets.",
    .configuration = CONFIGURATION_ALWAYS,
    .run = doctor_run,
};
