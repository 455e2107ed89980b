/* Signed URLs of files: POST .../files/sign makes one, GET and PUT /v1/signed/{sandbox} serve them
 * without any other authorization. A browser gets a sandbox's content under this API's origin here:
 * so it is always a download, is never sniffed, and may not run anything. Nothing blocks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/file/call.h"
#include "api/file/files.h"
#include "api/routes.h"
#include "base/clock.h"
#include "base/text.h"
#include "core/activity/activity.h"
#include "core/account/signed_url.h"

/* --- making one --- */

static void put_url(struct call *call, const struct signed_url *url, const char *signature,
		    struct buffer *buffer)
{
	char server[SERVER_URL_MAX];
	call_server_url(call, server);
	int result = buffer_append_text(buffer, server);
	if (result < 0)
		abort();
	signed_url_append(url, signature, buffer);
}

static void answer_signed(struct call *call, const struct signed_url *url, const char *signature)
{
	DONE_BUFFER struct buffer text = BUFFER(64 * KIB);
	struct buffer buffer = BUFFER(128 * KIB);
	struct json_writer writer = json_writer_on(&buffer);
	put_url(call, url, signature, &text);
	put_object(&writer, NULL);
	put_text(&writer, "url", buffer_text(&text));
	put_text(&writer, "method", url->write ? "PUT" : "GET");
	put_bytes(&writer, "path", url->path, strlen(url->path));
	put_time(&writer, "expires_at", (int64_t)url->expires * NSEC_PER_SEC);
	if (url->max_bytes)
		put_uint(&writer, "max_bytes", url->max_bytes);
	put_object_end(&writer);
	reply_json(call, 200, &writer);
}

struct sign {
	struct signed_url url;
	const char *method;
	uint64_t seconds;
};

static const struct field sign_fields[] = {
    {"path", FIELD_TEXT_AT(struct sign, url.path), FIELD_REQUIRED, 1, GUEST_PATH_MAX - 1},
    {"method", FIELD_TEXT_AT(struct sign, method), FIELD_WORDS_TOLD, .words = "GET,PUT",
     .rest = "Default: GET."},
    {"expires_seconds", FIELD_UINT_AT(struct sign, seconds), .min = 1, .max = SIGNED_SECONDS_MAX,
     .fallback = SIGNED_SECONDS_DEFAULT, .rest = "Default: 3600."},
    {"max_bytes", FIELD_UINT_AT(struct sign, url.max_bytes), .min = 1, .max = INT64_MAX,
     .shape = "\"type\":\"integer\",\"minimum\":1",
     .rest = "The most that may be written; with PUT only."},
    {"user", FIELD_TEXT_AT(struct sign, url.user), .max = 63},
    {0},
};

static void sign_post(struct call *call)
{
	struct sign sign = {.url.user = "", .method = "GET"};
	struct signed_url *url = &sign.url;
	char signature[SIGNATURE_SIZE];
	struct error error;
	int result = call_fields(call, &sign, &error);
	struct sandbox *sandbox = result < 0 ? NULL : call_sandbox(call);
	if (result == 0 && !sandbox)
		return;
	url->write = strcmp(sign.method, "PUT") == 0;
	if (result == 0 && !url->write && strcmp(sign.method, "GET") != 0)
		result =
		    error_set(&error, ERROR_INVALID, "field `method` must be \"GET\" or \"PUT\"");
	if (result == 0 && url->max_bytes && !url->write)
		result =
		    error_set(&error, ERROR_INVALID, "field `max_bytes` is for a URL to write to");
	if (result == 0)
		result = token_admit(&call->principal, url->write ? SCOPE_WRITE : SCOPE_READ, false,
				     &error);
	url->sandbox = call->sandbox;
	url->token = call->principal.token;
	url->expires = (uint64_t)(clock_wall() / NSEC_PER_SEC) + sign.seconds;
	if (result == 0)
		result =
		    signed_url_sign(call->core, sandbox->row.workspace, url, signature, &error);
	if (result < 0) {
		reply_error(call, &error);
		return;
	}
	char until[CLOCK_TEXT_SIZE];
	clock_text((int64_t)url->expires * NSEC_PER_SEC, until);
	ACTIVITY(sandbox, ACTIVITY_FILE_URL_SIGNED, &call->principal, NULL, {"path", url->path},
		 {"method", sign.method}, {"expires_at", until});
	answer_signed(call, url, signature);
}

