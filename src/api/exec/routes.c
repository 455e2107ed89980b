/* The routes of execs. A job is an exec in the background: both names have the same handlers. */
#include "api/routes.h"

#include "api/exec/events.h"
#include "api/exec/execs.h"

#define EX SB "/execs/{exec}"
#define JOB SB "/jobs/{exec}"
#define OUTPUT "stream,from,from_stderr,limit,follow,wait_ms,format"
#define PTY "rows,cols,cmd,cwd,user,job,detach,replay,readonly"

const struct route exec_routes[] = {
    {"POST", SB "/exec", WRITE, ROUTE_SANDBOX | ROUTE_JSON, exec_post, "detach,format",
     .body = exec_fields},
    {"POST", SB "/exec/stream", WRITE, ROUTE_SANDBOX | ROUTE_JSON, exec_stream_post,
     "detach,format", .body = exec_fields},
    {"GET", SB "/exec/pty", WRITE, ROUTE_SANDBOX, exec_pty_get, PTY},
    {"GET", SB "/ssh", WRITE, ROUTE_SANDBOX, exec_pty_get, PTY},
    {"GET", SB "/exec/ws", WRITE, ROUTE_SANDBOX, exec_socket_get},
    {"GET", SB "/execs", READ, ROUTE_SANDBOX, execs_get, "limit,state,cursor,all"},
    {"GET", EX, READ, ROUTE_SANDBOX, exec_get},
    {"GET", EX "/output", READ, ROUTE_SANDBOX, exec_output_get, OUTPUT},
    {"GET", EX "/tty", READ, ROUTE_SANDBOX, exec_tty_get, "rows,cols,detach,replay,readonly"},
    {"POST", EX "/signal", WRITE, ROUTE_SANDBOX | ROUTE_JSON, exec_signal_post,
     .body = exec_signal_fields},
    {"POST", EX "/resize", WRITE, ROUTE_SANDBOX | ROUTE_JSON, exec_resize_post,
     .body = exec_resize_fields},
    {"POST", EX "/stdin", WRITE, ROUTE_SANDBOX, exec_stdin_post, "close"},
    {"DELETE", EX, WRITE, ROUTE_SANDBOX, exec_delete, "purge"},
    {"POST", SB "/jobs", WRITE, ROUTE_SANDBOX | ROUTE_JSON, job_post, .body = exec_fields},
    {"GET", SB "/jobs", READ, ROUTE_SANDBOX, jobs_get, "limit,state,cursor,all"},
    {"GET", JOB, READ, ROUTE_SANDBOX, exec_get},
    {"GET", JOB "/output", READ, ROUTE_SANDBOX, exec_output_get, OUTPUT},
    {"GET", JOB "/tty", READ, ROUTE_SANDBOX, exec_tty_get, "rows,cols,detach,replay,readonly"},
    {"POST", JOB "/signal", WRITE, ROUTE_SANDBOX | ROUTE_JSON, exec_signal_post,
     .body = exec_signal_fields},
    {"POST", JOB "/resize", WRITE, ROUTE_SANDBOX | ROUTE_JSON, exec_resize_post,
     .body = exec_resize_fields},
    {"POST", JOB "/stdin", WRITE, ROUTE_SANDBOX, exec_stdin_post, "close"},
    {"DELETE", JOB, WRITE, ROUTE_SANDBOX, exec_delete, "purge"},
    {"GET", SB "/logs", READ, ROUTE_SANDBOX, logs_get,
     "tail,since,until,source,stream,grep,exec,cursor,limit,follow"},
    {0},
};
