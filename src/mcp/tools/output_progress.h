/* What a command prints, as progress of the request that waits for it: as it comes, and what may
 * not be sent yet a little later. */
#pragma once

#include "base/id.h"
#include "mcp/tools/output.h"

struct follow {
	struct output_follower follower;
	struct id sandbox, exec; /* whose output it is */
	struct mcp_request *request;
	struct alarm *alarm;
};

/* Something was printed. */
void follow_changed(struct follow *follow, struct mcp_request *request, struct exec *exec);
/* Before the follow's memory is gone; again does no harm. */
void follow_stop(struct follow *follow);
