/* Code contexts. A row names the exec of the interpreter and what is needed to find the result
 * of the last cell again. Written by core/code alone: when a context is made, before each cell
 * is sent, and when the context ends. */
#pragma once

#include "store/store.h"

struct context_row {
	struct id id;
	struct id sandbox;
	struct id exec;    /* the interpreter */
	struct id control; /* the exec that holds its control channel; unset: it has none */
	bool once;         /* the context ends with its cell */
	uint32_t language; /* enum code_language */
	int64_t created_wall;
	uint64_t cells;      /* number of the last cell, counted from 1 */
	int64_t cell_wall;   /* when the last cell was sent */
	struct id cell;      /* id by which the last cell is found again; unset: not needed */
	uint32_t timeout_ms; /* the last cell's time-out, 0 = none */
	/* Where the last cell begins in the control channel and in both streams. */
	uint64_t control_begin, out_begin, err_begin;
	int64_t ended_wall; /* 0: alive */
	char *reason;       /* NULL, or why it ended, for people */
	char *cwd;          /* NULL, or as requested */
	char *user;
	char *environment; /* packed "K=V\0..." */
	uint32_t environment_size;
};
void context_row_done(struct context_row *row);

NODISCARD int store_context_insert(struct store *store, const struct context_row *row,
				   struct error *error);
/* Writes everything that changes during a context's life. */
NODISCARD int store_context_update(struct store *store, const struct context_row *row,
				   struct error *error);
NODISCARD int store_context_delete(struct store *store, const struct id *id, struct error *error);
/* Contexts of one sandbox, the oldest first. */
NODISCARD int store_context_each(struct store *store, const struct id *sandbox,
				 bool (*each)(void *data, const struct context_row *row),
				 void *data, struct error *error);
