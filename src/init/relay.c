/* Passes frames between the connection and the runners of operations. Called by connection.c and
 * runners.c; never blocks: data that a runner does not take waits in a window (bounded by
 * credit), and frames that the connection does not take are not read from the runner. A runner
 * is a process of the sandbox, so its frames are checked here: for an invalid one the daemon
 * would end the whole connection. */
#include "init/relay.h"

#include <errno.h>
#include <signal.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "init/connection.h"
#include "init/exec/exec.h"
#include "init/runner/runners.h"
#include "init/loop.h"
#include "init/file/operation.h"
#include "init/exec/input_window.h"

/* How long an operation may clean up after CANCEL. */
#define CANCEL_GRACE_MS 1000
/* How long reading command lines may take; after that, the kernel's short names are sent. */
#define NAMING_PATIENCE (1 * NSEC_PER_SEC)
/* A runner that stayed is a process of a user of the sandbox, who may have stopped it. If it has
 * not read its request by then, it is killed and the request goes to another. */
#define READ_PATIENCE (1 * NSEC_PER_SEC)

/* Frames that are read from one runner in a turn of the loop. */
#define FRAMES_AT_ONCE 2

struct operation_state {
	uint64_t id; /* 0: free */
	int runner;  /* index, -1: not yet */
	struct window window;
	uint64_t receive_credit; /* bytes of DATA that the outside may still send */
	uint64_t send_credit;    /* bytes of DATA that the runner may still send */
	uint32_t credit_owed;    /* credit for the runner that was not sent yet */
	bool end_owed, cancel_owed;
	bool ended;      /* DATA_END came from the outside: no DATA may follow */
	bool data_ended; /* DATA_END came from the runner */
	bool cancelled;  /* CANCEL came */
	bool fed;        /* its runner was sent more frames than the request */
	bool stays;      /* its runner stays for another operation */
	bool holding; /* its runner had stayed and may fail to take the request: data waits for the
			 first answer */
	int64_t kill_at;
	int64_t look_at; /* when to check whether its runner has read the request; NEVER */
};

static struct operation_state operations[OPERATIONS_MAX];
static uint32_t used_up_to;

static struct operation_state *relay_find(uint64_t id)
{
	for (uint32_t i = 0; i < used_up_to; i++)
		if (operations[i].id == id)
			return &operations[i];
	return NULL;
}

static void relay_release(struct operation_state *operation, uint32_t grace_ms)
{
	if (operation->runner >= 0) {
		if (!operation->stays || !runner_stay((uint32_t)operation->runner))
			runner_release((uint32_t)operation->runner, grace_ms);
	} else
		runner_request_withdraw(OWNER_OPERATION, (uint32_t)(operation - operations));
	window_clear(&operation->window);
	operation->id = 0;
	while (used_up_to > 0 && operations[used_up_to - 1].id == 0)
		used_up_to--;
}

/* An operation that PID 1 began for LEFT_RUNNING: its id is the exec's key. */
static bool relay_is_left_running(const struct operation_state *operation)
{
	return !(operation->id & OPERATION_ID_BIT);
}

static void relay_fail(struct operation_state *operation, enum error_kind kind, int errnum,
		       const char *message)
{
	if (relay_is_left_running(operation))
		exec_send_left_running_names(operation->id);
	else
		connection_send_failure(FRAME_FAILED, operation->id, kind, errnum, message);
	relay_release(operation, CANCEL_GRACE_MS);
}

static struct operation_state *relay_find_free(void)
{
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++) {
		if (operations[i].id)
			continue;
		used_up_to = MAX(used_up_to, i + 1);
		return &operations[i];
	}
	return NULL;
}

static void relay_submit(struct operation_state *operation, uint64_t id, const uint8_t *frame,
			 size_t size)
{
	*operation = (struct operation_state){
	    .id = id,
	    .runner = -1,
	    .window = WINDOW_EMPTY,
	    .receive_credit = FILE_WINDOW,
	    .send_credit = FILE_WINDOW,
	    .kill_at = NEVER,
	    .look_at = NEVER,
	};
	struct runner_request wanted = {
	    .kind = OWNER_OPERATION, .owner = (uint32_t)(operation - operations), .size = size};
	runner_request_submit(&wanted, frame);
}

