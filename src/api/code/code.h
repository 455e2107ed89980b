/* Code and its contexts over HTTP:
 *   code.c          run a piece, make, list, restart, interrupt, delete contexts; the routes
 *   record.c   the answers
 *   stream.c   the same as server-sent events */
#pragma once

#include "core/code/code.h"
#include "edge/exec_follower.h"

#define CODE_OUTPUT_DEFAULT (1 * MIB) /* for each stream, in an answer */
#define CODE_OUTPUT_MAX (4 * MIB)

/* The API in whose form the answer is. */
enum code_form {
	CODE_FORM_OWN,
	CODE_FORM_SESSION, /* .../repl/sessions */
	CODE_FORM_ONCE,    /* .../repl */
};

struct code_event {
	const char *name;
	struct buffer json;
};
#define CODE_EVENTS_MAX (CODE_RESULTS_MAX + 2)

/* What is asked for, beside the members of the spec. */
struct code_fields {
	const char *language, *context;
	json_t *environment;
	double timeout, timeout_ms;
	bool timeout_given, timeout_ms_given;
};

/* A piece of code that a request waits for, or streams. */
struct code_call {
	struct call *call;
	struct foreground_cell *cell; /* NULL before its begin and after its end */
	enum code_form form;
	char context[CALL_PARAMETER_MAX]; /* "": a fresh interpreter */
	struct code_spec spec;            /* borrows from the body */
	struct code_fields fields;
	struct pair *environment;
	uint64_t output_max;
	/* stream.c */
	bool stream;
	struct sse *sse;
	bool blocked; /* the connection's queue is full */
	bool ended;
	struct id exec;
	struct exec_follower follower; /* .exec: only while the output is read */
	uint64_t end[2];
	uint32_t results_sent;
	struct code_event events[CODE_EVENTS_MAX]; /* sent after all earlier output */
	size_t event_count, event_at;
};

/* record.c */
void put_context(struct json_writer *writer, const char *key, const struct code_context *context);
/* The members of a cell, in an object that the caller opened. */
void put_cell(struct json_writer *writer, const struct code_context *context,
	      const struct code_cell *cell, bool with_results);
/* text_only: bytes that are not UTF-8 are replaced, instead of base64 under another name. */
void put_cell_output(struct json_writer *writer, const struct code_context *context,
		     const struct code_cell *cell, uint64_t maximum, bool text_only);
void put_cell_results(struct json_writer *writer, const struct code_context *context,
		      const struct code_cell *cell);
/* One result: an object of its forms. */
void put_cell_result(struct json_writer *writer, const struct code_context *context,
		     const struct code_cell *cell, uint32_t result);
void put_cell_error(struct json_writer *writer, const char *key, const struct code_context *context,
		    const struct code_cell *cell);
/* The error as one text, as clients of .../repl expect it; null if there is none. */
void put_cell_error_text(struct json_writer *writer, const char *key,
			 const struct code_context *context, const struct code_cell *cell);
uint32_t cell_result_count(const struct code_cell *cell);

/* stream.c */
void code_stream_changed(struct code_call *code, struct code_context *context,
			 const struct code_cell *cell);
void code_stream_done(struct code_call *code, struct code_context *context,
		      const struct code_cell *cell, const struct error *error);
void code_stream_drain(struct call *call);
void code_stream_gone(struct code_call *code);
