/* Reads the configuration of the TCP listener. Called by the daemon's main at its start and on a
 * reload. Reads the copies of the two TLS files; everything else is pure. */
#include "daemon/tcp_access.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

/* Splits "a b, c" into words, with NULL at the end; returns their number, or -1. */
static int words_cut(char *text, const char **words, const char *key, struct error *error)
{
	size_t count = 0;
	for (char *at = text + strspn(text, " \t,"); *at; at += strspn(at, " \t,")) {
		if (count == TCP_ACCESS_NAMES_MAX - 4)
			return error_set(error, ERROR_CONFIG,
					 "[server] %s has more than %d entries", key,
					 TCP_ACCESS_NAMES_MAX - 4);
		words[count++] = at;
		at += strcspn(at, " \t,");
		if (*at)
			*at++ = '\0';
	}
	words[count] = NULL;
	return (int)count;
}

/* A host name or address without a port; IPv6 in brackets. */
static bool host_name_valid(const char *name)
{
	size_t length = strlen(name);
	if (name[0] == '[')
		return length > 2 && strspn(name + 1, "0123456789abcdefABCDEF:.") == length - 2 &&
		       name[length - 1] == ']';
	return strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") ==
	       length;
}

/* "http://host[:port]" as browsers send it: no path, not even '/'. */
static bool origin_valid(const char *origin)
{
	const char *host = text_starts(origin, "https://")  ? origin + 8
			   : text_starts(origin, "http://") ? origin + 7
							    : NULL;
	if (!host || !*host)
		return false;
	size_t length = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
	char name[256];
	uint64_t port;
	if (length >= sizeof(name) || length > strlen(host) || length == 0)
		return false;
	memcpy(name, host, length);
	name[length] = '\0';
	return host_name_valid(name) &&
	       (host[length] == '\0' ||
		(host[length] == ':' && text_to_u64(host + length + 1, 1, UINT16_MAX, &port) == 0));
}

/* With a wildcard address and no list of names, the host's names are unknown. Then any name is
 * accepted, and only tokens protect the listener. */
static void access_add_own_names(struct tcp_access *access, const struct config *config, int listed)
{
	char host[CONFIG_HOST_MAX];
	uint16_t port;
	size_t count = (size_t)listed;
	bool split = config_split_listen(config->listen, host, &port) == 0;
	bool every = split && (strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0);
	access->hosts = every && listed == 0 ? NULL : access->names;
	access->names[count++] = "localhost";
	access->names[count++] = "127.0.0.1";
	access->names[count++] = "[::1]";
	if (split && !every) {
		snprintf(access->own, sizeof(access->own), strchr(host, ':') ? "[%s]" : "%s", host);
		access->names[count++] = access->own;
	}
	access->names[count] = NULL;
}

int tcp_access_configure(struct tcp_access *access, const struct config *config,
			 struct error *error)
{
	memcpy(access->text[0], config->hosts, sizeof(access->text[0]));
	memcpy(access->text[1], config->origins, sizeof(access->text[1]));
	int names = words_cut(access->text[0], access->names, "hosts", error);
	if (names < 0 || words_cut(access->text[1], access->page_origins, "origins", error) < 0)
		return -1;
	for (int i = 0; i < names; i++)
		if (!host_name_valid(access->names[i]))
			return error_set(error, ERROR_CONFIG,
					 "[server] hosts: %.100s is not a host name without a port",
					 access->names[i]);
	for (const char **origin = access->page_origins; *origin; origin++)
		if (!origin_valid(*origin))
			return error_set(error, ERROR_CONFIG,
					 "[server] origins: %.100s is not of the form "
					 "https://HOST[:PORT]",
					 *origin);
	access_add_own_names(access, config, names);
	access->origins = access->page_origins;
	return 0;
}

void tcp_access_url(const struct config *config, bool tls, char *url, size_t room)
{
	char host[CONFIG_HOST_MAX];
	uint16_t port;
	url[0] = '\0';
	if (config_split_listen(config->listen, host, &port) < 0)
		return;
	/* A wildcard address cannot be dialled; use loopback instead. */
	const char *named = strcmp(host, "0.0.0.0") == 0 ? "127.0.0.1"
			    : strcmp(host, "::") == 0    ? "::1"
							 : host;
	if (text_format(url, room, strchr(named, ':') ? "%s://[%s]:%u" : "%s://%s:%u",
			tls ? "https" : "http", named, (unsigned)port) < 0)
		url[0] = '\0';
}

static int tls_set_error(const char *kind, const char *path, struct error *error)
{
	unsigned long code = ERR_get_error();
	const char *reason = code ? ERR_reason_error_string(code) : NULL;
	ERR_clear_error();
	return error_set(error, ERROR_CONFIG, "TLS: %s %s: %s", kind, path,
			 reason ? reason : "it cannot be used");
}

/* Reads from the file's start, because a reload reads it again. */
static BIO *pem_open(int fd)
{
	BIO *text = lseek(fd, 0, SEEK_SET) < 0 ? NULL : BIO_new_fd(fd, BIO_NOCLOSE);
	/* Without a buffer each small read would be a system call. */
	BIO *buffered = text ? BIO_new(BIO_f_buffer()) : NULL;
	return buffered ? BIO_push(buffered, text) : text;
}

/* The server's certificate, then the intermediate ones. */
static bool tls_load_chain(SSL_CTX *tls, int fd)
{
	BIO *text = pem_open(fd);
	X509 *certificate = text ? PEM_read_bio_X509_AUX(text, NULL, NULL, NULL) : NULL;
	bool good = certificate && SSL_CTX_use_certificate(tls, certificate) == 1;
	X509_free(certificate);
	while (good && (certificate = PEM_read_bio_X509(text, NULL, NULL, NULL))) {
		good = SSL_CTX_add0_chain_cert(tls, certificate) == 1;
		if (!good)
			X509_free(certificate);
	}
	/* OpenSSL reports the end of the file as an error. */
	if (good && ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE)
		ERR_clear_error();
	good = good && ERR_peek_last_error() == 0;
	BIO_free_all(text);
	return good;
}

static int passphrase_refuse(char *to, int room, int writing, void *data)
{
	(void)to;
	(void)room;
	(void)writing;
	(void)data;
	return -1;
}

static bool tls_load_key(SSL_CTX *tls, int fd)
{
	BIO *text = pem_open(fd);
	EVP_PKEY *key = text ? PEM_read_bio_PrivateKey(text, NULL, passphrase_refuse, NULL) : NULL;
	bool good = key && SSL_CTX_use_PrivateKey(tls, key) == 1;
	EVP_PKEY_free(key);
	BIO_free_all(text);
	return good;
}

int tcp_access_load_tls(const struct config *config, int certificate, int key, SSL_CTX **ret_tls,
			struct error *error)
{
	*ret_tls = NULL;
	if (!config->tls_certificate[0])
		return 0;
	ERR_clear_error();
	SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
	int result = 0;
	if (!tls || SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION) != 1)
		abort(); /* no memory */
	if (!tls_load_chain(tls, certificate))
		result = tls_set_error("certificate", config->tls_certificate, error);
	else if (!tls_load_key(tls, key) || SSL_CTX_check_private_key(tls) != 1)
		result = tls_set_error("key", config->tls_key, error);
	if (result < 0)
		SSL_CTX_free(tls);
	else
		*ret_tls = tls;
	return result;
}
