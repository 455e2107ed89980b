/* Code: a piece of it (a cell) run by python, node or bash, in an interpreter of its own or in a
 * context whose state stays from cell to cell. A context is an exec inside the sandbox that runs a
 * small driver (src/code). The cell's output is the exec's output, by offset; its results and its
 * end come on a separate channel (records.h).
 *
 * A context belongs to its sandbox and outlives the daemon: the next one finds it by its rows. It
 * runs one cell at a time; others wait in turn, up to CODE_QUEUE_MAX. A cell that takes too long is
 * interrupted and its context stays usable; only if that has no effect for some seconds, the
 * interpreter is killed, and the context has ended. An ended one stays on record until it is
 * deleted.
 *
 * Results stay in the control channel's log and are read from there: nothing large is in memory. */
#pragma once

#include "core/code/records.h"
#include "core/exec/exec.h"
#include "store/contexts.h"

/* The numbers are in the database. */
enum code_language { CODE_PYTHON = 1, CODE_NODE = 2, CODE_BASH = 3 };
#define CODE_LANGUAGE_COUNT 3

#define CODE_CONTEXTS_MAX 8        /* live ones, per sandbox */
#define CODE_CONTEXTS_ENDED_MAX 32 /* on record */
#define CODE_QUEUE_MAX 16          /* cells that wait for one context */
#define CODE_CELLS_KEPT 16         /* cells whose results are kept */
#define CODE_PARTS_MAX 256         /* forms of results and parts of an error, of one cell */
#define CODE_SOURCE_MAX (1024 * 1024)
#define CODE_TIMEOUT_DEFAULT_MS (300u * 1000)

/* "python", and also "py", "python3", "js", "javascript", "sh", ...; 0: no such language. */
enum code_language code_language_parse(const char *name);
const char *code_language_name(uint32_t language);
const char *code_language_program(uint32_t language); /* the program that it needs inside */

/* One form of a result, a part of an error, or a form that was left out. */
struct code_part {
	enum code_record_kind kind; /* DATA, LEFT, ERROR */
	uint32_t result;
	char key[CODE_KEY_MAX + 1]; /* its type, or the part of the error */
	uint64_t offset;            /* in the control channel */
	uint32_t size;
};

enum code_cell_state {
	CELL_WAITING,
	CELL_RUNNING,
	CELL_ENDING, /* the driver has reported its end; output may still arrive */
	CELL_ENDED,
	CELL_LOST,
};

struct code_cell {
	uint64_t number;
	enum code_cell_state state; /* LOST: it is unknown whether it ran */
	uint64_t out_begin, out_end, err_begin, err_end;
	struct code_part *parts;
	size_t part_count;
	bool has_error; /* there is an `error` among the parts */
	/* While it runs: a bit for each complete result; and how many results from the first on can
	 * be shown, since the output before them has arrived. */
	uint64_t whole;
	uint32_t results_shown;
	int exit_code;
	bool timed_out, interrupted;
	bool context_ended; /* the context ended with this cell */
	int64_t sent_wall;
	uint64_t duration_ns;
};

struct code_context {
	struct list link; /* in core_private->contexts */
	struct sandbox *sandbox;
	struct context_row row;
	bool once;         /* for one cell; on record only if its run was detached */
	char version[201]; /* of the interpreter, as the driver reports it */
	struct code_cell
	    cells[CODE_CELLS_KEPT]; /* the one with number n is at n % CODE_CELLS_KEPT */
	struct foreground_cell *running_cell;
	struct list queue; /* struct foreground_cell */
	uint32_t queued;
	struct code_life *life; /* code_private.h */
};

bool code_context_alive(const struct code_context *context);
/* Its interpreter; NULL if it is no longer in memory. */
struct exec *code_context_exec(const struct code_context *context);

