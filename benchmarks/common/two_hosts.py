"""What the check_* scripts of two hosts share: the hosts, and a training on both."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TRAIN = ROOT / "bazel-bin/examples/gpt/train"
TEXT = "/usr/share/common-licenses/GPL-3"
DEVICES, ADDRESSES = ("groups0", "groups1"), ("10.79.0.1", "10.79.0.2")
RANKS = 4


class TwoHosts:
    """Two namespaces without names, which end with the processes that hold them, and a slow link between them."""

    def __init__(self, megabits):
        # They end with this process, however it ends: their input does.
        self.holders = [subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE) for _ in ADDRESSES]
        own = os.readlink("/proc/self/ns/net")
        while any(os.readlink(f"/proc/{each.pid}/ns/net") == own for each in self.holders):
            time.sleep(0.01)
        first, second = (str(each.pid) for each in self.holders)
        subprocess.run(["ip", "link", "add", DEVICES[0], "netns", first, "type", "veth", "peer", "name", DEVICES[1],
                        "netns", second], check=True)
        for host, device in enumerate(DEVICES):
            for command in (f"ip address add {ADDRESSES[host]}/24 dev {device}", f"ip link set {device} up",
                            "ip link set lo up",
                            f"tc qdisc add dev {device} root tbf rate {megabits}mbit burst 32kb latency 400ms"):
                subprocess.run(self.on(host) + command.split(), check=True)

    def on(self, host):
        return ["nsenter", "-t", str(self.holders[host].pid), "-n"]

    def close(self):
        for each in self.holders:
            each.kill()
            each.wait()


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def train(hosts, port, config, flags, warm_up):
    """A training of four ranks, two on each host: its steps but the first ones, as lines of --metrics, and the row of the
    report that says by formulas what a rank sends in a step, in bytes: [gradients, weights, ...]."""
    with tempfile.TemporaryDirectory() as folder:
        path, metrics = pathlib.Path(folder) / "config.json", pathlib.Path(folder) / "metrics.jsonl"
        path.write_text(json.dumps(config))
        ranks = []
        for rank in range(RANKS):
            variables = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(rank % 2),
                             MASTER_ADDR=ADDRESSES[0], MASTER_PORT=str(port))
            command = [TRAIN, f"--config={path}", f"--data={TEXT}", "--evaluate_every=0", *flags]
            command += [f"--metrics={metrics}"] if rank == 0 else []
            ranks.append(subprocess.Popen(hosts.on(rank // 2) + command, env=variables, stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True))
        ended = [each.communicate() for each in ranks]
        for rank, each in enumerate(ranks):
            if each.returncode != 0:
                sys.exit(f"rank {rank} failed:\n{ended[rank][1]}")
        steps = [line for line in map(json.loads, metrics.open()) if "loss" in line][warm_up:]
    table = next(line.split() for line in ended[0][0].splitlines() if line.startswith(" formula"))
    return steps, [1e6 * float(figure) for figure in table[1:]]
