/* One action for many sandboxes, selected by ids, names, labels or state. Each has a result of its
 * own; a failure does not stop the others. */
#pragma once

#include "core/sandbox/sandbox.h"

#define BULK_MAX 1000

enum bulk_action { BULK_STOP, BULK_START, BULK_PAUSE, BULK_RESUME, BULK_DRAIN, BULK_DELETE };
NODISCARD int bulk_action_parse(const char *text, enum bulk_action *ret_action,
				struct error *error);

/* Borrowed for the length of the call. A sandbox must match everything that is given. */
struct bulk_spec {
	enum bulk_action action;
	const char *const *sandboxes; /* ids or names; none: all sandboxes */
	size_t sandbox_count;
	const struct pair *labels;
	size_t label_count;
	enum sandbox_state state; /* 0: any */
	bool all;                 /* select every sandbox; else something must be given */
	bool dry_run;             /* only list the selected ones */
	uint32_t drain_seconds;
	bool drain_delete;
};

struct bulk_result {
	struct id id;   /* unset: no such sandbox */
	char name[128]; /* its name, or the requested text */
	uint32_t state; /* enum sandbox_state, after the action */
	struct error error;
};

/* done: each has its result. */
NODISCARD int bulk_start(struct core *core, const struct principal *principal,
			 const struct bulk_spec *spec,
			 void (*done)(void *data, const struct bulk_result *results, size_t count),
			 void *data, struct error *error);
