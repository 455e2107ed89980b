/* The shim: one per sandbox of the gvisor tier, the process that stands for the guest. It is PID 1
 * of the sandbox's own user, mount, pid, network, ipc, uts and cgroup namespaces, made by
 * tier/jail/boot.c as an init of the namespace tier is, and set up by the same messages
 * (proto/boot_messages.h). In them it makes the root, starts `runsc` with caisson-init as the
 * container's process, and then is nothing but the way between the daemon and that init:
 *
 *   daemon <── init.sock ──> shim <── the container's standard input (a socket) ──> caisson-init
 *
 * runsc and all that it starts live in the shim's pid namespace and in the cgroup `work`: when the
 * shim ends, the kernel ends them; when the container ends, the shim exits. Everything that runsc
 * writes down is on a tmpfs of that mount namespace and gone with it.
 *
 *   shim.c         the steps, as the boot messages ask for them
 *   root.c         mounts: a small root for runsc, the sandbox's root below it
 *   container.c    the container's description, runsc
 *   tier/bridge    frames between the two, and execs' output into their logs
 *   shim_privileges.c       what is given up before the first frame is read
 *   runsc.c        which runsc this host has (in the spawner)
 *   driver.c       the driver (in the spawner)
 */
#pragma once

/* `caisson _shim PLATFORM ID`: executed by the driver's boot, never by people. */
int shim_main(int argc, char **argv);
