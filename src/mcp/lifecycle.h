/* The methods with which client and server introduce themselves (lifecycle.c). */
#pragma once

#include "mcp/request.h"

void server_initialize(struct mcp_request *request);
void server_ping(struct mcp_request *request);
void server_discover(struct mcp_request *request);
void logging_set_level(struct mcp_request *request);
/* Writes the members of initialize's result, for a face that adds to them. */
void put_initialized(struct mcp_request *request, struct json_writer *writer);
