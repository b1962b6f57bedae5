"""What the check_* scripts of two hosts share: the hosts, their link, and a training on both."""

import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TRAIN = ROOT / "bazel-bin/examples/gpt/train"
PLAIN_TRANSFER = [sys.executable, ROOT / "benchmarks/common/plain_transfer.py"]
TEXT = "/usr/share/common-licenses/GPL-3"
# Of the text's bytes a tenth is held out, and evaluated behind the last step, over the link too.
TEXT_BYTES = 4000
DEVICES, ADDRESSES = ("groups0", "groups1"), ("10.79.0.1", "10.79.0.2")
RANKS = 4
# Each of a host's ranks has a connection to each of the other's.
CONNECTIONS = (RANKS // 2) ** 2
# What the link may send at once behind a pause, in bytes or in seconds, what is more: two packets, the fewest with which it
# carries as much as with four. Each message that passes by itself passes so much for nothing, so that it must be little beside
# one (docs/decisions/0260). Where a busy kernel comes later than that to send on, the link has stood still meanwhile.
BURST_BYTES = 3 << 10
BURST_SECONDS = 0.1e-3


class TwoHosts:
    """Two namespaces without names, which end with the processes that hold them, and a slow link between them."""

    def __init__(self, megabits):
        self.megabits = megabits
        # They end with this process, however it ends: their input does.
        self.holders = [subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE) for _ in ADDRESSES]
        own = os.readlink("/proc/self/ns/net")
        while any(os.readlink(f"/proc/{each.pid}/ns/net") == own for each in self.holders):
            time.sleep(0.01)
        first, second = (str(each.pid) for each in self.holders)
        subprocess.run(["ip", "link", "add", DEVICES[0], "netns", first, "type", "veth", "peer", "name", DEVICES[1],
                        "netns", second], check=True)
        burst = max(BURST_BYTES, int(BURST_SECONDS * 1e6 * megabits / 8))
        for host, device in enumerate(DEVICES):
            for command in (f"ip address add {ADDRESSES[host]}/24 dev {device}", f"ip link set {device} up",
                            "ip link set lo up",
                            f"tc qdisc add dev {device} root tbf rate {megabits}mbit burst {burst} latency 4s"):
                subprocess.run(self.on(host) + command.split(), check=True)
            # Losses alone slow reno, and here are none. BBR and cubic also heed delays, and take acknowledgements that queue
            # behind the other direction's data for a slower link: 8 % of a step at 20 Mbit/s, by this machine's BBR.
            subprocess.run(self.on(host) + ["sh", "-c", "echo reno >/proc/sys/net/ipv4/tcp_congestion_control"], check=True)
            # Packets that arrive on one core and then on another can overtake each other, and TCP takes them for lost. Where
            # the kernel cannot steer them, the link is only less steady.
            steer = f"mount -t sysfs none /sys && echo 1 >/sys/class/net/{device}/queues/rx-0/rps_cpus"
            subprocess.run(self.on(host) + ["unshare", "-m", "sh", "-c", steer], stderr=subprocess.DEVNULL, check=False)

    def on(self, host):
        return ["nsenter", "-t", str(self.holders[host].pid), "-n"]

    def sent_bytes(self, host):
        """What has left a host so far, frames and all."""
        devices = pathlib.Path(f"/proc/{self.holders[host].pid}/net/dev").read_text(encoding="ascii")
        words = next(line.replace(":", " ").split() for line in devices.splitlines() if DEVICES[host] in line)
        return int(words[9])

    def carries(self, seconds=2.0, turns=1):
        """Payload bytes a second in each direction, both at once, of plain TCP: headers and acknowledgements take the rest."""
        size = int(seconds * 1e6 * self.megabits / 8) // CONNECTIONS
        rates = []
        for _ in range(turns):
            servers = subprocess.Popen(self.on(0) + PLAIN_TRANSFER + ["serve", ADDRESSES[0], str(CONNECTIONS), str(size)],
                                       stdout=subprocess.PIPE, text=True)
            port = servers.stdout.readline().strip()
            client = subprocess.run(self.on(1) + PLAIN_TRANSFER + ["connect", ADDRESSES[0], port, str(CONNECTIONS), str(size)],
                                    stdout=subprocess.PIPE, text=True, check=True)
            out, _ = servers.communicate()
            if servers.returncode != 0:
                sys.exit("the plain transfer between the hosts failed")
            rates.append(CONNECTIONS * size / max(float(out), float(client.stdout)))
        return statistics.median(rates)

    def close(self):
        for each in self.holders:
            each.kill()
            each.wait()


class SentBySteps:
    """Watches, from a thread, what has left the hosts when a training has written each line of its metrics."""

    def __init__(self, hosts, metrics):
        self.hosts, self.metrics, self.bytes = hosts, metrics, []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()

    def _watch(self):
        while not self.ended.wait(0.01):
            lines = self.metrics.read_bytes().count(b"\n") if self.metrics.exists() else 0
            if lines > len(self.bytes):
                sent = sum(self.hosts.sent_bytes(host) for host in range(2)) / 2
                self.bytes += [sent] * (lines - len(self.bytes))

    def end(self):
        self.ended.set()
        self.thread.join()
        return self.bytes


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def formulas(report):
    """Of each of a report's tables of what ranks send: its row of formulas, in bytes."""
    rows = [line.split()[1:] for line in report.splitlines() if line.startswith(" formula")]
    return [[1e6 * float(figure) for figure in row] for row in rows]


def run_training(hosts, port, config, flags, watched=None):
    """A training of four ranks, two on each host: the lines of --metrics that are of steps, what rank 0 has printed, and
    the bytes that had left a host of `watched` when each of these lines was there, on average."""
    with tempfile.TemporaryDirectory() as folder:
        path, metrics, text = (pathlib.Path(folder) / name for name in ("config.json", "metrics.jsonl", "text"))
        path.write_text(json.dumps(config), encoding="utf-8")
        text.write_bytes(pathlib.Path(TEXT).read_bytes()[:TEXT_BYTES])
        watch = SentBySteps(watched, metrics) if watched is not None else None
        ranks = []
        for rank in range(RANKS):
            variables = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(rank % 2),
                             MASTER_ADDR=ADDRESSES[0], MASTER_PORT=str(port))
            command = [TRAIN, f"--config={path}", f"--data={text}", "--evaluate_every=0", *flags]
            command += [f"--metrics={metrics}"] if rank == 0 else []
            ranks.append(subprocess.Popen(hosts.on(rank // 2) + command, env=variables, stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True))
        ended = [each.communicate() for each in ranks]
        sent = watch.end() if watch is not None else []
        for rank, each in enumerate(ranks):
            if each.returncode != 0:
                sys.exit(f"rank {rank} failed:\n{ended[rank][1]}")
        with metrics.open(encoding="utf-8") as lines:
            steps = [line for line in map(json.loads, lines) if "loss" in line]
    return steps, ended[0][0], sent


def train(hosts, port, config, flags, warm_up):
    """A training's steps but the first ones, as lines of --metrics, and the row of the report that says by formulas what a
    rank sends in a step, in bytes: [gradients, weights, ...]."""
    steps, report, _ = run_training(hosts, port, config, flags)
    return steps[warm_up:], formulas(report)[0]
