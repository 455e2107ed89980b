/* The daemon's main: the unprivileged process that talks to clients. The spawner starts it as
 *   caisson _daemon --config FILE --state DIR --runtime DIR [--listen HOST:PORT] [--tcp]
 *     [--idle-exit SECONDS] [--log-level LEVEL] [--log-json]
 * already as the daemon's user and without capabilities. Its descriptors and exit codes are in
 * proto/spawner_messages.h. */
#pragma once

int daemon_main(int argc, char **argv);
