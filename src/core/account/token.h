/* Access tokens: random, shown once, stored as a hash. */
#pragma once

#include "core/core.h"

#define TOKEN_TEXT_SIZE 64 /* "csn_" and 43 characters of base64url, NUL */

#define TOKEN_EXPIRES_MAX (100ULL * 366 * 86400) /* seconds */
#define TOKEN_LABEL_MAX 63

struct token_spec {
	const char *workspace;
	uint32_t scopes;
	uint64_t expires_seconds; /* 0 = never */
	const char *label;        /* for people; may be NULL */
	const char *sandbox;      /* NULL, or the id it is bound to */
};

NODISCARD int token_create(struct core *core, const struct token_spec *spec,
			   char text[TOKEN_TEXT_SIZE], struct token_row *ret_row,
			   struct error *error);
/* Fills the principal of a valid token; UNAUTHENTICATED for any other, without saying why. */
NODISCARD int token_check(struct core *core, const char *text, struct principal *ret_principal,
			  struct error *error);
/* The sandbox has ended: ends the tokens that are bound to it. */
void tokens_end_with(struct core *core, const struct id *sandbox);
/* Every token, including revoked ones. each returns false to stop, and must not call the store. */
NODISCARD int token_each(struct core *core, bool (*each)(void *data, const struct token_row *row),
			 void *data, struct error *error);
/* TOKEN_NOT_FOUND. Takes effect at once, also for open connections. */
NODISCARD int token_revoke(struct core *core, const struct id *id, struct error *error);

/* Notifies code that keeps something open for a token, once and in a later turn, when the token is
 * revoked, expires or ends with its sandbox. */
struct token_watcher {
	struct list link;     /* list_init() before anything else */
	struct id token;      /* unset: only the time counts */
	int64_t expires_wall; /* 0 = never; may be earlier than the token's own */
	void (*ended)(struct token_watcher *watcher);
};
void token_watch(struct core *core, struct token_watcher *watcher);
void token_unwatch(struct token_watcher *watcher);
/* For timers.c: notifies the watchers of expired tokens; returns when to call again
 * (CLOCK_BOOTTIME). */
int64_t tokens_tend(struct core *core, int64_t now);
/* "sandboxes:read,sandboxes:write,admin" to bits; INVALID names the word. */
NODISCARD int scopes_parse(const char *text, uint32_t *ret_scopes, struct error *error);
void scopes_text(uint32_t scopes, char *text, size_t room);
bool workspace_valid(const char *text);
/* The same; the error says which names are valid. */
NODISCARD int workspace_check(const char *text, struct error *error);
/* Is it the same caller? Then either may use objects that the other began. */
bool principal_same(const struct principal *a, const struct principal *b);
struct writer;
/* Writes the identity of the caller, for signatures: equal bytes exactly for the same caller. */
void principal_write(struct writer *writer, const struct principal *principal);
