/* What the TCP door is called and whom it lets in: names for the Host check, origins of web pages,
 * the TLS certificate. */
#pragma once

#include <openssl/ssl.h>

#include "base/config.h"

#define DOOR_NAMES_MAX 32

struct door {
	char text[2][1024]; /* the lists of the configuration, cut in words */
	char own[CONFIG_HOST_MAX + 2];
	const char *names[DOOR_NAMES_MAX + 1];
	const char *page_origins[DOOR_NAMES_MAX + 1];
	/* For struct http_settings. */
	const char *const *hosts, *const *origins;
};

NODISCARD int door_configure(struct door *door, const struct config *config, struct error *error);
/* The URL of who is on this host; config->listen is the address that it has become. "": too long.
 */
void door_url(const struct config *config, bool tls, char *url, size_t room);
/* NULL in *ret_tls where none is configured. The two descriptors have what is in the files that the
 * configuration names. */
NODISCARD int door_load_tls(const struct config *config, int certificate, int key,
			    SSL_CTX **ret_tls, struct error *error);
