/* Shared by the files of `caisson selftest --escape`. selftest.c runs the steps and reports,
 * sandboxes.c makes and removes what a run needs. The others try the items, a file per side of the
 * manifest: inside.c, files.c, client.c and limits.c. manifest.c says which items a tier has. */
#pragma once

#include "cli/cli.h"

/* tests/escape/manifest.json, built into this program. */
extern const char escape_manifest[];
extern const size_t escape_manifest_size;

/* Memory of the sandbox whose limits are exceeded: the minimum of the gvisor tier. */
#define SELFTEST_SMALL_MEMORY_MB 128

/* Sandboxes that a run creates; "" for a sandbox that does not exist. */
struct selftest_boxes {
	char main[64], neighbour[64], nested[64], small[64];
};

struct selftest {
	struct client *client;
	const char *tier;
	json_t *manifest; /* borrowed */
	json_t *items;    /* this tier's items by id */
	json_t *results;  /* id -> {"tried": n, "failures": [text], "untried": text} */
	struct selftest_boxes boxes;
	json_t *limits;   /* from the main sandbox's record */
	char rights[16];  /* "root", "subuid" or "one-id": which ids a sandbox has */
	char machine[16]; /* the probe's architecture */
	char word[33];    /* random; part of the names that we use */
	char secret[33];  /* the marker's content */
	char outer[32];   /* on this host; "" if the daemon is remote */
	char folder[64];  /* in `outer`; holds the marker */
	char marker[96];
	int abstract, network; /* listeners on this host, -1 */
	unsigned port;
};

/* Notes that an item was tried. With held = false the text says what happened. */
void selftest_note_result(struct selftest *test, const char *id, bool held, const char *format, ...)
    PRINTF_LIKE(4, 5);
void selftest_note_untried(struct selftest *test, const char *id, const char *why);
/* Notes all items of a side that have no result yet. */
void selftest_note_untried_side(struct selftest *test, const char *side, const char *why);
bool selftest_has_item(const struct selftest *test, const char *id);
bool selftest_item_is_side(const json_t *item, const char *side);
/* True if the manifest expects this result. */
bool selftest_result_matches(const char *result, const json_t *expected);
/* True if the manifest has the item only for other tiers: it is not tried in this one. */
bool selftest_item_is_elsewhere(const struct selftest *test, const char *id);
/* Loads the built-in manifest, or a file. */
NODISCARD int selftest_load_manifest(const char *file, json_t **ret_manifest, struct error *error);
/* The items of a tier by id, with the fields of the manifest. */
json_t *selftest_items(const json_t *manifest, const char *tier);
/* Shows on a terminal what is being done. */
void selftest_show_progress(const struct selftest *test, const char *format, ...) PRINTF_LIKE(2, 3);

/* Appends the path of a sandbox's resource ("/exec", "/files/stat"). query: pairs of name and
 * value, NULL at the end. */
NODISCARD int selftest_request_path(struct buffer *path, const char *box, const char *rest,
				    const char *const *query, struct error *error);
/* Runs a command in a sandbox; *ret_result is the API's answer. */
struct selftest_command {
	const char *user;
	const char *const *words;
	json_t *environment; /* borrowed; NULL: none */
	int timeout;
	bool terminal;
};
NODISCARD int selftest_exec(struct selftest *test, const char *box,
			    const struct selftest_command *command, json_t **ret_result,
			    struct error *error);
NODISCARD int selftest_shell(struct selftest *test, const char *box, const char *command,
			     json_t **ret_result, struct error *error);

/* The steps of a run. -1 with *error only if the run cannot go on. */
NODISCARD int selftest_make_sandboxes(struct selftest *test, struct error *error);
NODISCARD int selftest_run_inside(struct selftest *test, struct error *error);
NODISCARD int selftest_run_files(struct selftest *test, struct error *error);
NODISCARD int selftest_run_client(struct selftest *test, struct error *error);
NODISCARD int selftest_run_limits(struct selftest *test, struct error *error);
/* Removing what the first step made, also after it has failed in the middle. */
void selftest_remove_marker(struct selftest *test);
void selftest_remove_sandboxes(struct selftest *test);
