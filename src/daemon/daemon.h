/* The daemon's main: the unprivileged process that talks to clients. The spawner starts it as
 *   caisson _daemon --config FILE --state DIR --runtime DIR [--listen HOST:PORT] [--tcp]
 *     [--idle-exit SECONDS] [--log-level LEVEL] [--log-json]
 * with the descriptors below, already as the daemon's user and without capabilities. */
#pragma once

#define DAEMON_SPAWNER_FD 3     /* SOCK_SEQPACKET to the spawner */
#define DAEMON_UNIX_FD 4        /* the API's Unix socket, listening */
#define DAEMON_TCP_FD 5         /* the API's TCP socket, listening; with --tcp */
#define DAEMON_CERTIFICATE_FD 6 /* with --tls-certificate: its text, in memory */
#define DAEMON_KEY_FD 7

/* Exit codes for the spawner: 0 after SPAWN_QUIT, and these. Any other exit is a crash, after which
 * the spawner restarts the daemon with back-off. IDLE: idle for idle_exit_seconds; the spawner ends
 * too. CONFIG: invalid configuration or store; a restart would not help. */
#define DAEMON_EXIT_IDLE 64
#define DAEMON_EXIT_CONFIG 65

int daemon_main(int argc, char **argv);
