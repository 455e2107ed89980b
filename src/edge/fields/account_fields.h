/* What tokens and budgets are made of, for REST and for the administration's face of MCP. */
#pragma once

#include "core/account/budget.h"
#include "core/account/token.h"
#include "edge/fields/fields.h"

/* Zeroed before, but for the workspace; texts are borrowed from the JSON. */
struct token_fields {
	struct token_spec spec; /* whole after token_fields_check() */
	json_t *scopes;
};
extern const struct field token_fields[];
/* What they say; a sandbox may be named, in the workspace that the token will be of. */
NODISCARD int token_fields_check(struct core *core, struct token_fields *fields,
				 struct error *error);

struct budget_fields {
	const char *what, *period;
	double maximum;
	bool limited;
};
extern const struct field budget_fields[];
NODISCARD int budget_kind_parse(const char *what, const char *period, uint32_t *ret_what,
				uint32_t *ret_period, struct error *error);
NODISCARD int budget_fields_check(const struct budget_fields *fields, struct budget_wish *ret_wish,
				  struct error *error);
