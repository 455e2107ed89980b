/* Intrusive doubly linked list. A node is in one list at a time; an initialised node that is in
 * none points to itself, so that list_remove() is always allowed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/macros.h"

struct list {
	struct list *next, *previous;
};

static inline void list_init(struct list *list)
{
	list->next = list->previous = list;
}

static inline bool list_empty(const struct list *list)
{
	return list->next == list;
}

static inline void list_append(struct list *list, struct list *node)
{
	node->previous = list->previous;
	node->next = list;
	list->previous->next = node;
	list->previous = node;
}

static inline void list_remove(struct list *node)
{
	node->previous->next = node->next;
	node->next->previous = node->previous;
	list_init(node);
}

static inline size_t list_length(const struct list *list)
{
	size_t length = 0;
	for (const struct list *node = list->next; node != list; node = node->next)
		length++;
	return length;
}

/* Moves all entries to *ret_taken, in their order. A loop over those ends even if it adds new ones
 * to the list. */
static inline void list_take_all(struct list *list, struct list *ret_taken)
{
	list_init(ret_taken);
	while (!list_empty(list)) {
		struct list *node = list->next;
		list_remove(node);
		list_append(ret_taken, node);
	}
}

#define list_entry(node, type, member) container_of(node, type, member)
/* The body may remove (and free) the current entry, but no other. */
#define list_each(head, node)                                                                      \
	for (struct list *node = (head)->next, *_after = node->next; node != (head);               \
	     node = _after, _after = node->next)
