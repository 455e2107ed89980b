/* Translates OpenSandbox's notation for a machine: the name of an image to a template, quantities
 * to limits. Called by sandbox_create; pure. */
#include "mcp/dialects/opensandbox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "core/sandbox/template.h"

#define IMAGE_MAX 255

/* The images that a template can replace. tags: prefixes of accepted tags, up to the next character
 * that is no letter or digit; NULL: any tag. */
static const struct {
	const char *repository, *template;
	const char *tags[6];
} known[] = {
    {"python", "python-3.12", {"3.12", "3", "latest", "slim"}},
    {"node", "node-22", {"22", "lts", "latest", "jod"}},
    {"ubuntu", "ubuntu-24.04", {"24.04", "noble", "latest"}},
    {"debian", "base", {NULL}},
    {"alpine", "base", {NULL}},
    {"busybox", "base", {NULL}},
    {"postgres", "postgres-16", {"16", "latest"}},
    {"opensandbox/code-interpreter", "code-interpreter", {NULL}},
};

static bool tag_meant(const char *const tags[6], const char *tag)
{
	if (!tags[0] || !tag[0])
		return true;
	for (size_t i = 0; i < 6 && tags[i]; i++) {
		size_t length = strlen(tags[i]);
		if (strncmp(tag, tags[i], length) == 0 &&
		    (tag[length] == '\0' || tag[length] == '-' ||
		     (tag[length] == '.' && strchr(tags[i], '.'))))
			return true;
	}
	return false;
}

/* "docker.io/library/python" to "python": the registry does not matter here. */
static const char *image_without_registry(const char *image)
{
	const char *slash = strchr(image, '/');
	if (slash) {
		size_t length = (size_t)(slash - image);
		bool host = memchr(image, '.', length) || memchr(image, ':', length) ||
			    (length == 9 && strncmp(image, "localhost", 9) == 0);
		if (host)
			image = slash + 1;
	}
	return text_starts(image, "library/") ? image + strlen("library/") : image;
}

int opensandbox_image(const char *image, const char **ret_template, struct error *error)
{
	char name[IMAGE_MAX + 1];
	const struct template *template = template_find(image);
	if (template) {
		*ret_template = template->name;
		return 0;
	}
	const char *rest = image_without_registry(image);
	size_t length = strcspn(rest, ":@");
	const char *tag = rest[length] == ':' ? rest + length + 1 : "";
	/* An image that is pinned to a digest cannot be replaced. */
	bool pinned = strchr(rest, '@') != NULL;
	if (!pinned && length < sizeof(name)) {
		memcpy(name, rest, length);
		name[length] = '\0';
		for (size_t i = 0; i < ARRAY_SIZE(known); i++)
			if (strcmp(known[i].repository, name) == 0 &&
			    tag_meant(known[i].tags, tag)) {
				*ret_template = known[i].template;
				return 0;
			}
	}
	return error_set(error, ERROR_TEMPLATE_UNAVAILABLE,
			 "image `%.100s` is not available: this server has no images yet. Use a "
			 "template (host, python-3.12, node-22, ubuntu-24.04, base, "
			 "code-interpreter, agent, browser, postgres-16) or an image that stands "
			 "for one: python:3.12, node:22, ubuntu:24.04, debian, alpine, "
			 "postgres:16, opensandbox/code-interpreter",
			 image);
}

/* --- quantities --- */

/* "1", "0.5", "500m". */
static int resource_parse_cpu(const char *text, uint32_t *ret_millis, struct error *error)
{
	char *end;
	double value = strtod(text, &end);
	bool millis = strcmp(end, "m") == 0;
	if (end == text || (*end && !millis) || !isfinite(value) || value <= 0 ||
	    strspn(text, "0123456789.m") != strlen(text))
		return error_set(error, ERROR_INVALID,
				 "resource: `cpu` is `%.40s`; it must be like \"1\", \"0.5\" or "
				 "\"500m\"",
				 text);
	value = ceil(millis ? value : value * 1000);
	if (value < SANDBOX_CPU_MILLIS_MIN || value > SANDBOX_CPU_MILLIS_MAX)
		return error_set(error, ERROR_INVALID, "resource: `cpu` must be %um to %u",
				 SANDBOX_CPU_MILLIS_MIN, SANDBOX_CPU_MILLIS_MAX / 1000);
	*ret_millis = (uint32_t)value;
	return 0;
}

/* "512Mi", "2Gi", "1G", bytes. A thousand counts as 1024, so that the result is never smaller than
 * requested. */
static int resource_parse_size(const char *name, const char *text, uint64_t *ret_bytes,
			       struct error *error)
{
	char value[40] = "";
	size_t length = strlen(text);
	if (length + 2 < sizeof(value)) {
		memcpy(value, text, length);
		if (length > 0 && text[length - 1] == 'i')
			memcpy(value + length, "b", 2);
	}
	if (!value[0] || text_to_bytes(value, 1, ret_bytes) < 0 || *ret_bytes == 0)
		return error_set(error, ERROR_INVALID,
				 "resource: `%s` is `%.40s`; it must be like \"512Mi\" or \"2Gi\"",
				 name, text);
	return 0;
}

int opensandbox_resource(const struct config *config, const json_t *resource,
			 struct limits *ret_limits, struct error *error)
{
	const char *key;
	json_t *value;
	*ret_limits = (struct limits){0};
	if (!resource) {
		ret_limits->cpu_millis = MIN(1000u, config->maximum.cpu_millis);
		ret_limits->memory = MIN(2 * GIB, config->maximum.memory);
		return 0;
	}
	json_object_foreach((json_t *)resource, key, value)
	{
		const char *text = json_string_value(value);
		int result;
		if (!text)
			return error_set(error, ERROR_INVALID,
					 "resource: the value of `%.40s` must be a string", key);
		if (strcmp(key, "cpu") == 0)
			result = resource_parse_cpu(text, &ret_limits->cpu_millis, error);
		else if (strcmp(key, "memory") == 0)
			result = resource_parse_size(key, text, &ret_limits->memory, error);
		else if (strcmp(key, "disk") == 0 || strcmp(key, "ephemeral-storage") == 0)
			result = resource_parse_size(key, text, &ret_limits->disk, error);
		else
			return error_set(
			    error, ERROR_UNSUPPORTED,
			    "resource: `%.40s` cannot be had here; cpu, memory and disk "
			    "can",
			    key);
		if (result < 0)
			return -1;
	}
	return 0;
}
