/* The ids of tasks: made and checked. Called by tasks.c; costs a read of the secret. */
#include "mcp/tasks/id.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "core/account/mac.h"
#include "core/account/token.h"
#include "proto/codec.h"

#define BEGAN_AT (ID_LENGTH + 1)
#define BEGAN_DIGITS 11
#define MAX_AT (BEGAN_AT + BEGAN_DIGITS)
#define MAX_DIGITS 6
#define MAC_AT (MAX_AT + MAX_DIGITS + 1)

int task_id_make(struct core *core, const struct principal *principal, const struct task_call *call,
		 char ret_id[TASK_ID_SIZE], struct error *error)
{
	uint8_t room[512], mac[MAC_SIZE];
	struct writer writer = writer_on(room, sizeof(room));
	int size = snprintf(ret_id, TASK_ID_SIZE, "%s-%0*llx%0*x-", call->exec.text, BEGAN_DIGITS,
			    (unsigned long long)call->began_ms, MAX_DIGITS, call->output_max);
	write_text(&writer, "caisson mcp task 2");
	principal_write(&writer, principal);
	write_text(&writer, ret_id);
	int64_t used = writer_finish(&writer);
	if (used < 0 || size != MAC_AT)
		return error_set(error, ERROR_INTERNAL, "a task's id has no room");
	if (core_mac(core, "mcp-task", room, (size_t)used, mac, error) < 0)
		return -1;
	base64url_encode_32(mac, ret_id + MAC_AT);
	return 0;
}

/* Text that is not a number gives a number that makes another id. */
static uint64_t task_id_number_at(const char *digits, size_t count)
{
	char text[16] = "";
	memcpy(text, digits, count);
	return strtoull(text, NULL, 16);
}

bool task_id_check(struct core *core, const struct principal *principal, const char *id,
		   struct task_call *ret_call)
{
	char text[ID_LENGTH + 1] = "", expected[TASK_ID_SIZE];
	struct error error;
	if (strlen(id) != TASK_ID_SIZE - 1)
		return false;
	memcpy(text, id, ID_LENGTH);
	ret_call->began_ms = task_id_number_at(id + BEGAN_AT, BEGAN_DIGITS);
	ret_call->output_max = (uint32_t)task_id_number_at(id + MAX_AT, MAX_DIGITS);
	return id_parse(text, &ret_call->exec) == 0 &&
	       task_id_make(core, principal, ret_call, expected, &error) == 0 &&
	       CRYPTO_memcmp(id, expected, TASK_ID_SIZE - 1) == 0;
}