/* --- serving one --- */

struct signed_query {
	struct signed_url url;
	const char *by, *signature;
};

/* The parser takes longer texts than a valid URL has: they are refused as any other that is not
 * ours. */
#define TEXT_OF(least, most)                                                                       \
	.shape = "\"type\":\"string\",\"minLength\":" #least ",\"maxLength\":" #most

static const struct field signed_query[] = {
    {"path", FIELD_TEXT_AT(struct signed_query, url.path), FIELD_REQUIRED, 1, FILE_PATH_MAX},
    {"user", FIELD_TEXT_AT(struct signed_query, url.user), .max = 255, TEXT_OF(0, 63)},
    {"by", FIELD_TEXT_AT(struct signed_query, by), .max = 255, TEXT_OF(16, 16)},
    {"signature", FIELD_TEXT_AT(struct signed_query, signature), FIELD_REQUIRED, 1, 511,
     TEXT_OF(43, 43)},
    {"max_bytes", FIELD_UINT_AT(struct signed_query, url.max_bytes), .min = 1},
    {"expires", FIELD_UINT_AT(struct signed_query, url.expires), FIELD_REQUIRED_TOLD, .min = 1},
    {0},
};

/* Checks everything in the URL; -1 with an error. Then the call acts for the URL's maker. */
static int signed_call_admit(struct call *call, bool write, struct signed_url *url,
			     struct error *error)
{
	struct signed_query query = {.url = {.write = write, .user = ""}};
	struct sandbox *sandbox;
	if (call_query(call, &query, error) < 0)
		return -1;
	*url = query.url;
	if (id_parse(call->parameters[0], &url->sandbox) < 0 ||
	    (query.by && id_parse(query.by, &url->token) < 0))
		return error_set(error, ERROR_URL_INVALID, "this URL is not valid");
	if (signed_url_check(call->core, url, query.signature, &call->principal, &sandbox, error) <
	    0)
		return -1;
	call->sandbox = sandbox->row.id;
	/* A transfer under way ends with the URL, or with its maker's token. */
	call_watch_token(call, (int64_t)MIN(url->expires, INT64_MAX / NSEC_PER_SEC) * NSEC_PER_SEC);
	return 0;
}

static void download_name(const char *path, char *text, size_t size)
{
	DONE_BUFFER struct buffer name = BUFFER(2 * KIB);
	const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	if (strlen(base) <= 255)
		signed_url_escape(&name, base);
	if (name.size == 0 ||
	    text_format(text, size, "attachment; filename*=UTF-8''%s", buffer_text(&name)) < 0)
		snprintf(text, size, "attachment");
}

static void signed_get(struct call *call)
{
	struct signed_url url;
	struct error error;
	if (signed_call_admit(call, false, &url, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	struct file_call *file = file_get_new(call);
	download_name(url.path, file->disposition, sizeof(file->disposition));
	const struct http_header safe[] = {
	    {"Content-Disposition", file->disposition},
	    {"X-Content-Type-Options", "nosniff"},
	    {"Content-Security-Policy", "sandbox; default-src 'none'"},
	    {"Cache-Control", "private, no-store"},
	    {"Referrer-Policy", "no-referrer"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(safe); i++)
		file->headers[file->header_count++] = safe[i];
	file->only_file = true;
	file->path = url.path;
	file->user = url.user;
	if (file_query_take(file))
		file_get_begin(file);
}

static void signed_put(struct call *call)
{
	struct signed_url url;
	struct error error;
	if (signed_call_admit(call, true, &url, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	struct file_call *file = file_put_new(call);
	file->path = url.path;
	file->user = url.user;
	file->request.flags = FILE_PARENTS;
	file->body_max = url.max_bytes;
	if (file_query_take(file))
		file_put_begin(file);
}

const struct route signed_routes[] = {
    {"POST", SB "/files/sign", READ, ROUTE_SANDBOX | ROUTE_JSON, sign_post, .body = sign_fields},
    {"GET", "/v1/signed/{sandbox}", READ, ROUTE_OPEN, signed_get, signed_query},
    {"PUT", "/v1/signed/{sandbox}", WRITE, ROUTE_OPEN, signed_put, signed_query},
    {0},
};
