/* The handlers of execs: see routes.c. */
#pragma once

#include "edge/call.h"
#include "edge/fields/exec_fields.h"

void exec_post(struct call *call);
void execs_get(struct call *call);
void exec_get(struct call *call);
void exec_output_get(struct call *call);
void exec_signal_post(struct call *call);
void exec_stdin_post(struct call *call);
void exec_resize_post(struct call *call);
void exec_delete(struct call *call);
void job_post(struct call *call);
void jobs_get(struct call *call);
void exec_pty_get(struct call *call);    /* pty.c */
void exec_tty_get(struct call *call);    /* pty.c */
void exec_socket_get(struct call *call); /* socket.c */
void logs_get(struct call *call);        /* logs.c */

/* "TERM", "SIGTERM", "15" or 15. */
NODISCARD int exec_signal_parse(const json_t *json, int *ret_signal, struct error *error);

struct terminal_size {
	uint16_t rows, columns;
};
extern const struct field execs_query[], exec_output_query[], exec_stdin_query[],
    exec_delete_query[], exec_pty_query[], exec_tty_query[], logs_query[];
/* Bodies of signal and resize; a resize also comes over a terminal's WebSocket. */
extern const struct field exec_signal_fields[], exec_resize_fields[];
