/* See idempotency.h. Requests under way are only in memory: after a crash a half-made sandbox is
 * removed, and the same request may come again. Called by the edges, on the loop; a key costs a
 * read of the store and one write, a request without a key costs nothing. */
#include "core/account/idempotency.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "core/core_private.h"

#define KEPT (24 * 3600 * NSEC_PER_SEC)
#define PRUNE_EVERY (600 * NSEC_PER_SEC)

struct idempotent {
	struct list link; /* in core_private.requests */
	struct core *core;
	char workspace[IDEMPOTENCY_SPACE_MAX + 1];
	char key[IDEMPOTENCY_KEY_MAX + 1];
	char operation[32];
	uint8_t digest[REQUEST_DIGEST_SIZE];
	bool recorded;
};

static int key_check(const char *key, struct error *error)
{
	size_t length = strlen(key);
	bool printable = true;
	for (const char *at = key; *at; at++)
		printable &= *at > 0x20 && *at < 0x7f;
	if (length == 0 || length > IDEMPOTENCY_KEY_MAX || !printable)
		return error_set(error, ERROR_INVALID,
				 "an Idempotency-Key is 1 to %d printable ASCII characters",
				 IDEMPOTENCY_KEY_MAX);
	return 0;
}

static int request_digest(const char *operation, const void *what, size_t size,
			  uint8_t ret_digest[REQUEST_DIGEST_SIZE], struct error *error)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	bool done = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1 &&
		    EVP_DigestUpdate(context, operation, strlen(operation) + 1) == 1 &&
		    EVP_DigestUpdate(context, what, size) == 1 &&
		    EVP_DigestFinal_ex(context, ret_digest, NULL) == 1;
	EVP_MD_CTX_free(context);
	return done ? 0 : error_set(error, ERROR_INTERNAL, "SHA-256 failed");
}

static int key_mismatch(const char *key, struct error *error)
{
	return error_set(error, ERROR_IDEMPOTENCY_MISMATCH,
			 "the Idempotency-Key `%.64s` was used for another request", key);
}

static struct idempotent *request_find_under_way(struct core *core, const char *workspace,
						 const char *key)
{
	list_each (&core->private->requests, node) {
		struct idempotent *request = list_entry(node, struct idempotent, link);
		if (strcmp(request->key, key) == 0 && strcmp(request->workspace, workspace) == 0)
			return request;
	}
	return NULL;
}

static void requests_prune(struct core *core)
{
	struct error error;
	int64_t now = clock_boot();
	if (core->private->requests_prune_at > now)
		return;
	core->private->requests_prune_at = now + PRUNE_EVERY;
	if (store_request_prune(core->store, clock_wall() - KEPT, &error) < 0)
		log_warning("old requests cannot be removed: %s", error.message);
}

/* 1: found; 0: not found, or too old. */
static int request_find_stored(struct core *core, const char *workspace, const char *key,
			       const uint8_t wanted[REQUEST_DIGEST_SIZE],
			       struct request_row *ret_row, struct error *error)
{
	int found = store_request_get(core->store, workspace, key, ret_row, error);
	if (found <= 0)
		return found;
	if (ret_row->created_wall > clock_wall() - KEPT) {
		if (memcmp(ret_row->digest, wanted, REQUEST_DIGEST_SIZE) == 0)
			return 1;
		free(ret_row->answer);
		return key_mismatch(key, error);
	}
	free(ret_row->answer);
	return 0;
}

int idempotency_begin(struct core *core, const char *workspace, const char *key,
		      const char *operation, const void *what, size_t size,
		      struct idempotent **ret_request, struct request_row *ret_row,
		      struct error *error)
{
	uint8_t wanted[REQUEST_DIGEST_SIZE];
	if (key_check(key, error) < 0 || request_digest(operation, what, size, wanted, error) < 0)
		return -1;
	struct idempotent *other = request_find_under_way(core, workspace, key);
	if (other && memcmp(other->digest, wanted, sizeof(wanted)) != 0)
		return key_mismatch(key, error);
	if (other)
		return error_set(error, ERROR_IDEMPOTENCY_PENDING,
				 "the first request with the Idempotency-Key `%.64s` is under way",
				 key);
	requests_prune(core);
	int found = request_find_stored(core, workspace, key, wanted, ret_row, error);
	if (found != 0)
		return found;
	struct idempotent *request = calloc(1, sizeof(*request));
	if (!request)
		abort();
	request->core = core;
	memcpy(request->digest, wanted, sizeof(wanted));
	if (text_copy(request->workspace, sizeof(request->workspace), workspace) < 0 ||
	    text_copy(request->key, sizeof(request->key), key) < 0 ||
	    text_copy(request->operation, sizeof(request->operation), operation) < 0) {
		free(request);
		return error_set(error, ERROR_INTERNAL, "a request's names are too long");
	}
	list_append(&core->private->requests, &request->link);
	*ret_request = request;
	return 0;
}

int idempotency_record(struct idempotent *request, const struct id *sandbox, const struct id *exec,
		       const char *answer, size_t answer_size, struct error *error)
{
	struct request_row row = {
	    .workspace = request->workspace,
	    .key = request->key,
	    .operation = request->operation,
	    .created_wall = clock_wall(),
	};
	memcpy(row.digest, request->digest, sizeof(row.digest));
	if (sandbox)
		row.sandbox = *sandbox;
	if (exec)
		row.exec = *exec;
	if (answer && answer_size <= REQUEST_ANSWER_MAX) {
		row.answer = (char *)(uintptr_t)answer; /* only read */
		row.answer_size = answer_size;
	}
	if (store_request_put(request->core->store, &row, error) < 0)
		return -1;
	request->recorded = true;
	return 0;
}

void idempotency_forget(struct core *core, const char *workspace, const char *key)
{
	struct error error;
	if (core->store && store_request_delete(core->store, workspace, key, &error) < 0)
		log_warning("a request's key cannot be removed: %s", error.message);
}

void idempotency_end(struct idempotent *request, bool kept)
{
	if (!request)
		return;
	if (!kept && request->recorded)
		idempotency_forget(request->core, request->workspace, request->key);
	list_remove(&request->link);
	free(request);
}
