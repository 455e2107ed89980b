/* What the files of code contexts share:
 *   code.c          languages, finding, ending, restarting
 *   start.c         the two execs of a context, the way to `ready`
 *   cells.c         cells: their queue, their beginning, their end
 *   cell_records.c  the driver's records about them
 *   interrupt.c     cells that take too long
 *   resume.c        contexts and cells of an earlier daemon
 *   records.c       the bytes of both directions */
#pragma once

#include "base/work.h"
#include "core/code/code.h"
#include "core/core_private.h"

#define CODE_GRACE_LEADER (NSEC_PER_SEC / 2) /* then the whole tree is interrupted */
#define CODE_GRACE_TREE (2 * NSEC_PER_SEC)
#define CODE_INTERRUPTS 3 /* so many, then SIGKILL */
#define CODE_START_TIMEOUT (60 * NSEC_PER_SEC)

struct foreground_cell {
	struct list link; /* in context->queue, or the running one */
	struct code_context *context;
	struct code_callbacks callbacks; /* done NULL: no client waits */
	char *code;
	size_t size;
	uint32_t timeout_ms;
	struct kept_principal caller;
	uint64_t number; /* 0 while it waits */
	struct id cell;  /* the spec's */
	bool begun;
	bool earlier;     /* sent by an earlier daemon */
	bool keep_tried;  /* foreground_cell_keep() has written its row, or failed */
	int64_t began;    /* CLOCK_MONOTONIC */
	int64_t deadline; /* CLOCK_BOOTTIME, 0 = none */
};

struct code_life {
	struct code_context *context;
	struct exec_watcher main, control; /* .exec NULL: not watching */
	bool opened;                       /* the driver was told its control channel */
	bool ready;
	bool resumed; /* from an earlier daemon; the records of its last cell are not read yet */
	bool plain;   /* bash for one piece of code: no driver, no control channel */
	uint64_t control_at;
	uint64_t control_end; /* once `finished`: what is to be read of it */
	struct work reading;
	struct buffer outgoing; /* for the driver's standard input */
	size_t sent;            /* bytes of it that were sent */
	bool showing;           /* code_settle() is running for the complete results */
	uint64_t showing_cell, showing_whole;
	bool cut;             /* the last line may have been cut off */
	uint32_t interrupts;  /* how often the running cell was interrupted */
	int64_t interrupt_at; /* when the next interrupt is due; 0 = never */
	int64_t held_at;      /* since when the sandbox is paused; 0 = it runs */
	bool finished;        /* its interpreter has ended; when its records are read, it ends */
	bool end_told;        /* it has ended */
	int64_t ready_until;  /* CLOCK_BOOTTIME, while `created` waits for `ready` */
	void (*created)(void *data, struct code_context *context, const struct error *error);
	void *created_data;
	struct error start_error; /* why the interpreter did not become ready */
	bool recorded;            /* it has a row */
	struct kept_principal caller;
};

/* code.c */
struct code_context *code_context_new(struct sandbox *sandbox, struct context_row *row, bool once);
void code_context_free(struct code_context *context);
struct code_context *code_context_by_id(struct core *core, const struct id *id);
void code_context_save(struct code_context *context);
const struct principal *code_principal(const struct code_context *context);
/* The driver has reported that it is ready. */
void code_context_ready(struct code_context *context);
/* The interpreter has ended, or is given up: tells everybody who waits. `context` may be freed. */
void code_context_ended(struct code_context *context, const char *reason);

/* start.c */
extern const struct exec_watcher code_main_watcher, code_control_watcher;
NODISCARD int code_interpreter_start(struct code_context *context, const struct code_spec *spec,
				     struct error *error);
/* Ends both execs with all processes that they started. */
void code_interpreter_stop(struct code_context *context);
/* Does it run without a driver and a control channel? */
bool code_plain(const struct code_context *context);
void code_feed(struct code_context *context);
const char *code_cell_verb(uint32_t language);
/* Why the interpreter ended, for people. */
void code_end_reason(const struct exec *exec, char *text, size_t room);
/* All that it said was read. */
void code_interpreter_ended(struct code_context *context);
/* It ended before it was ready: LANGUAGE_UNAVAILABLE or the reason. Calls `created`. */
void code_start_failed(struct code_context *context, struct exec *exec);

/* cells.c, cell_records.c */
struct code_cell *code_cell_of(struct code_context *context, uint64_t number);
void code_cell_clear(struct code_cell *cell);
/* For an earlier daemon's interpreter: reads the driver's first record, if it has come. */
void code_ready_again(struct code_context *context, struct exec *control);
/* Reads what the driver has said since, in pieces of the sandboxes' share of the loop. `context`
 * may be gone after that. */
void code_read_records(struct code_context *context);
void code_on_turn_to_read(struct work *work);
void code_next(struct code_context *context);
void code_interrupt(struct code_context *context);
/* The running cell has changed: notifies its followers. */
void foreground_cell_changed(struct code_context *context);
/* Was it sent? Only then it can be detached. */
bool foreground_cell_sent(const struct foreground_cell *waited);
/* Writes the row that detaching it needs, if it needs one. */
NODISCARD int foreground_cell_record(struct foreground_cell *waited, struct error *error);
/* Writes that row if the cell's interpreter would outlive this daemon, so that the next daemon does
 * not end it. */
void foreground_cell_keep(struct code_context *context);
/* The row is written: from now on no client waits for the cell. */
struct code_context *foreground_cell_recorded(struct foreground_cell *waited);
/* The running cell has ended; `error` if it was never run. */
void foreground_cell_finish(struct code_context *context, const struct error *error);
/* Refuses all waiting cells. */
void code_refuse_queue(struct code_context *context, const struct error *error);
/* The driver broke the protocol. */
void code_broken(struct code_context *context, const char *what);
/* Makes two round trips to the init, then calls `then`: by then everything that was written before
 * has arrived. */
void code_settle(struct code_context *context, void (*then)(struct code_context *context));

/* The text of the drivers: src/code, embedded. */
extern const char code_driver_python[], code_driver_node[], code_driver_bash[];
