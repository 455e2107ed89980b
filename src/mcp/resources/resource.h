/* Resources: read by a URI, listed, completed and watched. resources.c has the methods; a kind is a
 * row of a face's table. */
#pragma once

#include "mcp/request.h"

struct resource_watch;

/* A page of a list that is being made (resources/list, prompts/list). */
#define PAGE_POSITION_MAX 64
struct page {
	struct json_writer *writer;
	uint32_t room;                    /* how many more objects fit */
	char position[PAGE_POSITION_MAX]; /* "": from the start; else the position that the last
					     page left here */
	bool more;                        /* set together with a new position: there are more */
};

struct resource_kind {
	/* RFC 6570: {name} up to the next '/', {+name} to the end; without a variable it is the URI
	 * of one resource, which resources.c lists itself. */
	const char *template;
	const char *name, *title, *description, *type;
	/* Puts the listed resources of this kind, one object each with resource_put(); NULL:
	 * none. */
	void (*list)(struct mcp_request *request, struct page *page);
	/* variables: the values, decoded, in the template's order. Answers the request with
	 * resource_reply_text() and the like, resource_not_found() or mcp_fail(). */
	void (*read)(struct mcp_request *request, const char *uri, const char *const *variables);
	/* NULL: not watchable. 0; or -1 with *error. */
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
/* resources/subscribe and unsubscribe: for a legacy session. */
void resources_subscribe(struct mcp_request *request);
void resources_unsubscribe(struct mcp_request *request);
/* completion/complete. */
void completion_complete(struct mcp_request *request);

/* Its answer: at most COMPLETIONS_MAX values, and the number of all. */
#define COMPLETIONS_MAX 100
struct completion {
	struct json_writer *writer;
	uint32_t total;
};
void completion_begin(struct mcp_request *request, struct completion *completion);
void completion_put(struct completion *completion, const char *text);
void completion_end(struct mcp_request *request, struct completion *completion);
/* The value that the client has chosen for another variable or argument; NULL: none. */
const char *completion_context(const struct mcp_request *request, const char *name);

/* In a kind's list(): one resource. */
void resource_put(struct mcp_request *request, struct page *page, const struct resource_kind *kind,
		  const char *uri, const char *name, const char *description);
/* params.cursor; false: it is invalid, and the request was answered with -32602. */
bool page_open(struct mcp_request *request, uint32_t *ret_table, struct page *page);
/* nextCursor, if there is more. */
void page_close(const struct page *page, uint32_t table);

/* The answer to a read: begin, contents, end; the next two functions do this for a single content.
 * type NULL: omitted. */
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
/* The same if the resource does not exist, an ordinary error if the read failed. */
void resource_fail(struct mcp_request *request, const char *uri, const struct error *error);
/* Does the error mean that the resource does not exist? */
bool resource_missing(const struct error *error);
/* The kind of that face that matches this URI, NULL: none. The caller frees the variables. */
struct uri_variables;
const struct resource_kind *resource_find(const struct mcp_face *face, const char *uri,
					  struct uri_variables *ret_variables);

/* Notifies of changes, in a separate turn and at most once per RESOURCE_WATCH_MS. Belongs to its
 * maker until resource_watch_free(); then nothing is called any more. */
#define RESOURCE_WATCH_MS 200
/* Of one workspace. */
#define RESOURCE_WATCHES_MAX 1024
struct resource_watch {
	struct list link; /* in the list of all */
	struct core *core;
	struct principal principal;
	char *uri;
	void (*updated)(struct resource_watch *watch);
	/* The resource cannot change any more (its sandbox or job has ended): nothing more comes.
	 * `updated` came just before. May be NULL; set by the maker of the watch. */
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
/* NULL with *error: no such resource (resource_missing()), or not watchable. A watch neither wakes
 * its sandbox nor delays its idle time-out. */
struct resource_watch *resource_watch_new(struct core *core, const struct mcp_face *face,
					  const struct principal *principal, const char *uri,
					  void (*updated)(struct resource_watch *watch), void *data,
					  struct error *error);
void resource_watch_free(struct resource_watch *watch);
/* For a kind: something has changed; and: it will not change any more. */
void resource_changed(struct resource_watch *watch);
void resource_over(struct resource_watch *watch);
