/* What the files of code contexts share:
 *   code.c          languages, finding, ending, restarting
 *   start.c         the two execs of a context, the way to `ready`
 *   cells.c         cells: their queue, their beginning, their end
 *   cell_records.c  what the driver says of them
 *   interrupt.c     cells that take too long
 *   resume.c        what an earlier daemon has begun
 *   records.c       the bytes of both directions */
#pragma once

#include "base/work.h"
#include "core/code/code.h"
#include "core/core_private.h"

#define CODE_GRACE_LEADER (NSEC_PER_SEC / 2) /* then the whole tree is interrupted */
#define CODE_GRACE_TREE (2 * NSEC_PER_SEC)
#define CODE_INTERRUPTS 3 /* so often, then SIGKILL */
#define CODE_START_TIMEOUT (60 * NSEC_PER_SEC)

struct foreground_cell {
	struct list link; /* in context->queue, or the running one */
	struct code_context *context;
	struct code_callbacks callbacks; /* done NULL: nobody waits */
	char *code;
	size_t size;
	uint32_t timeout_ms;
	struct asker asker;
	uint64_t number; /* 0 while it waits */
	struct id cell;  /* the spec's */
	bool begun;
	bool earlier;     /* sent by an earlier daemon */
	bool keep_tried;  /* foreground_cell_keep() has written its row, or could not */
	int64_t began;    /* CLOCK_MONOTONIC */
	int64_t deadline; /* CLOCK_BOOTTIME, 0 = none */
};

struct code_life {
	struct code_context *context;
	struct exec_watcher main, control; /* .exec NULL: not watched */
	bool opened;                       /* the driver was told its control channel */
	bool ready;
	bool resumed; /* of an earlier daemon's; what its last cell came to is not read yet */
	bool plain;   /* bash for one piece of code: no driver, no control channel */
	uint64_t control_at;
	uint64_t control_end; /* once `finished`: what is to be read of it */
	struct work reading;
	struct buffer outgoing; /* for the driver's standard input */
	size_t sent;            /* of it */
	bool showing;           /* code_settle() is asked for the results that are whole */
	uint64_t showing_cell, showing_whole;
	bool cut;             /* a line may have been cut off before */
	uint32_t interrupts;  /* how often the running cell was */
	int64_t interrupt_at; /* when the next follows; 0 = none */
	int64_t held_at;      /* the sandbox is paused since; 0 = it runs */
	bool finished;        /* its interpreter has ended; when its records are read, it ends */
	int64_t ready_until;  /* CLOCK_BOOTTIME, while `created` waits for `ready` */
	void (*created)(void *data, struct code_context *context, const struct error *error);
	void *created_data;
	struct error start_error; /* why the interpreter never came to be ready */
	bool recorded;            /* there is a row of it */
	struct asker asker;
};

/* code.c */
struct code_context *code_context_new(struct sandbox *sandbox, struct context_row *row, bool once);
void code_context_free(struct code_context *context);
struct code_context *code_context_by_id(struct core *core, const struct id *id);
void code_context_save(struct code_context *context);
const struct principal *code_principal(const struct code_context *context);
/* The driver has said that it is there. */
void code_context_ready(struct code_context *context);
/* Its interpreter is gone, or is given up: everybody who waits is told. `context` may be gone after
 * that. */
void code_context_ended(struct code_context *context, const char *reason);

/* start.c */
extern const struct exec_watcher code_main_watcher, code_control_watcher;
NODISCARD int code_interpreter_start(struct code_context *context, const struct code_spec *spec,
				     struct error *error);
/* Both execs, ended with all they started. */
void code_interpreter_stop(struct code_context *context);
/* Does it run without a driver and a control channel? */
bool code_plain(const struct code_context *context);
void code_feed(struct code_context *context);
const char *code_cell_verb(uint32_t language);
/* Why the interpreter ended, for people. */
void code_end_reason(const struct exec *exec, char *text, size_t room);
/* All that it said was read. */
void code_interpreter_ended(struct code_context *context);
/* It ended before it was ready: LANGUAGE_UNAVAILABLE or why. Calls `created`. */
void code_start_failed(struct code_context *context, struct exec *exec);

/* cells.c, cell_records.c */
struct code_cell *code_cell_of(struct code_context *context, uint64_t number);
void code_cell_clear(struct code_cell *cell);
/* Of an earlier daemon's interpreter: what it said first, if it has said it. */
void code_ready_again(struct code_context *context, struct exec *control);
/* Reads what the driver has said since, in pieces of the sandboxes' share of the loop. `context`
 * may be gone after that. */
void code_read_records(struct code_context *context);
void code_on_turn_to_read(struct work *work);
void code_next(struct code_context *context);
void code_interrupt(struct code_context *context);
/* Something about the running cell has changed: who follows it is told. */
void foreground_cell_changed(struct code_context *context);
/* Can it be detached, that is: was it sent? */
bool foreground_cell_sent(const struct foreground_cell *waited);
/* Writes the row that detaching it needs, if it needs one. */
NODISCARD int foreground_cell_record(struct foreground_cell *waited, struct error *error);
/* Writes that row where its interpreter would go on without us, so that the next daemon does not
 * end it. */
void foreground_cell_keep(struct code_context *context);
/* It is written: from now on nobody waits for it. */
struct code_context *foreground_cell_recorded(struct foreground_cell *waited);
/* The running cell is over; `error` where it was never run. */
void foreground_cell_finish(struct code_context *context, const struct error *error);
/* All that wait are told. */
void code_refuse_queue(struct code_context *context, const struct error *error);
/* The driver broke the protocol. */
void code_broken(struct code_context *context, const char *what);
/* Two round trips to the init, then `then`: what was written before has come by then. */
void code_settle(struct code_context *context, void (*then)(struct code_context *context));

/* The drivers' text: src/code, embedded. */
extern const char code_driver_python[], code_driver_node[], code_driver_bash[];
