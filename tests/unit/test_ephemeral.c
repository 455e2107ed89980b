/* Sandboxes that end with a client's connection: by what is held, what was released how, and when.
 */
#include "core/sandbox/ephemeral.h"

#include <string.h>

#include "base/clock.h"
#include "core/core_private.h"
#include "fake_host.h"
#include "test.h"

TEST_MAIN

#define GRACE (EPHEMERAL_GRACE_SECONDS * NSEC_PER_SEC)

static struct fake_host *started(void)
{
	struct fake_host *host = fake_host_new();
	fake_start(host);
	return host;
}

static struct sandbox *make(struct fake_host *host, const struct id *connection)
{
	struct ephemeral_labels room;
	struct pair mine[] = {{"mine", "kept"}, {EPHEMERAL_LABEL, "somebodyelses000"}};
	struct sandbox_spec spec = {.labels = mine, .label_count = ARRAY_SIZE(mine)};
	ephemeral_mark(&spec, connection, &room);
	struct outcome outcome = {0};
	struct error error;
	CHECK_INT(
	    sandbox_create(&host->core, &fake_principal, &spec, outcome_created, &outcome, &error),
	    0);
	CHECK(fake_until(host, &outcome.done));
	if (!outcome.sandbox)
		abort();
	return outcome.sandbox;
}

static bool ending(const struct sandbox *sandbox)
{
	return sandbox->row.state == SANDBOX_DELETING || sandbox->row.state == SANDBOX_ENDED;
}

TEST(ephemeral_mark_keeps_other_labels)
{
	struct fake_host *host = started();
	struct id connection = id_new();
	struct sandbox *sandbox = make(host, &connection);
	const struct sandbox_row *row = &sandbox->row;
	CHECK_TEXT(packed_value(row->labels, row->labels_size, "mine"), "kept");
	/* Who sees the label does not know the id. */
	CHECK_TEXT(packed_value(row->labels, row->labels_size, EPHEMERAL_LABEL),
		   ephemeral_name(&fake_principal, &connection).text);
	CHECK(
	    !strstr(packed_value(row->labels, row->labels_size, EPHEMERAL_LABEL), connection.text));
	fake_stop(host);
	fake_host_free(host);
}

TEST(ephemeral_gone_client)
{
	struct fake_host *host = started();
	struct id connection = id_new(), other = id_new();
	struct ephemeral_hold hold, again, others;
	ephemeral_hold(&host->core, &fake_principal, &connection, &hold);
	ephemeral_hold(&host->core, &fake_principal, &other, &others);
	struct sandbox *sandbox = make(host, &connection), *kept = make(host, &other);
	/* It has come back before the old connection was seen to end. */
	ephemeral_hold(&host->core, &fake_principal, &connection, &again);
	ephemeral_release(&hold, true);
	CHECK(!ending(sandbox));
	ephemeral_release(&again, true);
	CHECK(ending(sandbox));
	CHECK(!ending(kept));
	ephemeral_release(&again, true);
	ephemeral_release(&others, false);
	CHECK(!ending(kept));
	fake_stop(host);
	fake_host_free(host);
}

TEST(ephemeral_lost_client_may_come_back)
{
	struct fake_host *host = started();
	struct id connection = id_new();
	struct ephemeral_hold hold;
	ephemeral_hold(&host->core, &fake_principal, &connection, &hold);
	struct sandbox *sandbox = make(host, &connection);
	int64_t now = clock_boot();
	CHECK(ephemeral_check(sandbox, now + 10 * GRACE) == INT64_MAX);
	ephemeral_release(&hold, false);
	CHECK(ephemeral_check(sandbox, now + GRACE / 2) != INT64_MAX);
	ephemeral_hold(&host->core, &fake_principal, &connection, &hold);
	CHECK(ephemeral_check(sandbox, now + 10 * GRACE) == INT64_MAX);
	CHECK(!ending(sandbox));
	ephemeral_release(&hold, false);
	ephemeral_check(sandbox, clock_boot() + 2 * GRACE);
	CHECK(ending(sandbox));
	fake_stop(host);
	fake_host_free(host);
}

