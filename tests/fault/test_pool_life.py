"""What becomes of the pool as time goes by. When nobody is there it has ten minutes in the product, some seconds in this build."""
import unittest

from caisson import processes_of, wait_until
from faults import FaultTest, use_fault_build
from marks import long

use_fault_build()
RUNS_ON = "fault"


class Life(FaultTest):
    @long
    def test_ends_by_itself_without_a_daemon(self):
        daemon = self.world(config="[usage]\ninterval = 1h\n[pool]\nsize = 2\n").start()
        wait_until(lambda: len(daemon.pool_ready()) == 2, 30, what="a pool")
        daemon.kill()
        self.assertGreaterEqual(len(processes_of(daemon.state, daemon.runtime)), 2)
        wait_until(lambda: not processes_of(daemon.state, daemon.runtime), 60, what="the end of the pool")
        old = daemon.pooled()
        self.assertEqual(len(old), 2)
        daemon.start()
        # The rows of the old members say `ready` until the new daemon has destroyed what is left of them.
        wait_until(lambda: len(daemon.pool_ready() - old) == 2 and not old & daemon.pooled(), 30, what="another pool")

    def test_off(self):
        """Nothing is made ahead, however long nobody asks for anything."""
        daemon = self.world(config="[usage]\ninterval = 1h\n[pool]\nsize = 0\n").start()
        self.assertEqual(daemon.client().create(timeout_seconds=0)["boot_mode"], "cold")
        for _ in range(3):
            self.faults.advance(15)
            self.assertEqual(daemon.pooled(), set())


if __name__ == "__main__":
    unittest.main()