/* Borrowed; NULL and 0 mean the default. */
struct code_spec {
	struct id id; /* of the new context; unset: chosen here */
	/* Identifies the cell until its context is given another one, also for another daemon: a
	 * context that is made for this cell alone is on record. Unset: nobody will look for the
	 * cell. */
	struct id cell;
	enum code_language language;
	const char *code;
	size_t size;
	uint32_t timeout_ms; /* 0 = none */
	const struct pair *environment;
	size_t environment_count;
	const char *cwd, *user;
	const struct principal *principal;
};

/* Makes a context; calls back when its interpreter is ready. LANGUAGE_UNAVAILABLE, QUOTA_EXCEEDED
 * if there are too many. The sandbox is ready (sandbox_ready()). */
#define CODE_CREATED                                                                               \
	void (*done)(void *data, struct code_context *context, const struct error *error),         \
	    void *data
NODISCARD int code_context_create(struct sandbox *sandbox, const struct code_spec *spec,
				  CODE_CREATED, struct error *error);
/* CONTEXT_NOT_FOUND. Ended ones are found. */
NODISCARD int code_context_find(struct sandbox *sandbox, const char *id,
				struct code_context **ret_context, struct error *error);
/* The context whose last cell was sent with that spec->cell, if the principal may see its sandbox;
 * or NULL: none is on record. */
struct code_context *code_context_of_cell(struct core *core, const struct principal *principal,
					  const struct id *cell);
/* Contexts on record, oldest first: the next one after `before` (NULL: the first), or NULL. */
struct code_context *code_context_next(struct sandbox *sandbox, const struct code_context *before);
/* Ends it and removes its record. */
void code_context_delete(struct code_context *context, const struct principal *principal);
/* Starts a new interpreter without variables in the same context, which may have ended. */
NODISCARD int code_context_restart(struct code_context *context, const struct principal *principal,
				   CODE_CREATED, struct error *error);
/* Interrupts the running cell; false if none runs. */
bool code_context_interrupt(struct code_context *context);

struct foreground_cell;

struct code_callbacks {
	/* There is new output or a new result. May be NULL. */
	void (*changed)(void *data, struct code_context *context, const struct code_cell *cell);
	/* Once, last. Either the cell has ended (by itself, by an interrupt, or with its context),
	 * or error: it was never run (cell is NULL). Both are borrowed for the length of the
	 * call. */
	void (*done)(void *data, struct code_context *context, const struct code_cell *cell,
		     const struct error *error);
	void *data;
};

/* Runs a cell: in `context`, or with NULL in a fresh interpreter of spec->language. For a cell of a
 * context only code, size, timeout, cell and principal of the spec count. */
NODISCARD int foreground_cell_start(struct sandbox *sandbox, struct code_context *context,
				    const struct code_spec *spec,
				    const struct code_callbacks *callbacks,
				    struct foreground_cell **ret_cell, struct error *error);
/* The client is gone: `done` is not called any more. A waiting cell is removed, a running one is
 * interrupted. */
void foreground_cell_abandon(struct foreground_cell *waited);
/* The cell continues without a client: `done` is not called. A context that was made for it alone
 * is on record from now on, and ends with the cell; its output is its exec's. NULL: the cell has
 * not begun (it waits for its context), and nothing has changed. */
struct code_context *foreground_cell_detach(struct foreground_cell *waited);

/* CONTEXT_NOT_FOUND if it is not kept. */
NODISCARD int code_cell_find(struct code_context *context, uint64_t number,
			     const struct code_cell **ret_cell, struct error *error);
/* A part's bytes, which the caller frees; NULL if they are no longer kept. A NUL follows them. */
char *code_part_read(const struct code_context *context, const struct code_part *part);

/* Called by core.c, timers.c, core/exec/exec.c. */
void code_load(struct sandbox *sandbox);
int64_t code_check(struct sandbox *sandbox, int64_t now);
void code_link_lost(struct sandbox *sandbox);
/* Clients that wait for code are about to be told that it continues: puts the code on record. */
void code_let_go(struct core *core);
/* The sandbox is freed; called before its execs are freed. */
void code_forget_all(struct sandbox *sandbox);
