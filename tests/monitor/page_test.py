#!/usr/bin/env python3
"""page_test.py PEER: the page's server as a plain client sees it, and what strangers can do to it: nothing."""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import Peer, loss_of

PEER = os.path.abspath(sys.argv.pop(1))
FOLDERS = iter(range(1000))
# For an answer that comes at once on a machine that does nothing else.
LONG = 120


def folder():
    return f"{os.environ['TEST_TMPDIR']}/page{next(FOLDERS)}"


class PageTest(unittest.TestCase):
    def setUp(self):
        self.peer = Peer(PEER, folder())
        self.addCleanup(self.peer.kill)

    def get(self, path="/data.json", method="GET", headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.peer.port, timeout=LONG)
        self.addCleanup(connection.close)
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer, answer.read()

    def data(self):
        answer, body = self.get()
        self.assertEqual(answer.status, 200)
        return json.loads(body)

    def connect(self, text=b""):
        stranger = socket.create_connection(("127.0.0.1", self.peer.port), timeout=LONG)
        self.addCleanup(stranger.close)
        stranger.sendall(text)
        return stranger

    def said_to(self, text):
        """All that is said to bytes."""
        stranger = self.connect(text)
        said = b""
        while more := stranger.recv(65536):
            said += more
        return said.decode()

    def test_values_are_those_that_were_published_while_it_runs(self):
        before = self.data()
        self.assertEqual((before["step"], before["series"]), (0, {}))
        self.assertEqual(before["title"], 'GPT <b>of</b> "4" layers & more')
        self.assertEqual((before["unit"], before["loss"]), ("frame", "penalty"))
        self.peer.tell("start 10", "steps 3", "evaluate")
        data = self.data()
        self.assertEqual((data["from"], data["step"], data["samples"], data["steps"]), (10, 13, 104, 1000))
        losses = data["series"]["Train/Samples/train_loss"]
        self.assertEqual(losses["points"]["step"], [11, 12, 13])
        self.assertEqual(losses["points"]["mean"], [loss_of(step) for step in (11, 12, 13)])
        self.assertEqual(losses["latest"], loss_of(13))
        self.assertEqual(data["series"]["Train/Samples/held_out_loss"]["latest"], loss_of(13) + 0.5)
        self.assertEqual(data["timeline"]["step"], 13)
        self.assertEqual([lane["name"] for lane in data["timeline"]["lanes"]], ["rank 0", "rank 1"])
        self.assertEqual(data["timeline"]["lanes"][0]["passes"][0], ["F0", 0, 0.004])
        self.assertLess(abs(data["now"] - time.time()), LONG)
        self.peer.tell("steps 1")
        self.assertEqual(self.data()["step"], 14)

    def test_the_answer_does_not_grow_without_an_end(self):
        self.peer.tell("start 0", "steps 3000")
        body = self.get()[1]
        self.assertLess(len(body), 1000000)
        losses = json.loads(body)["series"]["Train/Samples/train_loss"]["points"]
        self.assertLessEqual(len(losses["step"]), 600)
        self.assertEqual(losses["step"][-1], 3000)

    def test_the_page_asks_nobody_else_and_runs_nothing_else(self):
        answer, body = self.get("/")
        page = body.decode()
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.getheader("Content-Type"), "text/html; charset=utf-8")
        policy = answer.getheader("Content-Security-Policy")
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("unsafe", policy)
        nonce = policy.split("script-src 'nonce-")[1].split("'")[0]
        self.assertEqual(page.count(f'nonce="{nonce}"'), 2)
        for word in ("http:", "https:", "//cdn", "@import", "url(", "src=", "innerHTML", "@NONCE@"):
            self.assertNotIn(word, page.replace("http://www.w3.org/2000/svg", ""))

    def test_head_has_no_body_and_other_paths_are_not_there(self):
        answer, body = self.get("/", "HEAD")
        self.assertEqual((answer.status, body), (200, b""))
        self.assertGreater(int(answer.getheader("Content-Length")), 10000)
        for path in ("/index.html", "/../etc/passwd", "//", "/data.json/", "/%2e%2e/"):
            self.assertEqual(self.get(path)[0].status, 404, path)
        self.assertEqual(self.get("/data.json?since=3")[0].status, 200)
        self.assertEqual(self.get("/", "POST")[0].status, 405)

    def test_a_host_of_another_name_gets_nothing(self):
        for host in ("evil.example", f"evil.example:{self.peer.port}", "127.0.0.1.evil.example", ""):
            answer, body = self.get(headers={"Host": host})
            self.assertEqual(answer.status, 403, host)
            self.assertNotIn(b"series", body)
        answer, body = self.get(headers={"Origin": "https://evil.example"})
        self.assertEqual(answer.status, 403)
        # As through a tunnel from another port.
        self.assertEqual(self.get(headers={"Host": "localhost:1234"})[0].status, 200)

    def test_only_this_machine_is_listened_to(self):
        output = subprocess.run(["cat", "/proc/net/tcp", "/proc/net/tcp6"], capture_output=True, text=True)
        port = f":{self.peer.port:04X}"
        listening = [line.split()[1] for line in output.stdout.splitlines()
                     if line.split()[1].endswith(port) and line.split()[3] == "0A"]
        self.assertEqual(listening, ["0100007F" + port])

    def test_a_port_that_is_taken_is_named(self):
        with self.assertRaisesRegex(RuntimeError, f"cannot listen on 127.0.0.1:{self.peer.port}: Address already"):
            Peer(PEER, folder(), self.peer.port)

    def test_requests_that_are_none_are_told_so(self):
        self.assertTrue(self.said_to(b"\r\n\r\n").startswith("HTTP/1.1 400"))
        self.assertTrue(self.said_to(b"\x16\x03\x01\x02\x00\x01\x00\n\n").startswith("HTTP/1.1 400"))
        self.assertTrue(self.said_to(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").startswith("HTTP/1.1 400"))

    def test_a_head_without_an_end_is_refused_and_the_refusal_arrives(self):
        for head in (b"GET / HTTP/1.1\r\nHost: localhost\r\nCookie: " + b"x" * 100000,
                     b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
                     b"\n" + b"a: b\n" * 5000):
            self.assertTrue(self.said_to(head).startswith("HTTP/1.1 431"), head[:20])

    def test_half_a_request_is_waited_for_and_then_forgotten(self):
        halves = [self.connect(b"GET /data.json HTTP/1.1\r\nHo") for _ in range(20)]
        self.assertEqual(self.data()["step"], 0)
        # One that goes on in time is answered, byte by byte too.
        for byte in b"st: localhost\r\n\r\n":
            halves[0].sendall(bytes([byte]))
        self.assertTrue(halves[0].recv(100).startswith(b"HTTP/1.1 200"))
        # Patience ends: the server closes.
        for half in halves[1:]:
            self.assertEqual(half.recv(100), b"")

    def test_more_connections_than_places_do_not_keep_anybody_out(self):
        strangers = [self.connect() for _ in range(400)]
        self.assertEqual(self.data()["step"], 0)
        self.assertEqual(len(strangers), 400)

    def test_those_who_do_not_read_keep_nobody_out(self):
        self.peer.tell("start 0", "steps 3000")
        strangers = [self.connect(b"GET /data.json HTTP/1.1\r\nHost: localhost\r\n\r\n") for _ in range(100)]
        self.peer.tell("steps 1")
        self.assertEqual(self.data()["step"], 3001)
        self.assertEqual(len(strangers), 100)

    def test_a_training_ends_whoever_is_connected(self):
        self.peer.tell("start 0", "steps 100")
        strangers = [self.connect(text) for text in (b"", b"GET", b"GET /data.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
                     for _ in range(10)]
        self.assertEqual(self.peer.end(), "")
        self.assertEqual(len(strangers), 30)
        # A start after it has the port at once.
        again = Peer(PEER, folder(), self.peer.port)
        self.addCleanup(again.kill)
        self.assertEqual(again.port, self.peer.port)


if __name__ == "__main__":
    unittest.main()
