/* Passes frames between the daemon and the init. One loop; only poll() waits.
 *
 * To the daemon the shim is the init. Most frames pass unchanged, except:
 *   - EXEC: the shim keeps the logs' descriptors and clears the flag (exec_output.c). OUTPUT
 *     becomes PROGRESS, and the totals in EXITED and LISTED are those of the logs.
 *   - CONFIGURE, DEADLINE: the shim keeps the sandbox's deadline, because the guest has another
 *     clock and must not be able to change it.
 *   - FRAME_BEGIN marks the end of a daemon. Nothing is read from the next daemon until the init
 *     has repeated it, so that at most one is pending, however long a paused guest sleeps.
 *
 * The guest is hostile: malformed frames and OUTPUT beyond its credit end the sandbox. The daemon
 * checks the rest. A daemon that violates the protocol is disconnected. One that does not read
 * delays the guest and its output for STALL_MAX, then it is disconnected. */
#include "tier/bridge/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "proto/init_messages.h"
#include "proto/spawner_messages.h"
#include "tier/bridge/exec_output.h"
#include "tier/bridge/frame_queue.h"

/* A queue takes a frame to pass on only while it has room for the largest frame and this reserve,
 * which is for small frames of our own. */
#define RESERVE 4096
#define SMALL_FRAME 64
#define FRAMES_PER_TURN 64
#define FDS_MAX 32
#define FDS_PER_MESSAGE 4
#define STALL_MAX (10 * NSEC_PER_SEC)
#define FINISH_TIMEOUT (2 * NSEC_PER_SEC)

