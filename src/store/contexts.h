/* Code contexts: each is the exec of its interpreter, and of the cell it was given last what is
 * needed to find that cell's result again. Written by core/code*.c alone: once when a context is
 * made, once for each cell before it is sent, once when the context ends. */
#pragma once

#include "store/store.h"

struct context_row {
	struct id id;
	struct id sandbox;
	struct id exec;    /* the interpreter */
	struct id control; /* the exec that holds its control channel; unset: it has none */
	bool once;         /* it ends with its cell */
	uint32_t language; /* enum code_language */
	int64_t created_wall;
	uint64_t cells;      /* the number of the last one; they are counted from 1 */
	int64_t cell_wall;   /* when that one was sent */
	struct id cell;      /* by it that one is found again; unset: nobody looks for it */
	uint32_t timeout_ms; /* its time-out, 0 = none */
	/* Where it begins in the control channel and in both streams. */
	uint64_t control_begin, out_begin, err_begin;
	int64_t ended_wall; /* 0: it lives */
	char *reason;       /* NULL, or how it ended, for people */
	char *cwd;          /* NULL, or as asked for */
	char *user;
	char *environment; /* packed "K=V\0..." */
	uint32_t environment_size;
};
void context_row_done(struct context_row *row);

NODISCARD int store_context_insert(struct store *store, const struct context_row *row,
				   struct error *error);
/* Everything that changes in the life of a context. */
NODISCARD int store_context_update(struct store *store, const struct context_row *row,
				   struct error *error);
NODISCARD int store_context_delete(struct store *store, const struct id *id, struct error *error);
/* Of one sandbox, the oldest first. */
NODISCARD int store_context_each(struct store *store, const struct id *sandbox,
				 bool (*each)(void *data, const struct context_row *row),
				 void *data, struct error *error);
