/* The answer of a tool that ran something, which is made before it is sent: for a one-shot run it
 * is made while the sandbox exists, and sent after its removal.
 *
 * The text is first the unchanged output, then notes, one line in brackets each; the last line says
 * how the run ended, or how to continue. docs/mcp.md describes what a model reads. */
#pragma once

#include "core/code/code.h"
#include "core/exec/exec.h"
#include "mcp/tools/output.h"

/* Figures in one answer. */
#define ANSWER_IMAGES_MAX 4
#define ANSWER_IMAGE_BYTES_MAX (2 * MIB)
#define ANSWER_IMAGES_BYTES_MAX (6 * MIB)

struct answer {
	struct buffer text;
	struct answer_image {
		char type[32];
		char *data;
		size_t size;
	} images[ANSWER_IMAGES_MAX];
	size_t image_count, image_bytes;
	bool linked[2]; /* the streams whose whole output deserves a link */
	struct id sandbox, exec;
};

void answer_begin(struct answer *answer, uint64_t output_max);
void answer_done(struct answer *answer);
void answer_send(struct mcp_request *request, struct answer *answer);

/* The part of an exec's output to show, and its form. */
struct answer_view {
	struct output_view output;
	const char *note;   /* for the last line: which sandbox it was; "" or NULL: nothing */
	bool gone;          /* a one-shot run: its sandbox is removed before the answer is read */
	bool paged;         /* the output is a page that is already in the text */
	int64_t since_wall; /* when the run began; 0: with its exec */
	enum exec_stream only; /* 0: both */
};
/* All of its output. */
void answer_view_all(struct exec *exec, struct answer_view *view);

/* It has ended. */
void answer_exec(struct answer *answer, struct exec *exec, const struct answer_view *view,
		 const struct left_process *left, size_t left_count);
/* It is still running: how to read and stop it. */
void answer_running(struct answer *answer, struct exec *exec, const struct answer_view *view);
/* A cell that has ended, with its results. */
void answer_cell(struct answer *answer, struct code_context *context, const struct code_cell *cell,
		 const struct answer_view *view);
/* The output of a running cell. */
void answer_cell_view(struct exec *exec, const struct code_cell *cell, struct answer_view *view);

/* read_job {...}: the call that reads on after the shown output; wait: seconds, 0: no wait. */
void answer_next_call(struct buffer *to, const struct exec *exec, const struct answer_view *view,
		      unsigned wait);
