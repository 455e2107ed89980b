/* The input of a create, for each surface that creates: POST /v1/sandboxes, the sandbox's part of
 * POST /v1/run, create_sandbox of MCP. The domain checks the limits of this host and its
 * configuration. */
#pragma once

#include "core/sandbox/sandbox.h"
#include "edge/fields/fields.h"

#define REGION_LOCAL "local" /* the only region of a single host */
#define TEMPLATE_NAME_MAX 128
/* The JSON schema of a name and of labels, beyond their type. */
#define NAME_SHAPE "\"type\":\"string\"," NAME_PATTERN
#define NAME_PATTERN "\"pattern\":\"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$\""
#define LABELS_SHAPE LABELS_SHAPE_OF("\"string\"")
#define LABELS_SHAPE_OF(types)                                                                     \
	"\"type\":\"object\",\"maxProperties\":32,\"propertyNames\":{\"pattern\":"                 \
	"\"^[a-zA-Z0-9._/-]{1,63}$\"},\"additionalProperties\":{\"type\":" types                   \
	",\"maxLength\":63}"

/* Fields of features that do not exist yet: only an empty value is accepted. */
#define SANDBOX_UNSUPPORTED 5

/* Zeroed before; texts are borrowed from the JSON. */
struct sandbox_fields {
	struct sandbox_spec spec; /* complete after sandbox_fields_check() */
	const char *isolation, *size, *network, *region;
	uint64_t disk_mb, disk_gb; /* both in bytes */
	uint32_t ttl_seconds;
	bool idle_set, ttl_set;
	json_t *env, *metadata, *labels, *mounts; /* the surface reads `mounts` */
	json_t *unsupported[SANDBOX_UNSUPPORTED];
	struct pair *environment_pairs, *metadata_pairs, *label_pairs;
};

extern const struct field sandbox_create_fields[];

/* One of `mounts`. */
struct mount_fields {
	const char *path, *mode, *host_path;
};
extern const struct field mount_fields[];

/* Checks the combinations of the fields. For MCP an environment may contain numbers and
 * booleans. */
NODISCARD int sandbox_fields_check(struct sandbox_fields *fields, enum field_form form,
				   const struct config *config, struct error *error);
void sandbox_fields_done(struct sandbox_fields *fields);

/* What can be changed of one: PATCH /v1/sandboxes/{sandbox}, extend_sandbox. Zeroed before. */
struct sandbox_change_fields {
	struct sandbox_change change; /* whole after sandbox_change_check() */
	json_t *name, *metadata, *labels, *disk;
	const char *size;
	uint32_t ttl_seconds;
	bool ttl_set, disk_set;
	struct pair *metadata_pairs, *label_pairs;
};
extern const struct field sandbox_change_fields[];
NODISCARD int sandbox_change_check(struct sandbox_change_fields *fields, struct error *error);
void sandbox_change_done(struct sandbox_change_fields *fields);

/* Sets cpu and memory by the name of a size (one of SANDBOX_SIZE_NAMES), unless given as numbers.
 * config: NULL, or the size must fit its maximum. */
NODISCARD int sandbox_size_fill(const char *size, const struct config *config,
				struct limits *limits, struct error *error);

/* Maxima of this host, for rows of a table. */
uint64_t sandbox_memory_mb_here(const struct config *config);
uint64_t sandbox_disk_mb_here(const struct config *config);
uint64_t sandbox_timeout_here(const struct config *config);
