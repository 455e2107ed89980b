/* A tree of the names of a TOML text. See toml_names.h. */
#include "cli/toml_names.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

/* Searched one by one: so many that it does not take long. */
#define NAMES_MAX 8192
#define TOO_MANY "more keys than are looked at here"

enum kind {
	KIND_IMPLICIT, /* a of [a.b]: may get a head of its own, and keys */
	KIND_HEAD,     /* has it */
	KIND_DOTTED,   /* a of a.b = 1 */
	KIND_ARRAY,    /* [[a]]: `last` is its last table */
	KIND_VALUE,
};

struct node {
	uint32_t parent, last;
	enum kind kind;
	size_t size;
	char *name; /* NULL: nobody can ask for it */
};

struct toml_names {
	struct node *nodes; /* the first is the top */
	uint32_t count;
	uint32_t section; /* the table that the last head has opened */
	uint32_t at;
};

static uint32_t add(struct toml_names *names, uint32_t parent, enum kind kind, const char *name,
		    size_t size)
{
	if (names->count == NAMES_MAX)
		return 0;
	char *copy = NULL;
	if (name) {
		copy = malloc(size + 1);
		if (!copy)
			abort();
		memcpy(copy, name, size);
	}
	names->nodes[names->count] = (struct node){parent, 0, kind, size, copy};
	return names->count++;
}

static uint32_t find(const struct toml_names *names, const char *name, size_t size)
{
	for (uint32_t i = 1; i < names->count; i++) {
		const struct node *node = &names->nodes[i];
		if (node->parent == names->at && node->name && node->size == size &&
		    memcmp(node->name, name, size) == 0)
			return i;
	}
	return 0;
}

struct toml_names *toml_names_new(void)
{
	struct toml_names *names = calloc(1, sizeof(*names));
	if (!names)
		abort();
	names->nodes = calloc(NAMES_MAX, sizeof(*names->nodes));
	if (!names->nodes)
		abort();
	names->count = 1;
	return names;
}

void toml_names_free(struct toml_names *names)
{
	if (!names)
		return;
	for (uint32_t i = 0; i < names->count; i++)
		free(names->nodes[i].name);
	free(names->nodes);
	free(names);
}

void toml_names_begin(struct toml_names *names, enum toml_end end)
{
	names->at = end == TOML_IS_VALUE ? names->section : 0;
}

const char *toml_names_pass(struct toml_names *names, enum toml_end end, const char *name,
			    size_t size)
{
	bool head = end != TOML_IS_VALUE;
	uint32_t child = find(names, name, size);
	if (child == 0) {
		child = add(names, names->at, head ? KIND_IMPLICIT : KIND_DOTTED, name, size);
		names->at = child;
		return child == 0 ? TOO_MANY : NULL;
	}
	struct node *node = &names->nodes[child];
	switch (node->kind) {
	case KIND_IMPLICIT:
		/* Keys make it a table that no head may open any more. */
		node->kind = head ? KIND_IMPLICIT : KIND_DOTTED;
		break;
	case KIND_DOTTED:
		break;
	case KIND_HEAD:
		if (!head)
			return "a key of a table that has a head of its own";
		break;
	case KIND_ARRAY:
		if (!head)
			return "a key of a table that has a head of its own";
		child = node->last;
		break;
	case KIND_VALUE:
		return "a table by the name of a value";
	}
	names->at = child;
	return NULL;
}

static const char *end_array(struct toml_names *names, uint32_t child, const char *name,
			     size_t size)
{
	if (child != 0 && names->nodes[child].kind != KIND_ARRAY)
		return "a table that is there already";
	if (child == 0)
		child = add(names, names->at, KIND_ARRAY, name, size);
	uint32_t element = child ? add(names, child, KIND_HEAD, NULL, 0) : 0;
	if (element == 0)
		return TOO_MANY;
	names->nodes[child].last = names->section = element;
	return NULL;
}

const char *toml_names_end(struct toml_names *names, enum toml_end end, const char *name,
			   size_t size)
{
	uint32_t child = find(names, name, size);
	if (end == TOML_IS_ARRAY)
		return end_array(names, child, name, size);
	if (end == TOML_IS_VALUE) {
		if (child != 0)
			return "a key that is there already";
		return add(names, names->at, KIND_VALUE, name, size) ? NULL : TOO_MANY;
	}
	if (child == 0)
		child = add(names, names->at, KIND_HEAD, name, size);
	else if (names->nodes[child].kind != KIND_IMPLICIT)
		return "a table that is there already";
	if (child == 0)
		return TOO_MANY;
	names->nodes[child].kind = KIND_HEAD;
	names->section = child;
	return NULL;
}

unsigned toml_names_inline(struct toml_names *names)
{
	return add(names, 0, KIND_VALUE, NULL, 0);
}

void toml_names_in(struct toml_names *names, unsigned place)
{
	names->at = place;
}
