/* A hostile init: bytes fed to the daemon's end of the link, and through it to everything that
 * looks at a frame (link.c, frames.c, files.c). The input's first byte says what the
 * sandbox is doing; the rest are frames, cut into writes by the lengths it says.
 *
 * The store is a real one, made anew for each input, in memory where there is a file system for it;
 * the spawner's end of its socket is never answered: what is fuzzed is the guest's side alone. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "core/core_private.h"
#include "tier/remove_tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct world {
	uv_loop_t loop;
	struct core core;
	struct sandbox *sandbox;
	int guest;   /* the hostile end */
	int spawner; /* the end that never answers */
	char state[64];
	struct exec_watcher watchers[4];
	unsigned watched;
};

static void on_changed(struct exec_watcher *watcher, struct exec *exec)
{
	char room[512];
	uint64_t gap;
	/* A consumer as the edges are: reads what is told to be there. */
	for (int stream = EXEC_STDOUT; stream <= EXEC_STDERR; stream++) {
		uint64_t total = exec_total(exec, (enum exec_stream)stream);
		uint64_t from = total > 256 ? total - 256 : 0;
		if (exec_read(exec, (enum exec_stream)stream, from, room, sizeof(room), &gap) > 0)
			exec_watcher_consumed(watcher, (enum exec_stream)stream, total);
	}
}

static void on_forgotten(struct exec_watcher *watcher)
{
	watcher->changed = NULL;
}

static void on_data(struct file_operation_handle *handle, const void *data, size_t size)
{
	struct reader reader = reader_on(data, size);
	struct file_entry entry;
	file_entry_read(&reader, &entry);
	file_credit(handle, (uint32_t)size);
}

static void on_credit(struct file_operation_handle *handle)
{
	struct error error;
	static const char bytes[4096];
	(void)!file_write(handle, bytes, sizeof(bytes), &error);
}

static void on_done(struct file_operation_handle *handle, const void *result, size_t size,
		    const struct error *error)
{
	struct file_entry entry;
	struct reader reader = reader_on(result, size);
	(void)handle;
	if (!error)
		file_entry_read(&reader, &entry);
}

static void on_left(void *data, const struct left_process *processes, size_t count,
		    const struct error *error)
{
	(void)data;
	(void)error;
	for (size_t i = 0; i < count; i++)
		if (strlen(processes[i].command) >= sizeof(processes[i].command))
			abort();
}

static void nothing(void *data)
{
	(void)data;
}

static void ready_done(void *data, const struct error *error)
{
	(void)data;
	(void)error;
}

/* A core whose start-up is over, without having asked anybody. */
static void world_open(struct world *world)
{
	struct error error;
	struct config config;
	int fds[2];
	memset(world, 0, sizeof(*world));
	uv_loop_init(&world->loop);
	config_defaults(&config);
	config.output_head = 512;
	config.output_tail = 512;
	snprintf(world->state, sizeof(world->state), "%s/caisson-fuzz-%d",
		 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (int)getpid());
	mkdir(world->state, 0700);
	(void)!text_copy(config.state, sizeof(config.state), world->state);
	(void)!text_copy(config.runtime, sizeof(config.runtime), "/nonexistent");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		abort();
	world->spawner = fds[1];
	if (core_start(&world->core, &world->loop, &config, fds[0], nothing, NULL, &error) < 0)
		abort();
	world->core.private->started = true;
}

static void turn(struct world *world)
{
	for (int i = 0; i < 3; i++)
		uv_run(&world->loop, UV_RUN_NOWAIT);
}