#define QUEUE(name, size)                                                                          \
	static uint8_t name##_room[size];                                                          \
	static struct frame_queue name = {.data = name##_room, .room = (size)}

QUEUE(guest_in, FRAME_MAX + 64 * 1024);
QUEUE(guest_out, 2 * FRAME_MAX + RESERVE);
QUEUE(daemon_in, FRAME_MAX + 64 * 1024);
QUEUE(daemon_out, 1024 * 1024);

static struct {
	int listener, guest, signals;
	int daemon; /* -1: not connected */
	pid_t guest_process;
	bool frames_passed;    /* a frame of this daemon's was passed on */
	bool hello_answered;   /* HELLO_REPLY was passed on: PROGRESS may be sent */
	bool begin_pending;    /* BEGIN was sent and has not been repeated yet */
	uint32_t begin_number; /* number of the last BEGIN */
	int fds[FDS_MAX];
	size_t fd_count;
	int64_t deadline;      /* of the sandbox, CLOCK_BOOTTIME; 0: none */
	int64_t stalled_since; /* since when the daemon does not read; 0: it reads */
} relay = {.listener = -1, .guest = -1, .signals = -1, .daemon = -1};

static bool queue_takes_frame(const struct frame_queue *queue)
{
	return frame_queue_free_bytes(queue) >= FRAME_MAX + RESERVE;
}

/* ---- Exit. */

/* The exit code tells the spawner the reason: a failed or killed init must not look like one that
 * was asked to end. Only the shim itself reports the deadline. */
static _Noreturn void relay_exit_with(int status)
{
	_exit(WIFEXITED(status) && WEXITSTATUS(status) == 0 ? END_EXITED : END_KILLED);
}

static _Noreturn void relay_exit_broken(void)
{
	_exit(END_KILLED);
}

/* ---- The daemon's connection. */

static void channel_send_begin(void)
{
	uint8_t room[4];
	struct writer writer = writer_on(room, sizeof(room));
	write_u32(&writer, ++relay.begin_number);
	frame_queue_add(&guest_out, FRAME_BEGIN, 0, room, writer.size);
	relay.begin_pending = true;
	relay.frames_passed = false;
}

static void daemon_close(void)
{
	if (relay.daemon < 0)
		return;
	fd_close(&relay.daemon);
	for (size_t i = 0; i < relay.fd_count; i++)
		close(relay.fds[i]);
	relay.fd_count = 0;
	frame_queue_clear(&daemon_in);
	frame_queue_clear(&daemon_out);
	relay.hello_answered = false;
	relay.stalled_since = 0;
	if (relay.frames_passed)
		channel_send_begin();
}

static void daemon_accept(void)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	int fd = accept4(relay.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return;
	/* A peer of the sandbox has a pid in this namespace; a peer outside has pid 0. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.pid != 0) {
		close(fd);
		return;
	}
	daemon_close();
	relay.daemon = fd;
}

static void daemon_receive(void)
{
	size_t fds = MIN(FDS_MAX - relay.fd_count, (size_t)FDS_PER_MESSAGE);
	if (daemon_in.room == daemon_in.end)
		frame_queue_compact(&daemon_in);
	ssize_t got = fd_receive(relay.daemon, daemon_in.data + daemon_in.end,
				 daemon_in.room - daemon_in.end, relay.fds + relay.fd_count, &fds);
	if (got == -EAGAIN)
		return;
	if (got <= 0) {
		daemon_close();
		return;
	}
	relay.fd_count += fds;
	daemon_in.end += (size_t)got;
}

/* ---- Frames from the daemon. */

static void daemon_send_start_failed(uint64_t id, const struct failure *failure)
{
	uint8_t room[sizeof(*failure) + 16];
	struct writer writer = writer_on(room, sizeof(room));
	failure_write(&writer, failure);
	frame_queue_add(&daemon_out, FRAME_START_FAILED, id, room, writer.size);
}

static int daemon_pass_exec(const struct frame *frame)
{
	static struct exec_request request;
	static uint8_t room[FRAME_PAYLOAD_MAX];
	struct failure failure;
	if (exec_request_read(frame, &request) < 0 || exec_output_is_known(frame->id))
		return -EBADMSG;
	int logs[2] = {-1, -1};
	size_t wanted = request.flags & EXEC_TTY ? 1 : 2;
	if (!(request.flags & EXEC_LOG) || relay.fd_count < wanted)
		return -EBADMSG;
	memcpy(logs, relay.fds, wanted * sizeof(int));
	relay.fd_count -= wanted;
	memmove(relay.fds, relay.fds + wanted, relay.fd_count * sizeof(int));
	if (exec_output_begin(frame->id, request.flags, logs, &failure) < 0) {
		daemon_send_start_failed(frame->id, &failure);
		return 0;
	}
	request.flags &= ~(uint32_t)(EXEC_LOG | EXEC_LOSSLESS);
	struct writer writer = writer_on(room, sizeof(room));
	exec_request_write(&writer, &request);
	int64_t size = writer_finish(&writer);
	if (size < 0)
		return -EBADMSG;
	frame_queue_add(&guest_out, FRAME_EXEC, frame->id, room, (size_t)size);
	return 0;
}

static int daemon_pass_configure(const struct frame *frame)
{
	static struct configure configure;
	static uint8_t room[FRAME_PAYLOAD_MAX];
	if (configure_read(frame, &configure) < 0)
		return -EBADMSG;
	relay.deadline = configure.deadline;
	configure.deadline = 0;
	struct writer writer = writer_on(room, sizeof(room));
	configure_write(&writer, &configure);
	int64_t size = writer_finish(&writer);
	if (size < 0)
		return -EBADMSG;
	frame_queue_add(&guest_out, FRAME_CONFIGURE, frame->id, room, (size_t)size);
	return 0;
}

static int daemon_take_deadline(const struct frame *frame)
{
	struct reader reader = reader_on(frame->payload, frame->size);
	int64_t deadline = read_i64(&reader);
	if (reader_finish(&reader) < 0)
		return -EBADMSG;
	relay.deadline = deadline;
	return 0;
}

/* 1: pass it on; 0: it was for us; -EBADMSG. */
static int daemon_serve_frame(const struct frame *frame)
{
	struct output_totals consumed;
	switch (frame->type) {
	case FRAME_EXEC:
		return daemon_pass_exec(frame);
	case FRAME_CONFIGURE:
		return daemon_pass_configure(frame);
	case FRAME_DEADLINE:
		return daemon_take_deadline(frame);
	case FRAME_CONSUMED:
		if (output_totals_read(frame, &consumed) < 0)
			return -EBADMSG;
		exec_output_consumed(frame->id, &consumed);
		return 0;
	case FRAME_CREDIT:
		/* The guest needs no credit for output: it goes to the log. */
		return exec_output_is_known(frame->id) ? 0 : 1;
	case FRAME_FORGET:
		exec_output_forget(frame->id);
		return 1;
	case FRAME_LIST:
		exec_output_list_begin();
		return 1;
	case FRAME_BEGIN:
		return -EBADMSG;
	default:
		return 1;
	}
}

/* The first frame if it can be served now: its length, 0: none, -EBADMSG. */
static int64_t daemon_next_frame(struct frame *ret_frame)
{
	if (relay.daemon < 0 || relay.begin_pending || !queue_takes_frame(&guest_out) ||
	    !queue_takes_frame(&daemon_out))
		return 0;
	return frame_parse(daemon_in.data + daemon_in.start, daemon_in.end - daemon_in.start,
			   ret_frame);
}

/* Serves the first frame; false: there is none. */
static bool daemon_handle_frame(void)
{
	struct frame frame;
	int64_t length = daemon_next_frame(&frame);
	if (length == 0)
		return false;
	relay.frames_passed = true;
	int result = length < 0 ? -EBADMSG : daemon_serve_frame(&frame);
	if (result < 0) {
		daemon_close();
		return false;
	}
	if (result > 0)
		frame_queue_add(&guest_out, (enum frame_type)frame.type, frame.id, frame.payload,
				frame.size);
	daemon_in.start += (size_t)length;
	return true;
}

/* ---- Frames from the guest. */

static void guest_pass_frame(const struct frame *frame)
{
	if (relay.daemon < 0 || relay.begin_pending)
		return;
	frame_queue_add(&daemon_out, (enum frame_type)frame->type, frame->id, frame->payload,
			frame->size);
	if (frame->type == FRAME_HELLO_REPLY && !relay.hello_answered) {
		relay.hello_answered = true;
		exec_output_repeat_progress();
	}
}

/* Replaces the totals with those of the logs. */
static int guest_pass_exited(const struct frame *frame)
{
	struct exec_result result;
	uint8_t room[128];
	if (exec_result_read(frame, &result) < 0)
		return -EBADMSG;
	exec_output_read_totals(frame->id, &result.totals);
	struct writer writer = writer_on(room, sizeof(room));
	exec_result_write(&writer, &result);
	struct frame changed = *frame;
	changed.payload = room;
	changed.size = (uint32_t)writer.size;
	guest_pass_frame(&changed);
	exec_output_ended(frame->id, result.left_running);
	return 0;
}

static int guest_pass_listed(const struct frame *frame)
{
	struct exec_status status;
	uint8_t room[128];
	if (exec_status_read(frame, &status) < 0)
		return -EBADMSG;
	exec_output_read_totals(frame->id, &status.result.totals);
	exec_output_listed(frame->id);
	struct writer writer = writer_on(room, sizeof(room));
	exec_status_write(&writer, &status);
	struct frame changed = *frame;
	changed.payload = room;
	changed.size = (uint32_t)writer.size;
	guest_pass_frame(&changed);
	if (status.phase == EXEC_PHASE_ENDED)
		exec_output_ended(frame->id, status.result.left_running);
	return 0;
}

static int guest_take_begin(const struct frame *frame)
{
	struct reader reader = reader_on(frame->payload, frame->size);
	uint32_t number = read_u32(&reader);
	if (reader_finish(&reader) < 0 || !relay.begin_pending || number != relay.begin_number)
		return -EBADMSG;
	relay.begin_pending = false;
	return 0;
}

static int guest_serve_frame(const struct frame *frame)
{
	switch (frame->type) {
	case FRAME_OUTPUT:
		return exec_output_append(frame);
	case FRAME_BEGIN:
		return guest_take_begin(frame);
	case FRAME_PROGRESS:
		return 0; /* concerns logs that the guest does not have */
	case FRAME_EXITED:
		return guest_pass_exited(frame);
	case FRAME_LISTED:
		return guest_pass_listed(frame);
	case FRAME_LIST_END:
		exec_output_list_end();
		break;
	case FRAME_START_FAILED:
		exec_output_start_failed(frame->id);
		break;
	case FRAME_GONE:
		exec_output_ended(frame->id, 0);
		break;
	default:
		break;
	}
	guest_pass_frame(frame);
	return 0;
}

static int64_t guest_next_frame(struct frame *ret_frame)
{
	if (!queue_takes_frame(&daemon_out))
		return 0;
	return frame_parse(guest_in.data + guest_in.start, guest_in.end - guest_in.start,
			   ret_frame);
}

static bool guest_handle_frame(void)
{
	struct frame frame;
	int64_t length = guest_next_frame(&frame);
	if (length == 0)
		return false;
	if (length < 0 || guest_serve_frame(&frame) < 0)
		relay_exit_broken();
	guest_in.start += (size_t)length;
	return true;
}

/* 1: received; 0: nothing now; -1: closed. */
static int guest_receive(void)
{
	if (guest_in.room == guest_in.end)
		frame_queue_compact(&guest_in);
	if (guest_in.room == guest_in.end)
		return 0;
	ssize_t got = recv(relay.guest, guest_in.data + guest_in.end, guest_in.room - guest_in.end,
			   MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (got <= 0)
		return -1;
	guest_in.end += (size_t)got;
	return 1;
}

/* The guest has ended or is about to: its last output goes to the logs, and the daemon gets
 * what fits into its socket. */
static _Noreturn void relay_finish(void)
{
	int64_t until = clock_boot() + FINISH_TIMEOUT;
	int status = 0, got;
	pid_t ended;
	do {
		got = guest_receive();
		while (guest_handle_frame())
			;
		if (relay.daemon >= 0 && frame_queue_send(&daemon_out, relay.daemon) < 0)
			daemon_close();
		/* A daemon that does not read must not delay output on its way to the log. */
		if (!queue_takes_frame(&daemon_out)) {
			daemon_close();
			got = 1;
		}
	} while (got > 0 && clock_boot() < until);
	do
		ended = waitpid(relay.guest_process, &status, WNOHANG);
	while (ended == 0 && clock_boot() < until && poll(NULL, 0, 5) == 0);
	if (ended != relay.guest_process)
		relay_exit_broken();
	relay_exit_with(status);
}

static void children_reap(void)
{
	struct signalfd_siginfo info;
	siginfo_t ended;
	while (read(relay.signals, &info, sizeof(info)) == sizeof(info))
		;
	/* relay_finish() reaps the guest's process; our other children are its helpers, and their
	 * ends do not matter. */
	for (;;) {
		ended.si_pid = 0;
		if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) < 0 || ended.si_pid == 0)
			return;
		if (ended.si_pid == relay.guest_process)
			relay_finish();
		waitpid(ended.si_pid, NULL, WNOHANG);
	}
}

/* ---- The loop. */

/* Sends pending credit to the guest and PROGRESS to the daemon. */
static void execs_send_due(void)
{
	uint64_t key;
	uint32_t credit;
	struct output_totals totals;
	uint8_t room[32];
	while (frame_queue_free_bytes(&guest_out) > RESERVE / 2 &&
	       exec_output_next_credit(&key, &credit)) {
		struct writer writer = writer_on(room, sizeof(room));
		write_u32(&writer, credit);
		frame_queue_add(&guest_out, FRAME_CREDIT, key, room, writer.size);
	}
	while (relay.hello_answered && !relay.begin_pending &&
	       frame_queue_free_bytes(&daemon_out) > SMALL_FRAME &&
	       exec_output_next_progress(&key, &totals)) {
		struct writer writer = writer_on(room, sizeof(room));
		output_totals_write(&writer, &totals);
		frame_queue_add(&daemon_out, FRAME_PROGRESS, key, room, writer.size);
	}
}

static void queues_flush(void)
{
	if (frame_queue_send(&guest_out, relay.guest) < 0)
		relay_finish();
	size_t before = daemon_out.start;
	if (relay.daemon >= 0 && frame_queue_send(&daemon_out, relay.daemon) < 0)
		daemon_close();
	int64_t now = clock_boot();
	if (queue_takes_frame(&daemon_out) || daemon_out.start != before)
		relay.stalled_since = 0;
	else if (relay.stalled_since == 0)
		relay.stalled_since = now;
	else if (now - relay.stalled_since > STALL_MAX)
		daemon_close();
}

static void relay_wait_for_events(bool more)
{
	enum { SIGNALS, LISTENER, GUEST, DAEMON, COUNT };
	bool fds_fit = FDS_MAX - relay.fd_count >= FDS_PER_MESSAGE;
	struct pollfd polled[COUNT] = {
	    [SIGNALS] = {.fd = relay.signals, .events = POLLIN},
	    [LISTENER] = {.fd = relay.listener, .events = POLLIN},
	    [GUEST] = {.fd = relay.guest},
	    [DAEMON] = {.fd = relay.daemon},
	};
	if (frame_queue_free_bytes(&guest_in) > 0)
		polled[GUEST].events |= POLLIN;
	if (guest_out.start < guest_out.end)
		polled[GUEST].events |= POLLOUT;
	if (!relay.begin_pending && fds_fit && frame_queue_free_bytes(&daemon_in) > 0)
		polled[DAEMON].events |= POLLIN;
	if (daemon_out.start < daemon_out.end)
		polled[DAEMON].events |= POLLOUT;
	int64_t next = MIN(relay.deadline > 0 ? relay.deadline : INT64_MAX, exec_output_retry_at());
	if (relay.stalled_since != 0)
		next = MIN(next, relay.stalled_since + STALL_MAX);
	int64_t left = (next - clock_boot()) / NSEC_PER_MSEC + 1;
	int timeout = more ? 0 : (int)MAX(MIN(left, 60 * 1000), 0);
	if (poll(polled, COUNT, timeout) <= 0)
		return;
	if (polled[SIGNALS].revents)
		children_reap();
	if ((polled[GUEST].revents & (POLLIN | POLLHUP | POLLERR)) && guest_receive() < 0)
		relay_finish();
	if (polled[DAEMON].revents & POLLIN)
		daemon_receive();
	/* The daemon is gone; do not wait until there is room to read. */
	else if (polled[DAEMON].revents & (POLLHUP | POLLERR | POLLNVAL))
		daemon_close();
	if (polled[LISTENER].revents & POLLIN)
		daemon_accept();
}

/* Disconnect a daemon whose descriptors belong to no frame: they would pile up. */
static void daemon_check_descriptors(void)
{
	struct frame frame;
	if (relay.daemon >= 0 && FDS_MAX - relay.fd_count < FDS_PER_MESSAGE &&
	    frame_parse(daemon_in.data + daemon_in.start, daemon_in.end - daemon_in.start,
			&frame) == 0)
		daemon_close();
}

_Noreturn void relay_serve(int listener, pid_t guest_process)
{
	sigset_t mask;
	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	relay.listener = listener;
	relay.guest_process = guest_process;
	relay.signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (relay.signals < 0)
		relay_exit_broken();
	/* The guest's process may have ended before the signalfd existed. */
	children_reap();
	for (;;) {
		struct frame frame;
		for (int i = 0; i < FRAMES_PER_TURN && guest_handle_frame(); i++)
			;
		for (int i = 0; i < FRAMES_PER_TURN && daemon_handle_frame(); i++)
			;
		execs_send_due();
		queues_flush();
		daemon_check_descriptors();
		if (relay.deadline > 0 && relay.deadline <= clock_boot())
			_exit(END_DEADLINE);
		relay_wait_for_events(guest_next_frame(&frame) != 0 ||
				      daemon_next_frame(&frame) != 0);
	}
}

int relay_wait_for_init(int channel, int64_t deadline)
{
	relay.guest = channel;
	channel_send_begin();
	while (relay.begin_pending) {
		int64_t left = (deadline - clock_boot()) / NSEC_PER_MSEC;
		struct pollfd polled = {.fd = channel, .events = POLLIN};
		int result = frame_queue_send(&guest_out, channel);
		if (result < 0)
			return result;
		if (left <= 0)
			return -ETIMEDOUT;
		if (poll(&polled, 1, (int)left) > 0 && guest_receive() < 0)
			return -ECONNRESET;
		while (relay.begin_pending && guest_handle_frame())
			;
	}
	return 0;
}
