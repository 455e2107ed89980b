/* The fake init's side that only fake_host.c calls. */
#pragma once

#include "fake_host.h"

void fake_init_reset(struct fake_init *init, struct fake_host *host, const struct id *id);
/* Listens on its socket, as after a boot. */
void fake_init_listen(struct fake_init *init);
/* Its process is gone, quietly. */
void fake_init_stop(struct fake_init *init);
