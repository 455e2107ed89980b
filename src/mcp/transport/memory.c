/* See memory.h. Called by the transports and by requests, on the loop. */
#include "mcp/transport/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/text.h"
#include "core/core.h"
#include "mcp/transport/message.h"

struct account {
	struct list link;
	char workspace[WORKSPACE_MAX + 1];
	size_t messages; /* that are in it */
	size_t taken;
};

struct memory {
	unsigned references;
	char workspace[WORKSPACE_MAX + 1];
	struct account *account; /* NULL while it is small */
	size_t size;
};

static struct list accounts = {&accounts, &accounts};
static size_t all_taken;

static struct account *account_of(const char *workspace)
{
	list_each (&accounts, node) {
		struct account *account = list_entry(node, struct account, link);
		if (strcmp(account->workspace, workspace) == 0)
			return account;
	}
	struct account *account = calloc(1, sizeof(*account));
	if (!account)
		abort();
	(void)!text_copy(account->workspace, sizeof(account->workspace), workspace);
	list_append(&accounts, &account->link);
	return account;
}

struct memory *memory_new(const char *workspace)
{
	struct memory *memory = calloc(1, sizeof(*memory));
	if (!memory)
		abort();
	memory->references = 1;
	(void)!text_copy(memory->workspace, sizeof(memory->workspace), workspace);
	return memory;
}

struct memory *memory_hold(struct memory *memory)
{
	if (memory)
		memory->references++;
	return memory;
}

/* What a message of that size is counted as. */
static size_t counted(size_t size)
{
	return size > MEMORY_SMALL ? size : 0;
}

void memory_release(struct memory **memory)
{
	struct memory *gone = TAKE_PTR(*memory);
	if (!gone || --gone->references > 0)
		return;
	struct account *account = gone->account;
	if (account) {
		account->taken -= counted(gone->size);
		all_taken -= counted(gone->size);
		if (--account->messages == 0) {
			list_remove(&account->link);
			free(account);
		}
	}
	free(gone);
}

bool memory_grow(struct memory *memory, size_t more)
{
	size_t added = counted(memory->size + more) - counted(memory->size);
	if (added > 0 && !memory->account) {
		memory->account = account_of(memory->workspace);
		memory->account->messages++;
	}
	struct account *account = memory->account;
	if (added > 0) {
		if (account->taken + added > MEMORY_WORKSPACE_MAX || all_taken + added > MEMORY_MAX)
			return false;
		account->taken += added;
		all_taken += added;
	}
	memory->size += more;
	return true;
}

void memory_problem(struct mcp_problem *problem)
{
	problem_set(problem, MCP_INTERNAL_ERROR, 503,
		    "the messages under way take all the memory there is for them; try again when "
		    "some of them are answered");
	snprintf(problem->data, sizeof(problem->data), "{\"retryable\":true}");
}
