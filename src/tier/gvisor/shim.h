/* The shim: the process that represents the guest, one per sandbox of the gvisor tier. It is PID
 * 1 of the sandbox's own user, mount, pid, network, ipc, uts and cgroup namespaces.
 * tier/jail/boot.c makes it as it makes an init of the namespace tier, and sends it the same
 * messages (proto/boot_messages.h). The shim makes the root, starts `runsc` with caisson-init as
 * the container's process, and then only passes frames between the daemon and that init:
 *
 *   daemon <── init.sock ──> shim <── the container's standard input (a socket) ──> caisson-init
 *
 * runsc and all that it starts live in the shim's pid namespace and in the cgroup `work`. When the
 * shim ends, the kernel ends them; when the container ends, the shim exits. Everything that runsc
 * writes is on a tmpfs of that mount namespace and disappears with it.
 *
 *   shim.c             the steps, in the order of the boot messages
 *   root.c             mounts: a small root for runsc, the sandbox's root below it
 *   container.c        the container's description, runsc
 *   tier/bridge        frames between the two, and output of execs into their logs
 *   shim_privileges.c  what is dropped before the first frame is read
 *   runsc.c            which runsc this host has (in the spawner)
 *   driver.c           the driver (in the spawner) */
#pragma once

/* `caisson _shim PLATFORM ID`: executed by the driver's boot only. */
int shim_main(int argc, char **argv);
