/* See account_fields.h. Works on memory; nothing blocks. */
#include "edge/fields/account_fields.h"

#include <string.h>

#include "base/limits.h"
#include "base/text.h"
#include "core/account/access.h"

/* --- tokens --- */

_Static_assert(WORKSPACE_MAX == 63, "the shape of `workspace`");
#define TOKEN(kind, member) FIELD_##kind##_AT(struct token_fields, member)

const struct field token_fields[] = {
    {"scopes", TOKEN(ARRAY, scopes), FIELD_REQUIRED, 1,
     .words = "sandboxes:read,sandboxes:write,admin"},
    /* workspace_check() says what else a name may be. */
    {"workspace", TOKEN(TEXT, spec.workspace),
     .shape = "\"type\":\"string\",\"minLength\":1,\"maxLength\":63"},
    {"expires_seconds", TOKEN(UINT, spec.expires_seconds), .max = TOKEN_EXPIRES_MAX,
     .rest = "0 = never."},
    {"label", TOKEN(TEXT, spec.label), .min = 1, .max = TOKEN_LABEL_MAX,
     .rest = "At most 63 bytes, no control characters."},
    {"sandbox", TOKEN(TEXT, spec.sandbox), FIELD_REST_ONLY, 1, NAME_MAX_LENGTH,
     .rest = "Good for this one only."},
    {"sandbox_id", TOKEN(TEXT, spec.sandbox), FIELD_MCP_ONLY, 1, NAME_MAX_LENGTH},
    {0},
};

int token_fields_check(struct core *core, struct token_fields *fields, struct error *error)
{
	struct token_spec *spec = &fields->spec;
	struct principal owner = {.scopes = SCOPE_READ};
	struct sandbox *sandbox;
	size_t index;
	json_t *item;
	json_array_foreach(fields->scopes, index, item)
	{
		uint32_t scope = 0;
		if (!json_is_string(item))
			return error_set(error, ERROR_INVALID, "field `scopes` must hold strings");
		if (scopes_parse(json_string_value(item), &scope, error) < 0)
			return -1;
		spec->scopes |= scope;
	}
	if (spec->scopes == 0)
		return error_set(error, ERROR_INVALID, "field `scopes` must not be empty");
	if (workspace_check(spec->workspace, error) < 0)
		return error_prepend(error, "field `workspace`");
	if (!spec->sandbox)
		return 0;
	if (text_copy(owner.workspace, sizeof(owner.workspace), spec->workspace) < 0 ||
	    sandbox_find(core, &owner, spec->sandbox, &sandbox, error) < 0)
		return -1;
	spec->sandbox = sandbox->row.id.text;
	return 0;
}

/* --- budgets --- */

#define MAXIMUM_MAX 1e12 /* in the units of the API */
#define BUDGET(kind, member) FIELD_##kind##_AT(struct budget_fields, member)

const struct field budget_fields[] = {
    {"what", BUDGET(TEXT, what), FIELD_REQUIRED | FIELD_WORDS_TOLD, 1, 32,
     .words = BUDGET_WHAT_NAMES},
    {"period", BUDGET(TEXT, period), FIELD_REQUIRED | FIELD_WORDS_TOLD, 1, 32,
     .words = BUDGET_PERIOD_NAMES,
     .rest = "`now` for sandboxes, vcpus, memory_mb, disk_mb; the others for the rest."},
    {"maximum", BUDGET(NUMBER, maximum), .given = FIELD_GIVEN(struct budget_fields, limited),
     .shape = "\"type\":[\"number\",\"null\"],\"minimum\":0",
     .rest = "Null or left out: none, whatever the default."},
    {0},
};

int budget_kind_parse(const char *what, const char *period, uint32_t *ret_what,
		      uint32_t *ret_period, struct error *error)
{
	*ret_what = budget_what_parse(what);
	*ret_period = budget_period_parse(period);
	if (*ret_what == 0)
		return error_set(error, ERROR_INVALID,
				 "there is no budget of \"%.64s\": there are sandboxes, vcpus, "
				 "memory_mb, disk_mb, creates, execs, wall_seconds and cpu_seconds",
				 what);
	if (*ret_period == 0)
		return error_set(error, ERROR_INVALID,
				 "there is no period \"%.64s\": there are now, minute, day and "
				 "month",
				 period);
	if (!budget_possible(*ret_what, *ret_period))
		return error_set(
		    error, ERROR_INVALID, "a budget of %s has the period %s, not %s", what,
		    budget_possible(*ret_what, PERIOD_NOW) ? "now" : "minute, day or month",
		    period);
	return 0;
}

int budget_fields_check(const struct budget_fields *fields, struct budget_wish *wish,
			struct error *error)
{
	double value = fields->maximum;
	if (budget_kind_parse(fields->what, fields->period, &wish->what, &wish->period, error) < 0)
		return -1;
	double unit = (double)budget_unit(wish->what);
	bool whole = unit == 1 || unit == (double)MIB;
	if (value > MAXIMUM_MAX || value * unit >= 9e18 ||
	    (whole && value != (double)(int64_t)value))
		return error_set(error, ERROR_INVALID,
				 "field `maximum` of %s must be a %snumber that is not too large, "
				 "or null for none",
				 budget_what_name(wish->what), whole ? "whole " : "");
	wish->maximum = fields->limited ? (int64_t)(value * unit + 0.5) : BUDGET_UNLIMITED;
	return 0;
}
