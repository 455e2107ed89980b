/* Budgets in JSON: shared by /v1/limits and /v1/budgets. */
#pragma once

#include "core/account/budget.h"
#include "edge/call.h"

/* "budgets": [{"what", "period", "maximum", "used", "left", "resets_at", "source"}] */
void put_budgets(struct json_writer *writer, struct core *core, struct workspace *workspace);
/* An amount in the API's unit. */
void put_amount(struct json_writer *writer, const char *key, uint32_t what, uint64_t amount);
