/* Execs as PID 1 sees them: one record per command from EXEC to FORGET, with its pipes, its
 * time-out and its end. Files: exec.c (requests and life), exec_output.c, exec_input.c,
 * killing.c (time-outs, cancellation). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "init/request.h"
#include "init/exec/input_window.h"
#include "proto/init_messages.h"
#include "proto/output_log.h"

struct exec_output {
	int fd; /* the pipe or terminal; -1 after its end */
	bool watched;
	bool logged;
	struct output_log log; /* owns its descriptor while `logged` */
	uint64_t total;        /* bytes that were read and then logged or sent */
	uint64_t consumed;     /* lossless: bytes that the outside has read */
	uint64_t dropped;      /* bytes lost since the last successful write to the log */
	uint64_t drain;        /* bytes to be read before EXITED is sent */
	int64_t retry_at;      /* lossless with a full disk: when to try again */
};

struct exec {
	uint64_t key; /* 0: free */
	uint32_t generation;
	uint32_t flags; /* enum exec_flag */
	enum exec_phase phase;
	int runner; /* index, -1 */
	pid_t pid;  /* the leader */
	uint16_t rows, columns;
	struct exec_output outputs[2];
	uint64_t output_credit; /* without a log */

	int input; /* pipe, or a duplicate of the terminal; -1 when there is none */
	bool input_watched;
	bool input_closing; /* close it when the window is empty */
	struct window input_window;
	uint64_t input_credit;   /* bytes that the outside may still send */
	uint32_t input_returned; /* consumed bytes, to be returned with the next CREDIT */

	uint32_t timeout_ms;
	int64_t started;
	int64_t deadline; /* NEVER */
	uint32_t cause;   /* enum exec_end: why it is killed, or 0 */
	bool leader_ended;
	bool killing;
	bool kill_hopeless; /* killing takes so long (frozen, waiting for a disk) that EXITED is
			       sent before it succeeds */
	uint32_t kill_rounds;
	int64_t kill_at;
	int64_t kill_began;
	int64_t quiet_since; /* since when no process was found below the runner; 0 */
	bool forgotten;
	bool progress; /* PROGRESS has to be sent */
	struct exec_result result;
};

/* Requests. */
void exec_begin(const struct request *request, const int *log_fds);
void exec_input(const struct request *request);
void exec_input_close(uint64_t key);
void exec_signal(const struct request *request);
void exec_resize(const struct request *request);
void exec_credit(uint64_t key, uint32_t credit);
void exec_consumed(const struct request *request);
void exec_forget(uint64_t key);
void exec_send_list(void);
void exec_send_left_running(uint64_t key);
/* Answers LEFT_RUNNING with the kernel's short names of the processes, which PID 1 can read
 * without waiting. */
void exec_send_left_running_names(uint64_t key);

/* Events. exec_send_to_runner() returns false if the runner is dead: the exec gets another one. */
NODISCARD bool exec_send_to_runner(uint32_t index, uint32_t runner, const uint8_t *frame,
				   size_t size);
void exec_runner_failed(uint32_t index, const struct failure *failure);
void exec_runner_frame(uint32_t index, const struct frame *frame);
/* Its runner was killed before it had read the request. True: it waits for another one. */
NODISCARD bool exec_await_runner_again(uint32_t index);
/* unread: the runner has not read the request. */
void exec_runner_gone(uint32_t index, bool unread);
void exec_output_event(uint32_t index, uint32_t generation, int stream);
void exec_input_event(uint32_t index, uint32_t generation);
/* Does what is due now; returns when something is due next, or NEVER. */
int64_t exec_time(int64_t now);
/* The connection has room: sends output and progress that had to wait. */
void exec_send_pending(void);
/* There is a new connection, which has no credit yet. */
void exec_connection_changed(void);
uint32_t exec_alive(void); /* execs with a runner */

/* Shared by the files above. */
/* All records from this index on are free. */
uint32_t exec_table_size(void);
struct exec *exec_at(uint32_t index);
uint32_t exec_index(const struct exec *exec);
struct exec *exec_find(uint64_t key);
void exec_try_end(struct exec *exec);
bool output_open(struct exec *exec, int stream, int fd);
void output_close(struct exec *exec, int stream);
/* Reads once; false if there is nothing more to read now. */
bool output_read(struct exec *exec, int stream);
void output_resume(struct exec *exec);
/* The leader has ended: reads its output, as far as the connection or log accepts it now. */
void output_begin_drain(struct exec *exec);
bool output_drained(const struct exec *exec);
void input_open(struct exec *exec, int fd);
void input_close(struct exec *exec);
void input_flush(struct exec *exec);
void exec_kill(struct exec *exec, uint32_t cause);
