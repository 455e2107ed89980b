"""More streams of events than are told in one turn: each gets everything, once and in order, also while others leave."""
import re
import unittest

from caisson import DaemonTest

STREAMS = 70
COMMANDS = 12


class ManyStreams(DaemonTest):
    def stream(self):
        response, connection = self.api.raw("GET", "/v1/events?kind=exec", checked=False)
        self.addCleanup(connection.close)
        self.assertEqual(200, response.status)
        return response, connection

    def sequences(self, response, last):
        """The ids up to that one."""
        found = []
        while not found or found[-1] < last:
            line = response.readline()
            self.assertTrue(line, "the stream ended")
            match = re.match(rb"id: (\d+)\n", line)
            if match:
                found.append(int(match.group(1)))
        return found

    def test_all_are_told_everything(self):
        box = self.sandbox()
        streams = [self.stream() for _ in range(STREAMS)]
        first = self.api.get("/v1/events", follow=0, kind="exec")["after"]
        for number in range(COMMANDS):
            self.api.sh(box, "true")
            if number == COMMANDS // 2:
                for _, connection in streams[::7]:
                    connection.close()
        page = self.api.get("/v1/events", follow=0, kind="exec", after=first)
        wanted = [item["sequence"] for item in page["items"]]
        self.assertGreaterEqual(len(wanted), COMMANDS)
        for number, (response, _) in enumerate(streams):
            if number % 7:
                self.assertEqual(wanted, self.sequences(response, wanted[-1]))


if __name__ == "__main__":
    unittest.main()
