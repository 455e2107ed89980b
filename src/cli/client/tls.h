/* TLS below the command line's HTTP client. Blocking. */
#pragma once

#include "cli/client/client.h"

/* Performs the handshake on a connected socket. *ret_tls is freed by client_tls_end(); the caller
 * keeps the socket. */
NODISCARD int client_tls_begin(const struct client *client, int fd, void **ret_tls,
			       struct error *error);
/* Like send() and recv(), with errno. EINTR: no data yet, try again. */
ssize_t client_tls_send(void *tls, const void *data, size_t size);
ssize_t client_tls_receive(void *tls, void *data, size_t size);
/* True if there is input that poll() on the socket does not report. */
bool client_tls_has_input(void *tls);
/* Closes our sending side; receiving continues. */
void client_tls_close(void *tls);
/* NULL is allowed. */
void client_tls_end(void *tls);
/* True if the other end of this new connection speaks TLS. */
bool client_tls_is_spoken(int fd);
