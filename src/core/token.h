/* Access tokens: random, shown once, stored as a hash. */
#pragma once

#include "core/core.h"

#define TOKEN_TEXT_SIZE 64 /* "csn_" and 43 characters of base64url, NUL */

struct token_spec {
	const char *workspace;
	uint32_t scopes;
	uint64_t expires_seconds; /* 0 = never */
	const char *label;        /* NULL, or for people */
	const char *sandbox;      /* NULL, or the id it is bound to */
};

NODISCARD int token_create(struct core *core, const struct token_spec *spec,
			   char text[TOKEN_TEXT_SIZE], struct token_row *ret_row,
			   struct error *error);
/* Fills the principal of a valid token; UNAUTHENTICATED for any other, without saying why. */
NODISCARD int token_check(struct core *core, const char *text, struct principal *ret_principal,
			  struct error *error);
/* "sandboxes:read,sandboxes:write,admin" to bits; INVALID names the word. */
NODISCARD int scopes_parse(const char *text, uint32_t *ret_scopes, struct error *error);
void scopes_text(uint32_t scopes, char *text, size_t room);
bool workspace_valid(const char *text);
