/* What an operation takes, in one place: a table with a row for each field. The table makes the
 * parser of a JSON body, of the arguments of an MCP tool and of a query; the OpenAPI schema, which
 * a unit test holds against docs/openapi; the `inputSchema` of the tool; and the texts of errors.
 *
 *     struct drain { uint32_t timeout_seconds; const char *then; bool cancel; };
 *     const struct field drain_fields[] = {
 *         {"timeout_seconds", FIELD_UINT_AT(struct drain, timeout_seconds), .max = DRAIN_MAX,
 *          .rest = "After that it is stopped whatever runs."},
 *         {"then", FIELD_TEXT_AT(struct drain, then), .words = "stop,delete"},
 *         {"cancel", FIELD_BOOL_AT(struct drain, cancel)},
 *         {0},
 *     };
 *
 * A row says what one field alone may be. What several say together is the handler's to check.
 *
 * In a query (call_query()) every value is text. Its types are FIELD_TEXT, whose `max` must be set,
 * FIELD_BOOL (1, 0, true or false), FIELD_UINT, and two that only a query has. An empty value
 * counts as not given, except for a FIELD_TEXT with `min` 1. The sentence that describes a
 * parameter is in docs/openapi alone. */
#pragma once

#include "base/config.h"
#include "core/sandbox/sandbox.h"
#include "edge/json/json.h"

enum field_type {
	FIELD_TEXT,   /* const char *, borrowed; min..max bytes; no NUL can be in it */
	FIELD_BOOL,   /* bool; with `bit`, that bit of a uint32_t */
	FIELD_UINT,   /* uint64_t, uint32_t or uint16_t; min..max, then times `unit` */
	FIELD_INT,    /* int64_t; any sign */
	FIELD_NUMBER, /* double; at least 0, finite; max is only in the description */
	FIELD_MILLI,  /* uint32_t, thousandths of the given number; min..max thousandths */
	FIELD_OBJECT, /* json_t *, borrowed; `inner` describes it */
	FIELD_STRUCT, /* a struct, which `inner` fills from an object */
	FIELD_PAIRS,  /* json_t *, borrowed: an object of strings; max is only in the description */
	FIELD_ARRAY,  /* json_t *, borrowed; of `words`, of objects by `inner`, else of strings; min
			 and max, the number of its items, are only in the description */
	FIELD_ANY,    /* json_t *, borrowed */
	FIELD_ROWS,   /* the rows of `inner` stand here, without those that `words` names; they fill
		       * the struct that is the member. `inner` has no row of this type. */
	/* Of a query alone: */
	FIELD_TIME, /* int64_t, nanoseconds since 1970, never 0. The text, of at most `max` bytes,
		     * is RFC 3339, a date, seconds since 1970, or an age like 10m */
	FIELD_QUERY_PAIRS, /* struct query_pairs; has a `shape` */
};

enum field_flag {
	FIELD_REQUIRED = 1 << 0,
	FIELD_REST_ONLY = 1 << 1,     /* not in MCP */
	FIELD_MCP_ONLY = 1 << 2,      /* not in REST */
	FIELD_MCP_MIN = 1 << 3,       /* MCP describes `min` too; it describes no other bound */
	FIELD_WORDS_TOLD = 1 << 4,    /* `words` are only described: others get their own answer */
	FIELD_REQUIRED_TOLD = 1 << 5, /* required, but only in the description */
	FIELD_NULLS = 1 << 6, /* null counts as given; of a FIELD_PAIRS, values may be null */
};

struct field {
	const char *name;
	enum field_type type;
	uint16_t at, size; /* the member to fill */
	uint32_t flags;
	uint64_t min, max; /* max 0: no bound */
	uint64_t unit;     /* 0 is 1 */
	uint64_t fallback; /* of a FIELD_UINT that is missing */
	uint32_t bit;
	/* 0, or FIELD_GIVEN() of a bool that records whether it was given; with `bit`, of a
	 * uint32_t whose bit does. */
	uint16_t given;
	const char *words; /* "a,b": no other value is accepted */
	uint64_t (*max_here)(
	    const struct config *config); /* this host's maximum, described instead of max */
	const char *of;                   /* what is counted, for the error */
	const struct field *inner;
	const char *shape; /* members of its JSON schema that type and bounds cannot express */
	const char *fallback_text; /* of a FIELD_TEXT that is not given */
	const char *rest, *mcp;    /* its description in each; NULL: the name is sufficient */
};

/* type, at and size of a row. A member of another C type does not compile. */
#define FIELD_AT(kind, owner, member, ctype)                                                       \
	kind, offsetof(owner, member),                                                             \
	    sizeof(((owner *)0)->member) +                                                         \
		0 * sizeof(                                                                        \
			char[__builtin_types_compatible_p(__typeof__(((owner *)0)->member), ctype) \
				 ? 1                                                               \
				 : -1])
