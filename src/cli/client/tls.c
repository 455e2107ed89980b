/* TLS below the command line's HTTP client, for CAISSON_URL=https://... The certificate must be
 * signed by an authority that this host trusts or that CAISSON_CA_FILE names, and be valid for the
 * URL's host. Called by client.c and exchange.c; blocks like the socket. */
#include "cli/client/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <stdlib.h>

/* Advice for the reason why the certificate was rejected. */
static const char *certificate_hint(long verified)
{
	const char *authority = getenv("CAISSON_CA_FILE");
	switch (verified) {
	case X509_V_ERR_HOSTNAME_MISMATCH:
	case X509_V_ERR_IP_ADDRESS_MISMATCH:
		return "CAISSON_URL must have a name or an address that is in the certificate";
	case X509_V_ERR_CERT_HAS_EXPIRED:
	case X509_V_ERR_CERT_NOT_YET_VALID:
		return "the server needs one that is valid now, or a clock is wrong";
	default:
		return authority && *authority
			   ? "neither it nor its authority's is in the file that CAISSON_CA_FILE "
			     "names"
			   : "if it is the right server's, set CAISSON_CA_FILE to a file with this "
			     "certificate or its authority's";
	}
}

static int tls_error_set(const struct client *client, SSL *ssl, struct error *error)
{
	long verified = ssl ? SSL_get_verify_result(ssl) : X509_V_OK;
	if (verified != X509_V_OK)
		return error_set(error, ERROR_DAEMON_TLS,
				 "the certificate of https://%s:%s cannot be trusted: %s; %s",
				 client->host, client->port,
				 X509_verify_cert_error_string(verified),
				 certificate_hint(verified));
	unsigned long problem = ERR_peek_last_error();
	const char *reason = problem ? ERR_reason_error_string(problem) : NULL;
	return error_set(
	    error, ERROR_DAEMON_TLS,
	    "no TLS with https://%s:%s: %s; use http:// for a daemon without a certificate",
	    client->host, client->port, reason ? reason : "the connection was closed");
}

static SSL_CTX *tls_context_new(const struct client *client, struct error *error)
{
	const char *authority = getenv("CAISSON_CA_FILE");
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	if (!context)
		abort();
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	/* Without automatic retries, a record without data does not make a read wait for data. */
	SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
	/* The bridge of `mcp` writes without waiting; it sends the rest later, from another buffer.
	 */
	SSL_CTX_set_mode(context,
			 SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	bool named = authority && *authority;
	bool good = SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 &&
		    (named ? SSL_CTX_load_verify_file(context, authority)
			   : SSL_CTX_set_default_verify_paths(context)) == 1;
	if (good)
		return context;
	SSL_CTX_free(context);
	if (named)
		error_set(error, ERROR_USAGE, "CAISSON_CA_FILE: no certificates in %s", authority);
	else
		tls_error_set(client, NULL, error);
	return NULL;
}

/* The certificate must be valid for this address or name. A name is also sent as SNI. */
static bool tls_expect_host(SSL *ssl, const char *host)
{
	unsigned char address[16];
	if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
	return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

int client_tls_begin(const struct client *client, int fd, void **ret_tls, struct error *error)
{
	/* OpenSSL uses write(): without this, a closed connection would kill us with SIGPIPE. */
	signal(SIGPIPE, SIG_IGN);
	SSL_CTX *context = tls_context_new(client, error);
	if (!context)
		return -1;
	SSL *ssl = SSL_new(context);
	SSL_CTX_free(context);
	if (!ssl)
		abort();
	if (!tls_expect_host(ssl, client->host) || SSL_set_fd(ssl, fd) != 1 ||
	    SSL_connect(ssl) != 1) {
		int result = tls_error_set(client, ssl, error);
		SSL_free(ssl);
		return result;
	}
	*ret_tls = ssl;
	return 0;
}

bool client_tls_is_spoken(int fd)
{
	signal(SIGPIPE, SIG_IGN);
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	SSL *ssl = context ? SSL_new(context) : NULL;
	if (!ssl)
		abort();
	SSL_CTX_free(context);
	/* Nothing is sent, so the certificate does not matter. */
	bool spoken = SSL_set_fd(ssl, fd) == 1 && SSL_connect(ssl) == 1;
	SSL_free(ssl);
	return spoken;
}

/* Turns OpenSSL's result into that of send() and recv(). */
static ssize_t tls_result(SSL *ssl, int result)
{
	if (result > 0)
		return result;
	switch (SSL_get_error(ssl, result)) {
	case SSL_ERROR_ZERO_RETURN:
		return 0;
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE:
		errno = EINTR;
		return -1;
	case SSL_ERROR_SYSCALL:
		if (errno == 0)
			errno = ECONNRESET;
		return -1;
	default:
		errno = EPROTO;
		return -1;
	}
}

ssize_t client_tls_send(void *tls, const void *data, size_t size)
{
	ERR_clear_error();
	errno = 0;
	return tls_result(tls, SSL_write(tls, data, (int)MIN(size, (size_t)INT_MAX)));
}

ssize_t client_tls_receive(void *tls, void *data, size_t size)
{
	ERR_clear_error();
	errno = 0;
	return tls_result(tls, SSL_read(tls, data, (int)MIN(size, (size_t)INT_MAX)));
}

bool client_tls_has_input(void *tls)
{
	return SSL_pending(tls) > 0;
}

void client_tls_close(void *tls)
{
	SSL_shutdown(tls);
}

/* Sends the closing alert, so that the other side knows that nothing was truncated. We do not wait
 * for its answer. */
void client_tls_end(void *tls)
{
	if (tls && SSL_is_init_finished(tls))
		SSL_shutdown(tls);
	SSL_free(tls);
}
