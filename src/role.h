/* Which role a process of the one binary has: a person's command, or what the spawner has started.
 */
#pragma once

int role_main(int argc, char **argv);
