/* The index of routes: a tree of path segments, whose edges are in one hash table, so that the time
 * for finding a path depends on its length and not on the number of routes. Built once by
 * edge_start(), used by the router for every request; allocates only at the start, never blocks. */
#include "edge/route_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

#define METHODS_MAX 8 /* of one path; CALL_ALLOW_MAX bounds them too */

struct node {
	const char *segment; /* in a pattern; not terminated */
	size_t size;
	uint32_t parent;
	uint32_t any; /* the child that takes any segment; 0: none */
	const struct route *routes[METHODS_MAX];
	size_t route_count;
};

static struct {
	struct node *nodes; /* the first is the root */
	uint32_t node_count;
	uint32_t *slots; /* of edges by word; 0: free */
	uint32_t mask;
} tree;

static uint32_t segment_hash(uint32_t parent, const char *segment, size_t size)
{
	uint32_t value = 2166136261u ^ parent;
	for (size_t i = 0; i < size; i++)
		value = (value ^ (unsigned char)segment[i]) * 16777619u;
	return value ^ value >> 15;
}

/* The slot of an edge, or the free one where it belongs. */
static uint32_t *edge_slot(uint32_t parent, const char *segment, size_t size)
{
	for (uint32_t at = segment_hash(parent, segment, size);; at++) {
		uint32_t *slot = &tree.slots[at & tree.mask];
		const struct node *node = &tree.nodes[*slot];
		if (*slot == 0 || (node->parent == parent && node->size == size &&
				   memcmp(node->segment, segment, size) == 0))
			return slot;
	}
}

static uint32_t node_add(uint32_t parent, const char *segment, size_t size)
{
	uint32_t *place =
	    segment[0] == '{' ? &tree.nodes[parent].any : edge_slot(parent, segment, size);
	if (*place)
		return *place;
	*place = tree.node_count;
	tree.nodes[tree.node_count] =
	    (struct node){.segment = segment, .size = size, .parent = parent};
	return tree.node_count++;
}

static void route_add(const struct route *route)
{
	uint32_t at = 0;
	for (const char *segment = route->pattern; *segment == '/';) {
		size_t size = strcspn(++segment, "/");
		at = node_add(at, segment, size);
		segment += size;
	}
	struct node *node = &tree.nodes[at];
	if (node->route_count == METHODS_MAX)
		abort();
	node->routes[node->route_count++] = route;
}

void route_index_build(const struct route *const *tables)
{
	size_t segments = 1, slots = 64;
	for (const struct route *const *table = tables; *table; table++)
		for (const struct route *route = *table; route->method; route++)
			for (const char *at = route->pattern; *at; at++)
				segments += *at == '/';
	while (slots < segments * 2)
		slots *= 2;
	free(tree.nodes);
	free(tree.slots);
	tree.nodes = calloc(segments, sizeof(*tree.nodes));
	tree.slots = calloc(slots, sizeof(*tree.slots));
	if (!tree.nodes || !tree.slots)
		abort();
	tree.node_count = 1;
	tree.mask = (uint32_t)slots - 1;
	for (const struct route *const *table = tables; *table; table++)
		for (const struct route *route = *table; route->method; route++)
			route_add(route);
}

struct route_search {
	const char *method;
	bool head;
	char (*parameters)[CALL_PARAMETER_MAX];
	char *allow;
};

static const struct route *node_route_by_method(const struct node *node,
						const struct route_search *search)
{
	for (size_t i = 0; i < node->route_count; i++) {
		const struct route *route = node->routes[i];
		if (strcmp(route->method, search->method) == 0 ||
		    (search->head && strcmp(route->method, "GET") == 0))
			return route;
		/* No method's name is part of another's. routes_check() has checked that all
		 * fit. */
		if (strstr(search->allow, route->method))
			continue;
		size_t used = strlen(search->allow);
		snprintf(search->allow + used, CALL_ALLOW_MAX - used, "%s%s", used ? ", " : "",
			 route->method);
	}
	return NULL;
}

/* `path` begins with the '/' after the node's own segment. The recursion is bounded by the longest
 * pattern. */
static const struct route *node_find_route(uint32_t at, const char *path, size_t parameter,
					   const struct route_search *search)
{
	const struct node *node = &tree.nodes[at];
	if (*path != '/')
		return node_route_by_method(node, search);
	size_t size = strcspn(++path, "/");
	uint32_t child = *edge_slot(at, path, size);
	const struct route *route =
	    child ? node_find_route(child, path + size, parameter, search) : NULL;
	if (route || !node->any || size == 0 || size >= CALL_PARAMETER_MAX)
		return route;
	memcpy(search->parameters[parameter], path, size);
	search->parameters[parameter][size] = '\0';
	return node_find_route(node->any, path + size, parameter + 1, search);
}

const struct route *route_index_find(const char *method, const char *path,
				     char parameters[CALL_PARAMETERS_MAX][CALL_PARAMETER_MAX],
				     char allow[CALL_ALLOW_MAX])
{
	struct route_search search = {.method = method,
				      .head = strcmp(method, "HEAD") == 0,
				      .parameters = parameters,
				      .allow = allow};
	return node_find_route(0, path, 0, &search);
}