/* `given` of a row: a bool, or with `bit` a uint32_t. A member may stand at offset 0. */
#define FIELD_GIVEN_AS(owner, member, ctype)                                                       \
	(offsetof(owner, member) + 1 +                                                             \
	 0 * sizeof(char[__builtin_types_compatible_p(__typeof__(((owner *)0)->member), ctype)     \
			     ? 1                                                                   \
			     : -1]))
#define FIELD_GIVEN(owner, member) FIELD_GIVEN_AS(owner, member, bool)
#define FIELD_GIVEN_BIT(owner, member) FIELD_GIVEN_AS(owner, member, uint32_t)
#define FIELD_TEXT_AT(owner, member) FIELD_AT(FIELD_TEXT, owner, member, const char *)
#define FIELD_BOOL_AT(owner, member) FIELD_AT(FIELD_BOOL, owner, member, bool)
#define FIELD_BIT_AT(owner, member) FIELD_AT(FIELD_BOOL, owner, member, uint32_t)
#define FIELD_UINT_AT(owner, member)                                                               \
	FIELD_UINT, offsetof(owner, member),                                                       \
	    sizeof(((owner *)0)->member) +                                                         \
		0 * sizeof(char[_Generic(((owner *)0)->member, uint64_t : 1, uint32_t : 1,         \
					 uint16_t : 1, default                                     \
					 : -1)])
#define FIELD_INT_AT(owner, member) FIELD_AT(FIELD_INT, owner, member, int64_t)
#define FIELD_NUMBER_AT(owner, member) FIELD_AT(FIELD_NUMBER, owner, member, double)
#define FIELD_MILLI_AT(owner, member) FIELD_AT(FIELD_MILLI, owner, member, uint32_t)
#define FIELD_OBJECT_AT(owner, member) FIELD_AT(FIELD_OBJECT, owner, member, json_t *)
#define FIELD_PAIRS_AT(owner, member) FIELD_AT(FIELD_PAIRS, owner, member, json_t *)
#define FIELD_ARRAY_AT(owner, member) FIELD_AT(FIELD_ARRAY, owner, member, json_t *)
#define FIELD_TIME_AT(owner, member) FIELD_AT(FIELD_TIME, owner, member, int64_t)
#define FIELD_QUERY_PAIRS_AT(owner, member)                                                        \
	FIELD_AT(FIELD_QUERY_PAIRS, owner, member, struct query_pairs)
#define FIELD_ANY_AT(owner, member) FIELD_AT(FIELD_ANY, owner, member, json_t *)
#define FIELD_STRUCT_AT(owner, member, ctype) FIELD_AT(FIELD_STRUCT, owner, member, ctype)
#define FIELD_ROWS_AT(owner, member, ctype) "", FIELD_AT(FIELD_ROWS, owner, member, ctype)

/* A parameter of the form KEY=VALUE that may be given again: `label=team=red&label=tier=1`. */
#define QUERY_PAIRS_MAX 16
#define QUERY_PAIR_MAX 511 /* bytes of one, decoded */

struct query_pairs {
	struct pair pairs[QUERY_PAIRS_MAX]; /* borrowed */
	size_t count;
};

enum field_form {
	FIELDS_REST,
	FIELDS_QUERY, /* REST's, in the URL */
	FIELDS_MCP,   /* lenient: accepts a number or a list that is written as text */
};

/* Fills `into` with the values of the object; null counts as missing. A missing field keeps its
 * value, or gets `fallback`. INVALID names the field. config: NULL, or the source of max_here.
 * FIELDS_MCP may change the object. */
NODISCARD int fields_parse(const json_t *object, const struct field *fields, enum field_form form,
			   const struct config *config, void *into, struct error *error);
/* The same for one row alone. */
NODISCARD int field_parse(json_t *object, const struct field *field, enum field_form form,
			  const struct config *config, void *into, struct error *error);

/* Goes over the rows that the form has, also those that stand in another table:
 *     for (struct field_walk walk = {form, fields}; (field = field_next(&walk));) */
struct field_walk {
	enum field_form form;
	const struct field *next;  /* NULL: that was all */
	const struct field *outer; /* the row whose rows these are */
};
const struct field *field_next(struct field_walk *walk);
/* The same of a query as it stands in the URL. Its names are known (router.c). Text borrows from
 * `room`, which has the size of the query and one byte more. */
NODISCARD int fields_parse_query(const char *query, const struct field *fields, char *room,
				 void *into, struct error *error);

/* The text of a FIELD_TIME; -EINVAL. */
NODISCARD int field_time_parse(const char *text, int64_t *ret_wall);

/* The row of that name; NULL: unknown. */
const struct field *field_find(const struct field *fields, enum field_form form, const char *name,
			       size_t size);
/* "`a`, `b` (required)". */
void fields_names(const struct field *fields, enum field_form form, struct buffer *to);

/* The JSON schema of the object. */
void put_fields(struct json_writer *writer, const char *key, const struct field *fields,
		enum field_form form);
/* The JSON schema of one value. */
void put_field(struct json_writer *writer, const char *key, const struct field *field,
	       enum field_form form);
