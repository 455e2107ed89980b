/* The changes of a sandbox's state that get an entry in its activity, and the caller named in it.
 * Called by core/sandbox/step.c at every change; does not block.
 *
 * A change happens some turns after its request. So the caller is kept in transition.begun_by from
 * the beginning of a transition until its entry; a change without a caller was done by "system". */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "core/core_private.h"
#include "proto/tiers.h"

void activity_transition_by(struct sandbox *sandbox, const struct principal *principal)
{
	struct sandbox_life *life = sandbox->life;
	char actor[ACTIVITY_ACTOR_MAX];
	activity_actor(principal, actor);
	/* Woken by a request of an earlier turn. */
	if (!principal && life->woken_by[0])
		memcpy(actor, life->woken_by, sizeof(actor));
	memcpy(life->transition.begun_by, actor, sizeof(actor));
	life->woken_by[0] = '\0';
}

void activity_woken_by(struct sandbox *sandbox, const struct principal *principal)
{
	activity_actor(principal, sandbox->life->woken_by);
}

static void transition_record(struct sandbox *sandbox, enum activity_kind kind,
			      const struct detail *details, size_t count)
{
	char *by = sandbox->life->transition.begun_by;
	activity_record_by(sandbox, kind, by[0] ? by : "system", NULL, details, count);
	by[0] = '\0';
}

/* "cpu,disk": the limits that are not enforced on this host; "none" if all are. */
static void limits_unenforced_text(const struct sandbox_row *row, char *text, size_t room)
{
	size_t used = 0;
	for (int kind = 0; kind < LIMIT_COUNT && used < room; kind++)
		if (row->limit_reasons[kind] != LIMIT_ENFORCED)
			used += (size_t)snprintf(text + used, room - used, "%s%s", used ? "," : "",
						 limit_name((enum limit_kind)kind));
	if (used == 0)
		snprintf(text, room, "none");
}

static void activity_record_boot(struct sandbox *sandbox, enum activity_kind kind)
{
	char boot[24], missing[128];
	snprintf(boot, sizeof(boot), "%" PRIu64, sandbox->row.boot_us);
	limits_unenforced_text(&sandbox->row, missing, sizeof(missing));
	const struct detail details[] = {
	    {"boot", create_origin_facts(sandbox->row.create_origin)->name},
	    {"boot_us", boot},
	    {"isolation", tier_name((enum tier)sandbox->row.tier)},
	    {"limits_not_enforced", missing},
	};
	transition_record(sandbox, kind, details, ARRAY_SIZE(details));
}

void activity_paused(struct sandbox *sandbox)
{
	const struct pause_report *pause = &sandbox->pause;
	char before[24], after[24];
	snprintf(before, sizeof(before), "%" PRIu64, pause->memory_before);
	snprintf(after, sizeof(after), "%" PRIu64, pause->memory_after);
	const struct detail details[] = {
	    {"memory_before_bytes", pause->known ? before : NULL},
	    {"memory_after_bytes", pause->known ? after : NULL},
	};
	transition_record(sandbox, ACTIVITY_SANDBOX_PAUSED, details, ARRAY_SIZE(details));
}

static void activity_record_end(struct sandbox *sandbox)
{
	const struct sandbox_row *row = &sandbox->row;
	const struct detail details[] = {
	    {"reason", end_reason_name((enum end_reason)row->end_reason)},
	    {"message", row->end_message},
	};
	transition_record(sandbox, ACTIVITY_SANDBOX_ENDED, details, ARRAY_SIZE(details));
}

bool activity_state(struct sandbox *sandbox, enum sandbox_state before, enum sandbox_action action)
{
	enum sandbox_state state = (enum sandbox_state)sandbox->row.state;
	const struct state_facts *was = state_facts(before);
	if (state == before)
		return false;
	if (state == SANDBOX_RUNNING && was->booting)
		activity_record_boot(sandbox, before == SANDBOX_CREATING
						  ? ACTIVITY_SANDBOX_RUNNING
						  : ACTIVITY_SANDBOX_STARTED);
	else if (state == SANDBOX_RUNNING && was->counts_as == COUNTS_PAUSED)
		transition_record(sandbox, ACTIVITY_SANDBOX_RESUMED, NULL, 0);
	else if (state == SANDBOX_PAUSED && before == SANDBOX_PAUSING &&
		 action != SANDBOX_ACTION_RECLAIM)
		activity_paused(sandbox); /* else when the reclaimed amount is known */
	else if (state == SANDBOX_STOPPED && before != SANDBOX_STARTING)
		transition_record(sandbox, ACTIVITY_SANDBOX_STOPPED,
				  &(struct detail){"reason", before == SANDBOX_STOPPING
								 ? "asked"
								 : "its processes ended"},
				  1);
	else if (state == SANDBOX_ENDED)
		activity_record_end(sandbox);
	else
		return false;
	return true;
}

void activity_created(struct sandbox *sandbox, const struct principal *principal)
{
	const struct sandbox_row *row = &sandbox->row;
	char cpu[24], memory[24], disk[24], timeout[24];
	snprintf(cpu, sizeof(cpu), "%u", row->limits.cpu_millis);
	snprintf(memory, sizeof(memory), "%" PRIu64, row->limits.memory);
	snprintf(disk, sizeof(disk), "%" PRIu64, row->limits.disk);
	snprintf(timeout, sizeof(timeout), "%u", row->timeout_seconds);
	ACTIVITY(sandbox, ACTIVITY_SANDBOX_CREATED, principal, NULL, {"name", row->name},
		 {"template", row->template}, {"template_asked", row->template_asked},
		 {"isolation", tier_name((enum tier)row->tier)},
		 {"network", network_name(row->network)}, {"cpu_millis", cpu},
		 {"memory_bytes", memory}, {"disk_bytes", disk}, {"timeout_seconds", timeout});
	activity_actor(principal, sandbox->life->transition.begun_by);
}

void activity_failed(struct sandbox *sandbox, const char *what, const struct error *error)
{
	const struct detail details[] = {
	    {"while", what},
	    {"code", error_info(error->kind)->code},
	    {"error", error->message},
	};
	activity_record_by(sandbox, ACTIVITY_SANDBOX_FAILED, "system", NULL, details,
			   ARRAY_SIZE(details));
}
