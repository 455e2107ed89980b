/* Many clients at once: streams that stay open beside other measurements, and clients that each go
 * through the life of sandbox after sandbox. One thread and one epoll for all of them; the
 * processor time that this took is in the answer, so that the reader can tell whose time was
 * measured. Called by client.c; blocks. */
#include "client.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"

#define HOLD_MAX 8192
#define CLIENTS_MAX 512
#define EXECS_PER_SANDBOX 10
#define FAILURES_KEPT 20

/* --- streams that are held open --- */

static struct {
	int fds[HOLD_MAX];
	unsigned long count;
	int epoll;
	pthread_t reader;
	bool reading;
	atomic_bool stop;
	atomic_ullong bytes;
	atomic_ulong ended; /* by the server */
	double processor;   /* when it began */
} held = {.epoll = -1};

static double processor_time(int who)
{
	struct rusage usage;
	getrusage(who, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* A stream's head, and what came with it. */
static void hold_one(const struct address *address, const char *path, struct link *link)
{
	link_open(link, address);
	link_prepare(link, address, "GET", path, NULL, "Accept: text/event-stream\r\n");
	link_send(link);
	while (link->received < sizeof(link->answer) - 1) {
		ssize_t got = recv(link->fd, link->answer + link->received,
				   sizeof(link->answer) - 1 - link->received, 0);
		if (got <= 0)
			client_fail("a stream: %s",
				    got == 0 ? "the server hung up" : strerror(errno));
		link->received += (size_t)got;
		link->answer[link->received] = '\0';
		if (strstr(link->answer, "\r\n\r\n"))
			break;
	}
	if (strncmp(link->answer, "HTTP/1.1 200", 12) != 0)
		client_fail("a stream: %s", link->answer);
}

/* Reads whatever comes, so that no stream is behind. */
static void *drain(void *unused)
{
	static char data[64 * 1024];
	struct epoll_event events[256];
	(void)unused;
	while (!atomic_load(&held.stop)) {
		int ready = epoll_wait(held.epoll, events, 256, 50);
		for (int i = 0; i < ready; i++) {
			ssize_t got = recv(events[i].data.fd, data, sizeof(data), MSG_DONTWAIT);
			if (got > 0) {
				atomic_fetch_add(&held.bytes, (unsigned long long)got);
			} else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
				atomic_fetch_add(&held.ended, 1);
				epoll_ctl(held.epoll, EPOLL_CTL_DEL, events[i].data.fd, NULL);
			}
		}
	}
	return NULL;
}

void measure_hold(const struct address *address, unsigned long count, const char *path)
{
	static struct link link;
	if (held.count + count > HOLD_MAX)
		client_fail("at most %d streams", HOLD_MAX);
	if (held.epoll < 0) {
		held.epoll = epoll_create1(EPOLL_CLOEXEC);
		atomic_store(&held.bytes, 0);
		atomic_store(&held.ended, 0);
		held.processor = processor_time(RUSAGE_SELF);
	}
	double began = client_now();
	for (unsigned long i = 0; i < count; i++) {
		hold_one(address, path, &link);
		struct epoll_event event = {.events = EPOLLIN, .data.fd = link.fd};
		if (epoll_ctl(held.epoll, EPOLL_CTL_ADD, link.fd, &event) < 0)
			client_fail("epoll: %s", strerror(errno));
		held.fds[held.count++] = link.fd;
	}
	if (!held.reading) {
		atomic_store(&held.stop, false);
		if (pthread_create(&held.reader, NULL, drain, NULL) != 0)
			client_fail("no thread");
		held.reading = true;
	}
	printf("{\"open\":%lu,\"time\":%.1f}\n", held.count, client_now() - began);
}

void measure_release(void)
{
	if (held.reading) {
		atomic_store(&held.stop, true);
		pthread_join(held.reader, NULL);
		held.reading = false;
	}
	for (unsigned long i = 0; i < held.count; i++)
		fd_close(&held.fds[i]);
	fd_close(&held.epoll);
	printf("{\"closed\":%lu,\"ended\":%lu,\"bytes\":%llu,\"processor_seconds\":%.3f}\n",
	       held.count, atomic_load(&held.ended), atomic_load(&held.bytes),
	       processor_time(RUSAGE_SELF) - held.processor);
	held.count = 0;
}

/* --- clients that do everything --- */

enum operation { CREATE, EXEC, WRITE, READ, LIST, DELETE, OPERATIONS };

static const char *const operation_names[OPERATIONS] = {
    [CREATE] = "create", [EXEC] = "exec", [WRITE] = "write",
    [READ] = "read",     [LIST] = "list", [DELETE] = "delete",
};

struct series {
	double *times;
	size_t count, room;
};

struct worker {
	struct link *link;
	char id[64];
	unsigned step; /* of one sandbox's life */
	double sent;
	bool done;
};

struct load {
	const struct address *address;
	const char *create, *exec;
	struct series series[OPERATIONS];
	unsigned long failures, cycles, working;
	double end;
};

static void series_add(struct series *series, double value)
{
	if (series->count == series->room) {
		series->room = series->room ? 2 * series->room : 4096;
		series->times = realloc(series->times, series->room * sizeof(*series->times));
		if (!series->times)
			client_fail("no memory");
	}
	series->times[series->count++] = value;
}

/* create, ten execs, a file written, read and listed, delete. */
static enum operation operation_of(unsigned step)
{
	static const enum operation last[] = {WRITE, READ, LIST, DELETE};
	if (step == 0)
		return CREATE;
	return step <= EXECS_PER_SANDBOX ? EXEC : last[step - EXECS_PER_SANDBOX - 1];
}

static void send_step(struct load *load, struct worker *worker)
{
	static const char content[] = "{\"a\":\"file that is no larger than most are\"}\n";
	char path[160];
	const char *method = "GET", *body = NULL, *rest = "";
	switch (operation_of(worker->step)) {
	case CREATE:
		link_prepare(worker->link, load->address, "POST", "/v1/sandboxes", load->create,
			     NULL);
		worker->sent = client_now();
		link_send(worker->link);
		return;
	case EXEC:
		method = "POST";
		body = load->exec;
		rest = "/exec";
		break;
	case WRITE:
		method = "PUT";
		body = content;
		rest = "/files?path=/workspace/file";
		break;
	case READ:
		rest = "/files?path=/workspace/file";
		break;
	case LIST:
		rest = "/files/list?path=/workspace";
		break;
	case DELETE:
	case OPERATIONS:
		method = "DELETE";
		break;
	}
	snprintf(path, sizeof(path), "/v1/sandboxes/%s%s", worker->id, rest);
	link_prepare(worker->link, load->address, method, path, body, NULL);
	worker->sent = client_now();
	link_send(worker->link);
}

static void answered(struct load *load, struct worker *worker)
{
	struct link *link = worker->link;
	enum operation operation = operation_of(worker->step);
	double now = client_now();
	bool good = link->status >= 200 && link->status <= 299;
	series_add(&load->series[operation], now - worker->sent);
	if (good && operation == EXEC && !strstr(link->answer + link->head_size, "\"exit_code\":0"))
		good = false;
	if (!good && load->failures++ < FAILURES_KEPT)
		fprintf(stderr, "bench-client: %.70s: %.300s\n", link->request,
			link->answer + link->head_size);
	if (operation == CREATE && good)
		link_field(link, "id", worker->id, sizeof(worker->id));
	/* Without a sandbox there is nothing to go on with. */
	if (operation == DELETE || (operation == CREATE && !good)) {
		worker->step = 0;
		load->cycles += operation == DELETE;
		if (now >= load->end) {
			worker->done = true;
			load->working--;
			return;
		}
	} else {
		worker->step++;
	}
	send_step(load, worker);
}

static void load_run(struct load *load, struct worker *workers, unsigned long count)
{
	struct epoll_event events[64];
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	for (unsigned long i = 0; i < count; i++) {
		struct epoll_event event = {.events = EPOLLIN, .data.u64 = i};
		if (epoll_ctl(epoll, EPOLL_CTL_ADD, workers[i].link->fd, &event) < 0)
			client_fail("epoll: %s", strerror(errno));
		send_step(load, &workers[i]);
	}
	load->working = count;
	while (load->working > 0) {
		int ready = epoll_wait(epoll, events, 64, 60000);
		if (ready <= 0)
			client_fail("%lu clients had no answer for a minute", load->working);
		for (int i = 0; i < ready; i++) {
			struct worker *worker = &workers[events[i].data.u64];
			if (link_receive(worker->link))
				answered(load, worker);
		}
	}
	close(epoll);
}

void measure_load(const struct address *address, double seconds, unsigned long clients,
		  const char *create, const char *exec)
{
	static struct worker workers[CLIENTS_MAX];
	struct load load = {.address = address, .create = create, .exec = exec};
	if (clients == 0 || clients > CLIENTS_MAX)
		client_fail("1 to %d clients", CLIENTS_MAX);
	memset(workers, 0, sizeof(workers));
	for (unsigned long i = 0; i < clients; i++) {
		workers[i].link = calloc(1, sizeof(*workers[i].link));
		if (!workers[i].link)
			client_fail("no memory");
		link_open(workers[i].link, address);
	}
	double began = client_now(), busy = processor_time(RUSAGE_SELF);
	load.end = began + seconds * 1e6;
	load_run(&load, workers, clients);
	double wall = (client_now() - began) / 1e6;
	printf("{\"seconds\":%.3f,\"cycles\":%lu,\"failures\":%lu,\"processor_seconds\":%.3f", wall,
	       load.cycles, load.failures, processor_time(RUSAGE_SELF) - busy);
	for (size_t i = 0; i < OPERATIONS; i++) {
		printf(",\"%s\":[", operation_names[i]);
		for (size_t at = 0; at < load.series[i].count; at++)
			printf("%s%.0f", at ? "," : "", load.series[i].times[at]);
		printf("]");
		free(load.series[i].times);
	}
	printf("}\n");
	for (unsigned long i = 0; i < clients; i++) {
		link_close(workers[i].link);
		free(workers[i].link);
	}
}
