"""Whether this host has gVisor."""
import os
import unittest

RUNSC = any(os.access(path, os.X_OK) for path in ("/usr/bin/runsc", "/usr/local/bin/runsc", "/usr/sbin/runsc"))
needs_gvisor = unittest.skipUnless(RUNSC, "there is no runsc on this host")
