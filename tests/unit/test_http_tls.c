/* The HTTP server over TLS, with a certificate made for the test: requests, large bodies both ways,
 * old versions, plain text on the TLS port, a client that goes. */
#include "test.h"

#include <errno.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <unistd.h>

#include "http_fixture.h"

TEST_MAIN

#define HOST "Host: localhost\r\n"

static struct http_fixture f;

static SSL_CTX *server_context(void)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *certificate = X509_new();
	ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
	X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
	X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
	X509_set_pubkey(certificate, key);
	X509_NAME *name = X509_get_subject_name(certificate);
	X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"localhost", -1,
				   -1, 0);
	X509_set_issuer_name(certificate, name);
	X509_sign(certificate, key, EVP_sha256());
	SSL_CTX *context = SSL_CTX_new(TLS_server_method());
	if (SSL_CTX_use_certificate(context, certificate) != 1 ||
	    SSL_CTX_use_PrivateKey(context, key) != 1)
		abort();
	X509_free(certificate);
	EVP_PKEY_free(key);
	return context;
}

static SSL *client_start(int fd, int version)
{
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	/* Else the library itself would not even offer the old versions. */
	SSL_CTX_set_security_level(context, 0);
	SSL_CTX_set_min_proto_version(context, version);
	SSL_CTX_set_max_proto_version(context, version);
	SSL *ssl = SSL_new(context);
	SSL_set_fd(ssl, fd);
	SSL_CTX_free(context);
	return ssl;
}

static bool shake(SSL *ssl)
{
	for (int i = 0; i < 100; i++) {
		int result = SSL_connect(ssl);
		if (result == 1)
			return true;
		if (SSL_get_error(ssl, result) != SSL_ERROR_WANT_READ)
			return false;
		fixture_pump(&f);
	}
	return false;
}

static size_t tls_write(SSL *ssl, const char *data, size_t size)
{
	size_t total = 0;
	for (int i = 0; i < 10000 && total < size; i++) {
		size_t put = 0;
		if (SSL_write_ex(ssl, data + total, size - total, &put))
			total += put;
		fixture_pump(&f);
	}
	return total;
}

/* Reads until `end` was seen at the end, or the connection is over; returns how much. */
static size_t tls_read(SSL *ssl, char *to, size_t room, const char *end)
{
	size_t total = 0, tail = strlen(end);
	for (int i = 0; i < 10000 && total < room; i++) {
		size_t got = 0;
		if (SSL_read_ex(ssl, to + total, room - total, &got)) {
			total += got;
			if (total >= tail && memcmp(to + total - tail, end, tail) == 0)
				break;
		} else if (SSL_get_error(ssl, 0) != SSL_ERROR_WANT_READ) {
			break;
		}
		fixture_pump(&f);
	}
	return total;
}

static void check_version(int version)
{
	static char data[1024 * 1024], answer[9 * 1024 * 1024];
	SSL_CTX *context = server_context();
	fixture_start(&f, NULL, context);
	int fd = client_tcp(&f);
	SSL *ssl = client_start(fd, version);
	SSL_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	CHECK(shake(ssl));
	static const char get[] = "GET /x HTTP/1.1\r\n" HOST "\r\n";
	CHECK_INT(tls_write(ssl, get, sizeof(get) - 1), sizeof(get) - 1);
	size_t size = tls_read(ssl, answer, sizeof(answer), "GET /x 0");
	CHECK(size > 15 && memcmp(answer, "HTTP/1.1 200 OK", 15) == 0);
	static const char post[] = "POST /x HTTP/1.1\r\n" HOST "Content-Length: 1048576\r\n\r\n";
	tls_write(ssl, post, sizeof(post) - 1);
	CHECK_INT(tls_write(ssl, data, sizeof(data)), sizeof(data));
	size = tls_read(ssl, answer, sizeof(answer), "POST /x 1048576");
	CHECK(size > 15 && memcmp(answer, "HTTP/1.1 200 OK", 15) == 0);
	static const char large[] = "GET /large HTTP/1.1\r\n" HOST "\r\n";
	tls_write(ssl, large, sizeof(large) - 1);
	size = tls_read(ssl, answer, sizeof(answer), "\r\n0\r\n\r\n");
	CHECK(size > 8 * 1024 * 1024);
	/* The client goes while its answer is awaited. */
	static const char later[] = "GET /later HTTP/1.1\r\n" HOST "\r\n";
	tls_write(ssl, later, sizeof(later) - 1);
	CHECK(f.pending && http_request(f.pending)->peer.is_tls);
	SSL_free(ssl);
	close(fd);
	fixture_pump(&f);
	CHECK_INT(f.gone, 1);
	CHECK_INT(http_server_connections(f.server), 0);
	fixture_stop(&f);
	SSL_CTX_free(context);
}

TEST(tls_1_2)
{
	check_version(TLS1_2_VERSION);
}

TEST(tls_1_3)
{
	check_version(TLS1_3_VERSION);
}

TEST(old_versions_are_refused)
{
	SSL_CTX *context = server_context();
	/* Were it only for the library's defaults, this would let them in. */
	SSL_CTX_set_security_level(context, 0);
	SSL_CTX_set_min_proto_version(context, TLS1_VERSION);
	fixture_start(&f, NULL, context);
	int fd = client_tcp(&f);
	SSL *ssl = client_start(fd, TLS1_1_VERSION);
	CHECK(!shake(ssl));
	fixture_pump(&f);
	CHECK_INT(http_server_connections(f.server), 0);
	SSL_free(ssl);
	close(fd);
	fixture_stop(&f);
	SSL_CTX_free(context);
}

TEST(plain_text_on_the_tls_port_is_closed)
{
	SSL_CTX *context = server_context();
	struct http_settings settings = http_default_settings;
	settings.head_timeout_ms = 10000;
	fixture_start(&f, &settings, context);
	int fd = client_tcp(&f), silent = client_tcp(&f);
	struct http_seen *got = client_ask(&f, fd, "GET /x HTTP/1.1\r\n" HOST "\r\n");
	CHECK(got->closed);
	CHECK_INT(f.handled, 0);
	/* A handshake that does not begin has a deadline as well. */
	fixture_wait(&f, 20000);
	CHECK_INT(http_server_connections(f.server), 0);
	close(fd);
	close(silent);
	fixture_stop(&f);
	SSL_CTX_free(context);
}

TEST(an_abort_has_no_proper_end)
{
	static char answer[4096];
	SSL_CTX *context = server_context();
	fixture_start(&f, NULL, context);
	int fd = client_tcp(&f);
	SSL *ssl = client_start(fd, TLS1_3_VERSION);
	CHECK(shake(ssl));
	static const char get[] = "GET /abort HTTP/1.1\r\n" HOST "\r\n";
	tls_write(ssl, get, sizeof(get) - 1);
	size_t size = tls_read(ssl, answer, sizeof(answer), "never");
	CHECK(memmem(answer, size, "4\r\npart\r\n", 9) != NULL);
	CHECK(memmem(answer, size, "\r\n0\r\n\r\n", 7) == NULL);
	CHECK((SSL_get_shutdown(ssl) & SSL_RECEIVED_SHUTDOWN) == 0);
	SSL_free(ssl);
	close(fd);
	fixture_stop(&f);
	SSL_CTX_free(context);
}