void relay_begin(const struct request *request)
{
	if (relay_find(request->id)) {
		connection_refuse("the id of an operation was used twice");
		return;
	}
	if (loop_shutting_down()) {
		connection_send_failure(FRAME_FAILED, request->id, ERROR_SANDBOX_ENDED, 0,
					"the sandbox is shutting down");
		return;
	}
	struct operation_state *operation = relay_find_free();
	if (!operation) {
		connection_send_failure(FRAME_FAILED, request->id, ERROR_BUSY, 0,
					"too many operations at once in this sandbox");
		return;
	}
	relay_submit(operation, request->id, request->frame.payload - FRAME_HEADER_SIZE,
		     FRAME_HEADER_SIZE + request->frame.size);
}

bool relay_begin_left_running(uint64_t key, const uint8_t *frame, size_t size)
{
	struct operation_state *operation = relay_find(key) ? NULL : relay_find_free();
	if (!operation)
		return false;
	relay_submit(operation, key, frame, size);
	operation = relay_find(key);
	if (operation)
		operation->kill_at = clock_boot() + NAMING_PATIENCE;
	return true;
}

/* Sends one message to the runner. False with errno if it was not taken. */
static bool relay_send_frame(struct operation_state *operation, enum frame_type type,
			     const void *payload, size_t size)
{
	uint8_t header[FRAME_HEADER_SIZE];
	frame_header_write(header, type, 0, (uint32_t)size);
	struct iovec parts[2] = {{header, sizeof(header)}, {(void *)payload, size}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	struct runner *runner = runner_at((uint32_t)operation->runner);
	operation->fed = true;
	return sendmsg(runner->socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
}

static bool relay_send_owed(struct operation_state *operation)
{
	uint8_t number[4];
	const uint8_t *data;
	size_t size;
	if (operation->cancel_owed) {
		if (!relay_send_frame(operation, FRAME_CANCEL, NULL, 0))
			return false;
		operation->cancel_owed = false;
	}
	if (operation->holding)
		return true;
	if (operation->credit_owed) {
		struct writer writer = writer_on(number, sizeof(number));
		write_u32(&writer, operation->credit_owed);
		if (!relay_send_frame(operation, FRAME_CREDIT, number, sizeof(number)))
			return false;
		operation->credit_owed = 0;
	}
	while ((size = window_front(&operation->window, &data)) > 0) {
		size = MIN(size, (size_t)FILE_CHUNK_MAX);
		if (!relay_send_frame(operation, FRAME_DATA, data, size))
			return false;
		window_drop(&operation->window, size);
	}
	if (operation->end_owed) {
		if (!relay_send_frame(operation, FRAME_DATA_END, NULL, 0))
			return false;
		operation->end_owed = false;
	}
	return true;
}

static void relay_drop_owed(struct operation_state *operation)
{
	window_clear(&operation->window);
	operation->credit_owed = 0;
	operation->cancel_owed = operation->end_owed = false;
}

/* Sends the runner everything that waits, and sets the events asked of epoll. A runner that has
 * answered has shut its receiving side, and a dead one has none: only its last message is worth
 * waiting for. Such a socket always counts as writable, so waiting for room would keep PID 1
 * busy. */
static void relay_flush(struct operation_state *operation)
{
	if (operation->runner < 0)
		return;
	bool done = relay_send_owed(operation);
	if (!done && (errno == EPIPE || errno == ECONNRESET)) {
		relay_drop_owed(operation);
		done = true;
	}
	runner_watch((uint32_t)operation->runner,
		     (done ? 0 : EPOLLOUT) | (connection_has_room() ? EPOLLIN : 0));
}

bool relay_send_to_runner(uint32_t index, uint32_t runner, const uint8_t *frame, size_t size)
{
	struct operation_state *operation = &operations[index];
	if (operation->cancelled) {
		runner_release(runner, 0);
		relay_fail(operation, ERROR_CANCELLED, 0, "cancelled");
		return true;
	}
	if (send(runner_at(runner)->socket, frame, size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return false;
	operation->runner = (int)runner;
	operation->holding = runner_at(runner)->stayed;
	if (operation->holding)
		operation->look_at = clock_boot() + READ_PATIENCE;
	relay_flush(operation);
	return true;
}

void relay_runner_failed(uint32_t index, const struct failure *failure)
{
	relay_fail(&operations[index], failure->kind, (int)failure->errnum, failure->message);
}

void relay_data(const struct request *request)
{
	struct operation_state *operation = relay_find(request->id);
	/* The operation may have just ended. */
	if (!operation)
		return;
	if (request->frame.size > operation->receive_credit || operation->ended) {
		relay_fail(operation, ERROR_INVALID, 0, "more data than there was credit for");
		return;
	}
	operation->receive_credit -= request->frame.size;
	bool direct = operation->runner >= 0 && operation->window.used == 0 &&
		      !operation->credit_owed && !operation->cancel_owed && !operation->holding;
	if (!direct ||
	    !relay_send_frame(operation, FRAME_DATA, request->frame.payload, request->frame.size)) {
		window_put(&operation->window, request->frame.payload, request->frame.size);
		relay_flush(operation);
	}
}

void relay_data_end(uint64_t id)
{
	struct operation_state *operation = relay_find(id);
	if (!operation)
		return;
	operation->ended = true;
	operation->end_owed = true;
	relay_flush(operation);
}

void relay_credit(uint64_t id, uint32_t credit)
{
	struct operation_state *operation = relay_find(id);
	if (!operation)
		return;
	/* The credit for the runner never exceeds the window. */
	uint64_t most = FILE_WINDOW - MIN(operation->send_credit, (uint64_t)FILE_WINDOW);
	credit = (uint32_t)MIN(most, (uint64_t)credit);
	operation->send_credit += credit;
	operation->credit_owed += credit;
	relay_flush(operation);
}

void relay_cancel(uint64_t id)
{
	struct operation_state *operation = relay_find(id);
	if (!operation || operation->cancelled)
		return;
	operation->cancelled = true;
	operation->cancel_owed = true;
	operation->kill_at = clock_boot() + CANCEL_GRACE_MS * NSEC_PER_MSEC;
	relay_flush(operation);
}

void relay_cancel_all(void)
{
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++)
		if (operations[i].id)
			relay_release(&operations[i], CANCEL_GRACE_MS);
}

/* Checks and passes on the first frame of a runner's message, which is in its place in the
 * outbox. Returns the frame's size, or the message's size if the operation has ended with it. */
static size_t relay_runner_frame(struct operation_state *operation, uint8_t *place, size_t size)
{
	struct frame frame;
	bool final = false;
	int64_t length = frame_parse(place, size, &frame);
	if (length <= 0) {
		relay_fail(operation, ERROR_INTERNAL, 0,
			   "the operation's process sent an invalid frame");
		return size;
	}
	struct reader reader = reader_on(frame.payload, frame.size);
	struct failure failure;
	bool good = false;
	/* For LEFT_RUNNING the id is an exec's key, so no other frame may have it. */
	uint16_t type =
	    relay_is_left_running(operation) == (frame.type == FRAME_LEFT_RUNNING) ? frame.type : 0;
	switch (type) {
	case FRAME_DATA:
		good = frame.size <= FILE_CHUNK_MAX && frame.size <= operation->send_credit &&
		       !operation->data_ended;
		operation->send_credit -= good ? frame.size : 0;
		break;
	case FRAME_DATA_END:
		good = frame.size == 0 && !operation->data_ended;
		operation->data_ended = true;
		break;
	case FRAME_CREDIT: {
		uint32_t credit = read_u32(&reader);
		good = reader_finish(&reader) == 0 &&
		       operation->receive_credit + credit <= FILE_WINDOW;
		operation->receive_credit += good ? credit : 0;
		break;
	}
	case FRAME_RESULT:
	case FRAME_LEFT_RUNNING:
		good = final = true;
		break;
	case FRAME_FAILED:
		good = final = failure_read(&frame, &failure) == 0;
		break;
	default:
		break;
	}
	if (!good) {
		relay_fail(operation, ERROR_INTERNAL, 0,
			   "the operation's process violated the protocol");
		return size;
	}
	operation->stays = final && frame.id == OPERATION_STAYS && !operation->cancelled;
	operation->look_at = NEVER;
	if (operation->holding) {
		operation->holding = false;
		relay_flush(operation);
	}
	frame_header_write(place, frame.type, operation->id, frame.size);
	connection_commit((size_t)length);
	if (!final)
		return (size_t)length;
	relay_release(operation, CANCEL_GRACE_MS);
	return size;
}

/* True if there may be more to read. (Inlined, it makes the init 160 bytes larger.) */
__attribute__((noinline)) static bool relay_read_runner(struct operation_state *operation)
{
	/* The answer waits in the socket. epoll reports a hang-up on every wait, whichever events
	 * are requested; so if nothing has to be sent, this removes the socket from epoll until
	 * relay_resume(). */
	if (!connection_has_room()) {
		relay_flush(operation);
		return false;
	}
	struct runner *runner = runner_at((uint32_t)operation->runner);
	uint8_t *place = connection_reserve();
	/* ECONNRESET: the peer closed its socket before it had read everything. The kernel
	 * reports this once, before the messages that the peer had sent. */
	size_t room = FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX;
	ssize_t got = recv(runner->socket, place, room, MSG_DONTWAIT);
	bool unread = got < 0 && errno == ECONNRESET;
	if (unread)
		got = recv(runner->socket, place, room, MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (got > 0) {
		runner_request_read((uint32_t)operation->runner);
		/* The bytes of a small file and the answer come in one message. */
		for (size_t at = 0; at < (size_t)got;)
			at += relay_runner_frame(operation, place + at, (size_t)got - at);
		return operation->id != 0;
	}
	uint32_t ended = (uint32_t)operation->runner;
	if (unread && !operation->fed && !operation->cancelled && runner_request_may_retry(ended)) {
		operation->runner = -1;
		runner_request_retry(ended);
	} else if (operation->cancelled)
		relay_fail(operation, ERROR_CANCELLED, 0, "cancelled");
	else
		relay_fail(operation, ERROR_RESOURCE_LIMIT, 0,
			   "the operation's process was killed inside the sandbox");
	return false;
}

void relay_runner_event(uint32_t index, uint32_t events)
{
	struct operation_state *operation = &operations[index];
	if (events & EPOLLOUT)
		relay_flush(operation);
	if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)) || operation->id == 0)
		return;
	/* Data and the answer often come together, so both are read in one turn. */
	for (int frames = 0; frames < FRAMES_AT_ONCE && relay_read_runner(operation); frames++)
		;
}

void relay_resume(void)
{
	for (uint32_t i = 0; i < used_up_to; i++) {
		struct operation_state *operation = &operations[i];
		if (operation->id && operation->runner >= 0 &&
		    !(runner_at((uint32_t)operation->runner)->watched & EPOLLIN))
			relay_flush(operation);
	}
}

static void relay_kill_runner(const struct operation_state *operation)
{
	struct runner *runner = runner_at((uint32_t)operation->runner);
	if (runner->pid > 0)
		kill(runner->pid, SIGKILL);
}

/* SIOCOUTQ reports how many of the sent bytes were not received yet. */
static void relay_check_runner_read(struct operation_state *operation)
{
	int unread = 0;
	operation->look_at = NEVER;
	if (operation->runner >= 0 &&
	    ioctl(runner_at((uint32_t)operation->runner)->socket, SIOCOUTQ, &unread) == 0 &&
	    unread > 0)
		relay_kill_runner(operation);
}

int64_t relay_time(int64_t now)
{
	int64_t next = NEVER;
	for (uint32_t i = 0; i < used_up_to; i++) {
		struct operation_state *operation = &operations[i];
		if (operation->id && operation->look_at <= now)
			relay_check_runner_read(operation);
		if (operation->id && operation->kill_at <= now) {
			if (operation->runner >= 0)
				relay_kill_runner(operation);
			relay_fail(operation, ERROR_CANCELLED, 0, "cancelled");
		}
		if (operation->id)
			next = MIN(next, MIN(operation->kill_at, operation->look_at));
	}
	return next;
}
