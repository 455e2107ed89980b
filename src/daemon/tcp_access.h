/* The names and clients that the TCP listener accepts: names for the Host check, origins of web
 * pages, the TLS certificate. */
#pragma once

#include <openssl/ssl.h>

#include "base/config.h"

#define TCP_ACCESS_NAMES_MAX 32

struct tcp_access {
	char text[2][1024]; /* the lists of the configuration, split into words */
	char own[CONFIG_HOST_MAX + 2];
	const char *names[TCP_ACCESS_NAMES_MAX + 1];
	const char *page_origins[TCP_ACCESS_NAMES_MAX + 1];
	/* For struct http_settings. */
	const char *const *hosts, *const *origins;
};

NODISCARD int tcp_access_configure(struct tcp_access *access, const struct config *config,
				   struct error *error);
/* The URL for clients on this host; config->listen is the bound address. "": too long. */
void tcp_access_url(const struct config *config, bool tls, char *url, size_t room);
/* *ret_tls is NULL without TLS. The two descriptors hold the contents of the configured files. */
NODISCARD int tcp_access_load_tls(const struct config *config, int certificate, int key,
				  SSL_CTX **ret_tls, struct error *error);
