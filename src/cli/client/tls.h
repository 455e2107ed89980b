/* TLS below the command line's HTTP client. Blocking. */
#pragma once

#include "cli/client/client.h"

/* The handshake on a connected socket; *ret_tls is ended by client_tls_end(), the socket stays the
 * caller's. */
NODISCARD int client_tls_begin(const struct client *client, int fd, void **ret_tls,
			       struct error *error);
/* Like send() and recv(), with errno; EINTR: nothing came, try again. */
ssize_t client_tls_send(void *tls, const void *data, size_t size);
ssize_t client_tls_receive(void *tls, void *data, size_t size);
/* There is input that poll() on the socket does not tell of. */
bool client_tls_has_input(void *tls);
/* Nothing more is sent; what is received goes on. */
void client_tls_close(void *tls);
/* NULL is nothing to end. */
void client_tls_end(void *tls);
/* Whether TLS is spoken at the other end of a new connection. */
bool client_tls_is_spoken(int fd);