/* A sandbox in one of the situations in which an init can lie. */
static void sandbox_open(struct world *world, uint8_t situation)
{
	struct sandbox_row row = {
	    .id = id_new(),
	    .workspace = text_duplicate("default"),
	    .template = text_duplicate("host"),
	    .state = situation & 1 ? SANDBOX_CREATING : SANDBOX_RUNNING,
	    .created_wall = clock_wall(),
	};
	int fds[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
		abort();
	struct error error;
	if (store_sandbox_insert(world->core.store, &row, &error) < 0)
		abort();
	world->guest = fds[1];
	world->sandbox = sandbox_new(&world->core, &row);
	world->sandbox->guest =
	    guest_link_open_fd(&world->loop, fds[0], 1000, &sandbox_link_callbacks, world->sandbox);
}

static void send_raw(struct world *world, const void *data, size_t size)
{
	if (world->guest >= 0 && send(world->guest, data, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return;
	turn(world);
}

static void say_hello(struct world *world, uint8_t situation)
{
	uint8_t frame[64];
	struct hello_reply reply = {INIT_PROTOCOL_VERSION, !(situation & 1), 1};
	struct writer writer =
	    writer_on(frame + FRAME_HEADER_SIZE, sizeof(frame) - FRAME_HEADER_SIZE);
	hello_reply_write(&writer, &reply);
	frame_header_write(frame, FRAME_HELLO_REPLY, 0, (uint32_t)writer.size);
	send_raw(world, frame, FRAME_HEADER_SIZE + writer.size);
	if (!(situation & 2))
		return; /* LIST is not answered: what follows is a resync */
	frame_header_write(frame, situation & 1 ? FRAME_CONFIGURED : FRAME_LIST_END, 0, 0);
	send_raw(world, frame, FRAME_HEADER_SIZE);
}

/* Work under way, so that there is something to lie about: execs with keys 1 to 3, operations. */
static void begin_work(struct world *world, uint8_t situation)
{
	static const char *const argv[] = {"x"};
	static const struct file_callbacks callbacks = {on_data, on_credit, on_done};
	struct sandbox *sandbox = world->sandbox;
	struct error error;
	for (uint32_t i = 0; i < 3; i++) {
		struct exec_spec spec = {.argv = argv,
					 .argc = 1,
					 .flags = i == 0   ? EXEC_STDIN
						  : i == 1 ? EXEC_TTY
							   : EXEC_LOSSLESS};
		struct exec *exec;
		if (exec_start(sandbox, &spec, &exec, &error) < 0)
			return;
		struct exec_watcher *watcher = &world->watchers[i];
		*watcher = (struct exec_watcher){
		    .changed = on_changed, .forgotten = on_forgotten, .consumes = true};
		exec_watch(exec, watcher);
		if (situation & 4)
			(void)!exec_left_running(exec, on_left, NULL, &error);
		if (i == 0)
			(void)!exec_stdin(exec, "abc", 3, &error);
	}
	for (int i = 0; i < 3; i++) {
		struct file_request request = {.operation = FILE_READ,
					       .path = {(const uint8_t *)"/x", 2}};
		struct file_operation_handle *handle;
		if (file_start(sandbox, NULL, &request, &callbacks, NULL, &handle, &error) < 0)
			return;
		if (i == 2 && (situation & 8))
			file_cancel(handle);
	}
	if (situation & 16)
		(void)!sandbox_ready(sandbox, NULL, false, ready_done, NULL, &error);
}

static void drain(int fd)
{
	char room[65536];
	while (fd >= 0 && recv(fd, room, sizeof(room), MSG_DONTWAIT) > 0)
		;
}

static void world_close(struct world *world)
{
	core_stop(&world->core);
	fd_close(&world->guest);
	fd_close(&world->spawner);
	uv_run(&world->loop, UV_RUN_DEFAULT);
	if (uv_loop_close(&world->loop) != 0)
		abort();
	if (remove_tree(AT_FDCWD, world->state) < 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct world world;
	log_setup("fuzz", LOG_ERROR, false);
	if (size < 2 || size > 65536)
		return 0;
	world_open(&world);
	uint8_t situation = data[0];
	size_t piece = data[1] ? data[1] : 65536;
	sandbox_open(&world, situation);
	struct id id = world.sandbox->row.id;
	turn(&world);
	if (!(situation & 32))
		say_hello(&world, situation);
	if (sandbox_by_id(&world.core, &id) && world.sandbox->guest_ready)
		begin_work(&world, situation);
	for (size_t at = 2; at < size; at += piece) {
		send_raw(&world, data + at, MIN(piece, size - at));
		drain(world.guest);
		drain(world.spawner);
	}
	turn(&world);
	/* Sometimes its processes end in the middle of it all. */
	if (situation & 64 && sandbox_by_id(&world.core, &id))
		sandbox_processes_ended(world.sandbox, END_KILLED);
	/* At once, since a thread per input would be slow. */
	logs_remove_now(world.core.private->logs_fd, &(struct log_removal){.sandbox = id});
	world_close(&world);
	return 0;
}
