/* The measurements of bench-client: each prints one line of JSON, times in microseconds. Called by
 * client.c; blocks. */
#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "proto/exec_stream.h"
#include "pattern.h"

#define BURST_MAX 256
#define BLOCK (256 * 1024)
#define TIMES_KEPT 20000ul

static uint64_t block[BLOCK / 8];

static struct link *link_new(const struct address *address)
{
	struct link *link = calloc(1, sizeof(*link));
	if (!link)
		client_fail("no memory");
	link_open(link, address);
	return link;
}

static void link_free(struct link *link)
{
	link_close(link);
	free(link);
}

static double *times_new(unsigned long count)
{
	double *times = calloc(count, sizeof(*times));
	if (!times)
		client_fail("no memory");
	return times;
}

static void print_times(const char *name, const double *times, unsigned long count)
{
	printf("\"%s\":[", name);
	for (unsigned long i = 0; i < count; i++)
		printf("%s%.1f", i ? "," : "", times[i]);
	printf("]");
}

static double timed_call(struct link *link)
{
	double began = client_now();
	link_call(link);
	return client_now() - began;
}

void measure_repeat(const struct address *address, unsigned long count, const char *method,
		    const char *path, const char *body, const char *headers)
{
	double *times = times_new(count);
	struct link *link = link_new(address);
	link_prepare(link, address, method, path, body, headers);
	for (unsigned long i = 0; i < count; i++)
		times[i] = timed_call(link);
	printf("{\"bytes\":%lld,", (long long)link->length);
	print_times("times", times, count);
	printf("}\n");
	link_free(link);
	free(times);
}

void measure_cycle(const struct address *address, unsigned long count, const char *create,
		   const char *exec)
{
	double *times[3] = {times_new(count), times_new(count), times_new(count)};
	struct link *link = link_new(address);
	char id[64], mode[64], path[128];
	unsigned long from_pool = 0;
	for (unsigned long i = 0; i < count; i++) {
		link_prepare(link, address, "POST", "/v1/sandboxes", create, NULL);
		times[0][i] = timed_call(link);
		link_field(link, "id", id, sizeof(id));
		link_field(link, "boot_mode", mode, sizeof(mode));
		if (!mode[0])
			link_field(link, "origin", mode, sizeof(mode));
		from_pool += strcmp(mode, "pool") == 0;
		snprintf(path, sizeof(path), "/v1/sandboxes/%s/exec", id);
		link_prepare(link, address, "POST", path, exec, NULL);
		times[1][i] = timed_call(link);
		snprintf(path, sizeof(path), "/v1/sandboxes/%s", id);
		link_prepare(link, address, "DELETE", path, NULL, NULL);
		times[2][i] = timed_call(link);
	}
	printf("{\"from_pool\":%lu,", from_pool);
	print_times("create", times[0], count);
	printf(",");
	print_times("exec", times[1], count);
	printf(",");
	print_times("delete", times[2], count);
	printf("}\n");
	link_free(link);
	for (size_t i = 0; i < 3; i++)
		free(times[i]);
}

struct burst {
	struct link *link;
	char id[64];
	double created, done;
	int failed; /* the status that it failed with */
};

static void burst_step(struct burst *one, const struct address *address, const char *exec,
		       double began)
{
	char path[128];
	if (!link_receive(one->link))
		return;
	if (one->link->status < 200 || one->link->status > 299) {
		one->failed = one->link->status;
		one->done = client_now() - began;
		fprintf(stderr, "bench-client: %s\n", one->link->answer + one->link->head_size);
	} else if (one->created == 0) {
		one->created = client_now() - began;
		link_field(one->link, "id", one->id, sizeof(one->id));
		snprintf(path, sizeof(path), "/v1/sandboxes/%s/exec", one->id);
		link_prepare(one->link, address, "POST", path, exec, NULL);
		link_send(one->link);
	} else {
		one->done = client_now() - began;
	}
}

static double burst_run(struct burst *all, unsigned long count, const struct address *address,
			const char *exec)
{
	struct epoll_event events[64];
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	for (unsigned long i = 0; i < count; i++) {
		struct epoll_event event = {.events = EPOLLIN, .data.u64 = i};
		if (epoll_ctl(epoll, EPOLL_CTL_ADD, all[i].link->fd, &event) < 0)
			client_fail("epoll: %s", strerror(errno));
	}
	double began = client_now();
	for (unsigned long i = 0; i < count; i++)
		link_send(all[i].link);
	for (unsigned long left = count; left > 0;) {
		int ready = epoll_wait(epoll, events, 64, 60000);
		if (ready <= 0)
			client_fail("%lu of the burst did not answer within a minute", left);
		for (int i = 0; i < ready; i++) {
			struct burst *one = &all[events[i].data.u64];
			burst_step(one, address, exec, began);
			left -= one->done > 0;
		}
	}
	close(epoll);
	return client_now() - began;
}

