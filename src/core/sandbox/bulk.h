/* The same for many sandboxes at once, chosen by ids, names, labels or state. Each has a result of
 * its own; none keeps the others from theirs. */
#pragma once

#include "core/sandbox/sandbox.h"

#define BULK_MAX 1000

enum bulk_action { BULK_STOP, BULK_START, BULK_PAUSE, BULK_RESUME, BULK_DRAIN, BULK_DELETE };
NODISCARD int bulk_action_parse(const char *text, enum bulk_action *ret_action,
				struct error *error);

/* Borrowed for the length of the call. What is given must all be so. */
struct bulk_spec {
	enum bulk_action action;
	const char *const *sandboxes; /* ids or names; none: of all there are */
	size_t sandbox_count;
	const struct pair *labels;
	size_t label_count;
	enum sandbox_state state; /* 0: any */
	bool all;                 /* nothing else has to be given */
	bool dry_run;             /* only says which they are */
	uint32_t drain_seconds;
	bool drain_delete;
};

struct bulk_result {
	struct id id;   /* unset: there is none such */
	char name[128]; /* its name, or what was asked for */
	uint32_t state; /* enum sandbox_state, after it */
	struct error error;
};

/* done: every one has its result. */
NODISCARD int bulk_start(struct core *core, const struct principal *principal,
			 const struct bulk_spec *spec,
			 void (*done)(void *data, const struct bulk_result *results, size_t count),
			 void *data, struct error *error);
