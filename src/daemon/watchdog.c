/* Measures each iteration of the loop: the time from one uv_prepare to the next, minus what
 * libuv waited in the kernel. Called by the daemon's main; costs two clock reads per iteration. */
#include "daemon/watchdog.h"

#include "base/log.h"
#include "base/macros.h"
#include "base/statistics.h"

/* At most one line per second: a slow disk would otherwise fill the log. */
#define QUIET_NS (1000ULL * 1000 * 1000)

static void on_watchdog_turn(uv_prepare_t *prepare)
{
	struct watchdog *watchdog = prepare->data;
	uint64_t now = uv_hrtime(), idle = uv_metrics_idle_time(prepare->loop);
	uint64_t took = now - watchdog->turn_began, waited = idle - watchdog->idle_before;
	uint64_t busy_ms = took > waited ? (took - waited) / 1000000 : 0;
	int64_t busy = took > waited ? (int64_t)(took - waited) : 0;
	histogram_add(&statistics.loop_turns, busy);
	statistics.loop_longest = MAX(statistics.loop_longest, busy);
	watchdog->turn_began = now;
	watchdog->idle_before = idle;
	const char *handler = *watchdog->handler;
	if (busy_ms <= WATCHDOG_LIMIT_MS)
		return;
	if (busy_ms <= WATCHDOG_WARNING_MS) {
		log_debug("a turn of the loop took %llu ms; last begun: %s",
			  (unsigned long long)busy_ms, handler ? handler : "nothing");
		return;
	}
	if (now < watchdog->quiet_until) {
		watchdog->suppressed++;
		return;
	}
	log_warning("a turn of the loop took %llu ms; last begun: %s (%u more since the last such "
		    "line)",
		    (unsigned long long)busy_ms, handler ? handler : "nothing",
		    watchdog->suppressed);
	watchdog->suppressed = 0;
	watchdog->quiet_until = now + QUIET_NS;
}

void watchdog_start(struct watchdog *watchdog, uv_loop_t *loop, const char *const *handler)
{
	watchdog->handler = handler;
	watchdog->turn_began = uv_hrtime();
	watchdog->idle_before = uv_metrics_idle_time(loop);
	uv_prepare_init(loop, &watchdog->prepare);
	watchdog->prepare.data = watchdog;
	uv_prepare_start(&watchdog->prepare, on_watchdog_turn);
	uv_unref((uv_handle_t *)&watchdog->prepare);
}

void watchdog_stop(struct watchdog *watchdog)
{
	uv_close((uv_handle_t *)&watchdog->prepare, NULL);
}