/* What the next daemon knows is the label alone. */
TEST(ephemeral_after_a_restart)
{
	struct fake_host *host = started();
	struct id connection = id_new(), id = make(host, &connection)->row.id;
	fake_stop(host);
	fake_start(host);
	struct sandbox *sandbox = sandbox_by_id(&host->core, &id);
	CHECK(sandbox && !ending(sandbox));
	int64_t now = clock_boot();
	CHECK(ephemeral_check(sandbox, now + GRACE / 2) != INT64_MAX);
	CHECK(!ending(sandbox));
	ephemeral_check(sandbox, now + 2 * GRACE);
	CHECK(ending(sandbox));
	fake_stop(host);
	fake_host_free(host);
}

/* Another workspace's connection of that id holds nothing of ours. */
TEST(ephemeral_of_another_workspace)
{
	struct fake_host *host = started();
	struct principal stranger = {.workspace = "other"};
	struct id connection = id_new();
	struct ephemeral_hold hold, mine;
	ephemeral_hold(&host->core, &stranger, &connection, &hold);
	ephemeral_hold(&host->core, &fake_principal, &connection, &mine);
	struct sandbox *sandbox = make(host, &connection);
	ephemeral_release(&hold, true);
	CHECK(!ending(sandbox));
	ephemeral_hold(&host->core, &stranger, &connection, &hold);
	ephemeral_release(&mine, true);
	CHECK(ending(sandbox));
	ephemeral_release(&hold, true);
	fake_stop(host);
	fake_host_free(host);
}

/* Nor does another's of the same workspace, by whatever it has seen. */
TEST(ephemeral_of_another_principal)
{
	struct fake_host *host = started();
	struct principal stranger = fake_principal;
	struct id connection = id_new();
	struct ephemeral_hold hold, mine;
	stranger.local = false;
	stranger.token = id_new();
	ephemeral_hold(&host->core, &fake_principal, &connection, &mine);
	ephemeral_hold(&host->core, &stranger, &connection, &hold);
	struct sandbox *sandbox = make(host, &connection);
	ephemeral_release(&mine, false);
	CHECK(ephemeral_check(sandbox, clock_boot()) != INT64_MAX);
	ephemeral_release(&hold, true);
	CHECK(!ending(sandbox));
	ephemeral_hold(&host->core, &fake_principal, &connection, &mine);
	CHECK(ephemeral_check(sandbox, clock_boot()) == INT64_MAX);
	ephemeral_release(&mine, true);
	CHECK(ending(sandbox));
	fake_stop(host);
	fake_host_free(host);
}

/* A client that goes while its sandbox is being made: the init that answers then changes nothing.
 */
TEST(ephemeral_ended_while_it_connects)
{
	struct fake_host *host = started();
	struct ephemeral_labels room;
	struct ephemeral_hold hold;
	struct id connection = id_new(), id;
	struct sandbox_spec spec = {0};
	struct outcome outcome = {0};
	struct error error;
	ephemeral_hold(&host->core, &fake_principal, &connection, &hold);
	ephemeral_mark(&spec, &connection, &room);
	CHECK_INT(
	    sandbox_create(&host->core, &fake_principal, &spec, outcome_created, &outcome, &error),
	    0);
	id = list_entry(host->core.sandboxes.next, struct sandbox, link)->row.id;
	while (!fake_init_of(host, &id))
		uv_run(host->loop, UV_RUN_ONCE);
	fake_init_of(host, &id)->deaf = true;
	fake_turn(host, 50);
	struct sandbox *sandbox = sandbox_by_id(&host->core, &id);
	CHECK_INT(sandbox->row.state, SANDBOX_CREATING);
	host->hold_type = SPAWN_DESTROY;
	ephemeral_release(&hold, true);
	fake_init_of(host, &id)->deaf = false;
	fake_turn(host, 50);
	CHECK_INT(sandbox->row.state, SANDBOX_DELETING);
	fake_release(host);
	CHECK(fake_until_count(host, 0));
	CHECK(outcome.done && !outcome.sandbox);
	fake_stop(host);
	fake_host_free(host);
}
