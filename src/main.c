/* The one binary. */
#include "role.h"

int main(int argc, char **argv)
{
	return role_main(argc, argv);
}
