/* Private to the dialect of OpenSandbox: its tools, and its presentation of a sandbox. */
#pragma once

#include "mcp/dialects/dialect.h"

/* Keys of a sandbox's metadata with this prefix are the dialect's own: they store what the client
 * requested, to be shown again. OpenSandbox also hides this prefix from its users. */
#define OPENSANDBOX_PREFIX "opensandbox.io/"
#define OPENSANDBOX_IMAGE OPENSANDBOX_PREFIX "image"
#define OPENSANDBOX_ENTRYPOINT OPENSANDBOX_PREFIX "entrypoint"

/* One object: SandboxInfo. */
void opensandbox_put_info(struct json_writer *writer, const char *key,
			  const struct sandbox_row *row);
/* {sandbox_id, info}. */
void opensandbox_reply_info(struct mcp_request *request, const struct sandbox *sandbox);
const char *opensandbox_state(const struct sandbox_row *row);

/* The template for an image; TEMPLATE_UNAVAILABLE lists the known images. */
NODISCARD int opensandbox_image(const char *image, const char **ret_template, struct error *error);
/* {"cpu": "500m", "memory": "2Gi"} to limits; NULL: OpenSandbox's defaults, as far as this host
 * allows them. */
NODISCARD int opensandbox_resource(const struct config *config, const json_t *resource,
				   struct limits *ret_limits, struct error *error);

/* opensandbox_create.c */
void opensandbox_create(struct mcp_request *request, const json_t *arguments);
/* opensandbox_sandbox.c */
void opensandbox_connect(struct mcp_request *request, const json_t *arguments);
void opensandbox_kill(struct mcp_request *request, const json_t *arguments);
void opensandbox_get_info(struct mcp_request *request, const json_t *arguments);
void opensandbox_renew(struct mcp_request *request, const json_t *arguments);
void opensandbox_metrics(struct mcp_request *request, const json_t *arguments);
void opensandbox_healthcheck(struct mcp_request *request, const json_t *arguments);
void opensandbox_endpoint(struct mcp_request *request, const json_t *arguments);
/* opensandbox_info.c */
void opensandbox_list(struct mcp_request *request, const json_t *arguments);
/* opensandbox_command.c */
void opensandbox_run(struct mcp_request *request, const json_t *arguments);
void opensandbox_interrupt(struct mcp_request *request, const json_t *arguments);
/* opensandbox_file.c */
void opensandbox_read(struct mcp_request *request, const json_t *arguments);
void opensandbox_write(struct mcp_request *request, const json_t *arguments);
void opensandbox_search(struct mcp_request *request, const json_t *arguments);
void opensandbox_replace(struct mcp_request *request, const json_t *arguments);
/* opensandbox_change.c */
void opensandbox_delete(struct mcp_request *request, const json_t *arguments);
void opensandbox_make_directories(struct mcp_request *request, const json_t *arguments);
void opensandbox_delete_directories(struct mcp_request *request, const json_t *arguments);
void opensandbox_move(struct mcp_request *request, const json_t *arguments);

/* Called before the arguments of a file tool are read: replaces a leading `~` of its paths by the
 * home of the sandbox's user, as OpenSandbox does. */
void opensandbox_expand_home(const json_t *arguments);
/* The maximum of paths or entries in one call. */
#define OPENSANDBOX_ENTRIES_MAX 1000
/* 755 for 0755: octal digits written as a decimal number. */
NODISCARD int opensandbox_mode(uint64_t digits, uint32_t *ret_mode, struct error *error);
/* "owner:group" of the two, either of which may be NULL. */
#define OPENSANDBOX_OWNER_SIZE 66
NODISCARD int opensandbox_owner(const char *owner, const char *group,
				char to[OPENSANDBOX_OWNER_SIZE], struct error *error);
