"""TCP ports of one suite. Suites run at the same time, and a daemon needs the same port again after a restart. So a
process claims a block of ports for its lifetime. The claim is the name of an abstract Unix socket: the kernel frees it
when the process ends, and it also works between independent runs of the tests."""
import itertools
import random
import socket

# Below the range from which the kernel takes the ports of clients.
FIRST, END, BLOCK = 12000, 32768, 64


def claim_block():
    """The socket that holds the claim, and the first port of the block."""
    for first in random.sample(range(FIRST, END - BLOCK + 1, BLOCK), (END - FIRST) // BLOCK):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0caisson-test-ports-{first}")
            return claim, first
        except OSError:
            claim.close()
    raise AssertionError("other tests have claimed every block of ports")


claim, next_port = None, None


def free_port():
    """The next port of our block that can be bound. Programs outside our tests may use some of them."""
    global claim, next_port
    if claim is None:
        claim, first = claim_block()
        next_port = itertools.cycle(range(first, first + BLOCK))
    for port in itertools.islice(next_port, BLOCK):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # allow ports of connections that have ended
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
    raise AssertionError(f"none of the {BLOCK} ports of this suite is free")
