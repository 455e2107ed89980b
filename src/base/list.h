/* Intrusive doubly linked list. A node is in one list at a time; an initialised node that is in
 * none points to itself, so that list_remove() is always allowed. */
#pragma once

#include <stdbool.h>

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

#define list_entry(node, type, member) container_of(node, type, member)
/* The body may remove (and free) the current entry, but no other. */
#define list_each(head, node)                                                                      \
	for (struct list *node = (head)->next, *_after = node->next; node != (head);               \
	     node = _after, _after = node->next)
