/* `caisson selftest --escape`: what its parts share. selftest.c makes the sandboxes and reports,
 * the others carry out its items: inside.c what is tried in a sandbox, files.c
 * and client.c what is tried from outside, limits.c what must be stopped.
 * manifest.c says which items a tier has. */
#pragma once

#include "cli/cli.h"

/* tests/escape/manifest.json, as it was when this program was built. */
extern const char escape_manifest[];
extern const size_t escape_manifest_size;

/* Of the sandbox whose limits are exceeded: the least that the gvisor tier takes. */
#define SELFTEST_SMALL_MEMORY_MB 128

/* Sandboxes that a run makes; "" when it is not there. */
struct selftest_boxes {
	char main[64], neighbour[64], nested[64], small[64];
};

struct selftest {
	struct client *client;
	const char *tier;
	json_t *manifest; /* borrowed */
	json_t *items;    /* those of this tier, by id */
	json_t *results;  /* id -> {"tried": n, "failures": [text], "untried": text} */
	struct selftest_boxes boxes;
	json_t *limits;   /* the main sandbox's record of them */
	char rights[16];  /* "root", "subuid" or "one-id": which ids a sandbox has */
	char machine[16]; /* what the probe was built for */
	char word[33];    /* random; names what we make */
	char secret[33];  /* the marker's content */
	char outer[32];   /* on this host; "" when the daemon is elsewhere */
	char folder[64];  /* in it, where the marker is */
	char marker[96];
	int abstract, network; /* listeners on this host, -1 */
	unsigned port;
};

/* Notes that an item was tried. With held = false the text says what came of it. */
void selftest_note_result(struct selftest *test, const char *id, bool held, const char *format, ...)
    PRINTF_LIKE(4, 5);
void selftest_note_untried(struct selftest *test, const char *id, const char *why);
/* Of all items of a side that nothing has tried yet. */
void selftest_note_untried_side(struct selftest *test, const char *side, const char *why);
bool selftest_has_item(const struct selftest *test, const char *id);
bool selftest_item_is_side(const json_t *item, const char *side);
/* Whether the manifest expects that. */
bool selftest_result_matches(const char *result, const json_t *expected);
/* The manifest has it for other tiers only: it is not tried in this one. */
bool selftest_item_is_elsewhere(const struct selftest *test, const char *id);
/* The manifest that is built in, or a file. */
NODISCARD int selftest_load_manifest(const char *file, json_t **ret_manifest, struct error *error);
/* The items of a tier by id, as they are there. */
json_t *selftest_items(const json_t *manifest, const char *tier);
/* What is going on, for a terminal. */
void selftest_show_progress(const struct selftest *test, const char *format, ...) PRINTF_LIKE(2, 3);

/* Requests. The path of a sandbox's resource: "/exec", "/files/stat" with a query of pairs of name
 * and value, NULL at the end. */
NODISCARD int selftest_request_path(struct buffer *path, const char *box, const char *rest,
				    const char *const *query, struct error *error);
/* A command in a sandbox; *ret_result as the API says it. */
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

/* The steps. -1 with *error only when the run itself cannot go on. */
NODISCARD int selftest_run_inside(struct selftest *test, struct error *error);
NODISCARD int selftest_run_files(struct selftest *test, struct error *error);
NODISCARD int selftest_run_client(struct selftest *test, struct error *error);
NODISCARD int selftest_run_limits(struct selftest *test, struct error *error);