void measure_burst(const struct address *address, unsigned long count, const char *create,
		   const char *exec)
{
	static struct burst all[BURST_MAX];
	double created[BURST_MAX], done[BURST_MAX];
	unsigned long ready = 0;
	char path[128];
	if (count > BURST_MAX)
		client_fail("at most %d at once", BURST_MAX);
	memset(all, 0, sizeof(all));
	for (unsigned long i = 0; i < count; i++) {
		all[i].link = link_new(address);
		link_prepare(all[i].link, address, "POST", "/v1/sandboxes", create, NULL);
	}
	double wall = burst_run(all, count, address, exec);
	for (unsigned long i = 0; i < count; i++) {
		created[i] = all[i].created;
		done[i] = all[i].done;
		ready += all[i].failed == 0;
	}
	double began = client_now();
	for (unsigned long i = 0; i < count; i++) {
		if (all[i].id[0]) {
			snprintf(path, sizeof(path), "/v1/sandboxes/%s", all[i].id);
			link_prepare(all[i].link, address, "DELETE", path, NULL, NULL);
			link_call(all[i].link);
		}
		link_free(all[i].link);
	}
	printf("{\"count\":%lu,\"up\":%lu,\"wall\":%.1f,\"removal\":%.1f,", count, ready, wall,
	       client_now() - began);
	print_times("created", created, count);
	printf(",");
	print_times("done", done, count);
	printf("}\n");
}

void measure_rate(const struct address *address, bool awake, double seconds,
		  unsigned long connections, const char *path, const char *body,
		  const char *headers)
{
	struct epoll_event events[64];
	static struct link *links[BURST_MAX];
	static double sent[BURST_MAX];
	static double times[TIMES_KEPT];
	unsigned long done = 0;
	long long bytes = 0;
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	if (connections == 0 || connections > BURST_MAX)
		client_fail("1 to %d connections", BURST_MAX);
	for (unsigned long i = 0; i < connections; i++) {
		links[i] = link_new(address);
		link_prepare(links[i], address, body ? "POST" : "GET", path, body, headers);
		struct epoll_event event = {.events = EPOLLIN, .data.u64 = i};
		if (epoll_ctl(epoll, EPOLL_CTL_ADD, links[i]->fd, &event) < 0)
			client_fail("epoll: %s", strerror(errno));
		sent[i] = client_now();
		link_send(links[i]);
	}
	double began = client_now(), now = began;
	double heard = began;
	while (now - began < seconds * 1e6) {
		int ready = epoll_wait(epoll, events, 64, awake ? 0 : 10000);
		if (ready == 0 && client_now() - heard < 10e6)
			continue;
		if (ready <= 0)
			client_fail("no answer within ten seconds");
		for (int i = 0; i < ready; i++) {
			struct link *link = links[events[i].data.u64];
			if (!link_receive(link))
				continue;
			if (link->status != 200)
				client_fail("%.60s: %s", link->request, link->answer);
			now = client_now();
			times[done++ % TIMES_KEPT] = now - sent[events[i].data.u64];
			sent[events[i].data.u64] = now;
			bytes = link->length;
			link_send(link);
		}
		heard = now = client_now();
	}
	printf("{\"requests\":%lu,\"seconds\":%.3f,\"per_second\":%.0f,\"bytes\":%lld,", done,
	       (now - began) / 1e6, (double)done * 1e6 / (now - began), bytes);
	print_times("times", times, MIN(done, TIMES_KEPT));
	printf("}\n");
	close(epoll);
	for (unsigned long i = 0; i < connections; i++)
		link_free(links[i]);
}

static void send_pattern(int fd, uint64_t size)
{
	for (uint64_t at = 0; at < size; at += BLOCK) {
		size_t length = (size_t)(size - at < BLOCK ? size - at : BLOCK);
		if (fd_write_full(fd, block, length) < 0)
			client_fail("send: %s", strerror(errno));
	}
}

static uint64_t receive_all(int fd, uint64_t most)
{
	uint64_t total = 0;
	while (total < most) {
		ssize_t got = recv(fd, block, BLOCK, 0);
		if (got < 0)
			client_fail("recv: %s", strerror(errno));
		if (got == 0)
			break;
		total += (uint64_t)got;
	}
	return total;
}

static void print_transfer(uint64_t size, double elapsed)
{
	printf("{\"bytes\":%llu,\"time\":%.1f,\"mib_per_second\":%.1f}\n", (unsigned long long)size,
	       elapsed, (double)size / 1048576.0 / (elapsed / 1e6));
}

