/* Resources: what can be read by a URI, listed, completed and watched. Methods are in resources.c;
 * a kind is a row of a face's table. */
#pragma once

#include "mcp/request.h"

struct resource_watch;

/* A page of a list while it is made (resources/list, prompts/list). */
#define PAGE_POSITION_MAX 64
struct page {
	struct json_writer *writer;
	uint32_t room;                    /* how many more objects it takes */
	char position[PAGE_POSITION_MAX]; /* "": from the start; else what was left here before */
	bool more;                        /* set, with a new position: there is more to list */
};

struct resource_kind {
	/* RFC 6570: {name} up to the next '/', {+name} to the end; without a variable it is the URI
	 * of one resource, which resources.c lists by itself. */
	const char *template;
	const char *name, *title, *description, *type;
	/* Puts the resources of this kind that are to be listed, an object each with
	 * resource_put(); NULL: none. */
	void (*list)(struct mcp_request *request, struct page *page);
	/* variables: the values, decoded, in the template's order. Answers the request with
	 * resource_reply_text() and the like, resource_not_found() or mcp_fail(). */
	void (*read)(struct mcp_request *request, const char *uri, const char *const *variables);
	/* NULL: it cannot be watched. 0; or -1 with *error. */
	int (*watch)(struct resource_watch *watch, const char *const *variables,
		     struct error *error);
	/* completion/complete for a variable; NULL: no values. Answers the request with
	 * completion_begin() ... completion_end(), now or later. */
	void (*complete)(struct mcp_request *request, const char *variable, const char *value);
};

/* The usual face's: the inventory, a sandbox, a file, a job's output. */
extern const struct resource_kind *const usual_resources[];

/* resources/list, /templates/list, /read. */
void resources_list(struct mcp_request *request);
void resources_templates(struct mcp_request *request);
void resources_read(struct mcp_request *request);
/* resources/subscribe and unsubscribe: of a legacy session. */
void resources_subscribe(struct mcp_request *request);
void resources_unsubscribe(struct mcp_request *request);
/* completion/complete. */
void completion(struct mcp_request *request);

/* The answer to it: at most COMPLETIONS_MAX values; how many there were is told. */
#define COMPLETIONS_MAX 100
struct completion {
	struct json_writer *writer;
	uint32_t total;
};
void completion_begin(struct mcp_request *request, struct completion *completion);
void completion_put(struct completion *completion, const char *text);
void completion_end(struct mcp_request *request, struct completion *completion);
/* What the client has chosen for another variable or argument already; NULL: nothing. */
const char *completion_context(const struct mcp_request *request, const char *name);

/* In a kind's list(): one resource. */
void resource_put(struct mcp_request *request, struct page *page, const struct resource_kind *kind,
		  const char *uri, const char *name, const char *description);
/* params.cursor; false: it is none of ours, and the request was answered with -32602. */
bool page_open(struct mcp_request *request, uint32_t *ret_table, struct page *page);
/* nextCursor, where there is more. */
void page_close(const struct page *page, uint32_t table);

/* The answer to a read: begin, contents, end; the two after them are that for a single one. type
 * NULL: not said. */
void resource_begin(struct mcp_request *request);
void resource_text(struct mcp_request *request, const char *uri, const char *type, const char *text,
		   size_t size);
void resource_blob(struct mcp_request *request, const char *uri, const char *type, const void *data,
		   size_t size);
void resource_end(struct mcp_request *request);
void resource_reply_text(struct mcp_request *request, const char *uri, const char *type,
			 const char *text, size_t size);
void resource_reply_blob(struct mcp_request *request, const char *uri, const char *type,
			 const void *data, size_t size);
/* -32002 or -32602 with data.uri, by the era. */
void resource_not_found(struct mcp_request *request, const char *uri);
/* The same for what is not there, an error of its own for what failed. */
void resource_fail(struct mcp_request *request, const char *uri, const struct error *error);
/* Is it an error that says: there is no such thing? */
bool resource_missing(const struct error *error);
/* The kind of that face that has this URI, NULL: none. The variables are freed by their owner. */
struct uri_variables;
const struct resource_kind *resource_find(const struct mcp_face *face, const char *uri,
					  struct uri_variables *ret_variables);

/* Told, in a turn of its own and not more often than each RESOURCE_WATCH_MS, that it has changed.
 * Belongs to whoever made it, until resource_watch_free(); then nothing comes any more. */
#define RESOURCE_WATCH_MS 200
/* Of one workspace. */
#define RESOURCE_WATCHES_MAX 1024
struct resource_watch {
	struct list link; /* of all there are */
	struct core *core;
	struct principal principal;
	char *uri;
	void (*updated)(struct resource_watch *watch);
	/* It cannot change any more (its sandbox is gone, its job has ended): nothing more comes.
	 * `updated` came just before. May be NULL; set by who made the watch. */
	void (*ended)(struct resource_watch *watch);
	void *data;
	/* The kind's own. */
	void *state;
	void (*state_free)(void *state);
	/* watch.c's. */
	struct alarm *alarm;
	uint64_t told; /* uv_now() of the last `updated` */
	bool due, over;
	bool *freed;
};
/* NULL with *error: no such resource (resource_missing()), or it cannot be watched. A watch neither
 * wakes its sandbox nor keeps it from its idle end. */
struct resource_watch *resource_watch_new(struct core *core, const struct mcp_face *face,
					  const struct principal *principal, const char *uri,
					  void (*updated)(struct resource_watch *watch), void *data,
					  struct error *error);
void resource_watch_free(struct resource_watch *watch);
/* For a kind: something has changed; and: that was the last that can be. */
void resource_changed(struct resource_watch *watch);
void resource_over(struct resource_watch *watch);