void measure_put(const struct address *address, uint64_t size, const char *path)
{
	struct link *link = link_new(address);
	char length[64];
	pattern_fill(0, block, BLOCK);
	snprintf(length, sizeof(length), "Content-Length: %llu\r\n", (unsigned long long)size);
	link_prepare(link, address, "PUT", path, NULL, length);
	double began = client_now();
	link_send(link);
	send_pattern(link->fd, size);
	while (!link_receive(link))
		;
	double elapsed = client_now() - began;
	if (link->status < 200 || link->status > 299)
		client_fail("%s", link->answer);
	print_transfer(size, elapsed);
	link_free(link);
}

void measure_get(const struct address *address, const char *path)
{
	struct link *link = link_new(address);
	link_prepare(link, address, "GET", path, NULL, NULL);
	double began = client_now();
	link_send(link);
	link_head(link);
	uint64_t size = (uint64_t)link->length, had = link->received - link->head_size;
	if (link->status != 200)
		client_fail("%s", link->answer);
	if (had + receive_all(link->fd, size - had) != size)
		client_fail("the answer was cut off");
	print_transfer(size, client_now() - began);
	link_free(link);
}

void measure_raw_put(uint16_t port, uint64_t size)
{
	const struct address address = {.port = port};
	struct link *link = link_new(&address);
	pattern_fill(0, block, BLOCK);
	double began = client_now();
	send_pattern(link->fd, size);
	shutdown(link->fd, SHUT_WR);
	receive_all(link->fd, UINT64_MAX);
	print_transfer(size, client_now() - began);
	link_free(link);
}

void measure_raw_get(uint16_t port)
{
	const struct address address = {.port = port};
	struct link *link = link_new(&address);
	double began = client_now();
	uint64_t size = receive_all(link->fd, UINT64_MAX);
	print_transfer(size, client_now() - began);
	link_free(link);
}

static void print_digest(EVP_MD_CTX *context)
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned int length = 0;
	char text[2 * EVP_MAX_MD_SIZE + 1];
	if (EVP_DigestFinal_ex(context, digest, &length) != 1)
		client_fail("SHA-256");
	text_hex(digest, length, text);
	printf("\"sha256\":\"%s\"", text);
	EVP_MD_CTX_free(context);
}

static EVP_MD_CTX *digest_new(void)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	if (!context || EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1)
		client_fail("SHA-256");
	return context;
}

/* The frames of proto/exec_stream.h, to the last. */
void measure_stream(const struct address *address, const char *path, const char *body)
{
	static char frame[EXEC_STREAM_MAX];
	struct link *link = link_new(address);
	EVP_MD_CTX *context = digest_new();
	uint64_t total = 0, gaps = 0;
	uint8_t type = 0;
	link_prepare(link, address, "POST", path, body,
		     "Connection: Upgrade\r\nUpgrade: " EXEC_STREAM_PROTOCOL "\r\n");
	double began = client_now();
	link_send(link);
	/* A byte at a time up to the end of the head: what follows are frames. */
	while (link->length < 0) {
		if (fd_read_full(link->fd, link->answer + link->received, 1) < 0)
			client_fail("the stream's head");
		link->answer[++link->received] = '\0';
		link->length = strstr(link->answer, "\r\n\r\n") ? 0 : -1;
	}
	if (strncmp(link->answer, "HTTP/1.1 101", 12) != 0)
		client_fail("%s", link->answer);
	while (type != EXEC_STREAM_EXIT) {
		uint8_t header[EXEC_STREAM_HEADER];
		uint32_t size;
		if (fd_read_full(link->fd, header, sizeof(header)) < 0)
			client_fail("the stream broke off after %llu bytes",
				    (unsigned long long)total);
		type = header[0];
		memcpy(&size, header + 1, sizeof(size));
		if (size > sizeof(frame) || fd_read_full(link->fd, frame, size) < 0 ||
		    type == EXEC_STREAM_ERROR)
			client_fail("the stream: %.*s", (int)MIN(size, 200), frame);
		gaps += type == EXEC_STREAM_GAP;
		if (type != EXEC_STREAM_STDOUT)
			continue;
		total += size;
		EVP_DigestUpdate(context, frame, size);
	}
	double elapsed = client_now() - began;
	printf("{\"bytes\":%llu,\"gaps\":%llu,\"time\":%.1f,\"mib_per_second\":%.1f,",
	       (unsigned long long)total, (unsigned long long)gaps, elapsed,
	       (double)total / 1048576.0 / (elapsed / 1e6));
	print_digest(context);
	printf("}\n");
	link_free(link);
}

void measure_digest(uint64_t size)
{
	EVP_MD_CTX *context = digest_new();
	for (uint64_t at = 0; at < size; at += BLOCK) {
		size_t length = (size_t)(size - at < BLOCK ? size - at : BLOCK);
		pattern_fill(at, block, length);
		EVP_DigestUpdate(context, block, length);
	}
	printf("{");
	print_digest(context);
	printf("}\n");
}
