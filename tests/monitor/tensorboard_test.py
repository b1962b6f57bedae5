#!/usr/bin/env python3
"""tensorboard_test.py PEER: TensorBoard's own reader on a training's event files, and on those of one that goes on.
Says what is missing where TensorBoard is not installed."""

import os
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import Peer, loss_of

# In the reader's process: prints the values that TensorBoard shows, and what it complains of.
READER = """
import sys
from tensorboard.backend.event_processing import event_accumulator
events = event_accumulator.EventAccumulator(sys.argv[1], size_guidance={event_accumulator.SCALARS: 0})
events.Reload()
print(events.file_version, *sorted(events.Tags()["scalars"]))
for scalar in events.Scalars("Train/Samples/train_loss"):
    print(scalar.step, scalar.value)
"""


def main():
    home = os.environ.get("HOME") or str(pathlib.Path("~").expanduser())
    cache = os.environ.get("XDG_CACHE_HOME", home + "/.cache")
    python = os.environ.get("BRIGADE_TENSORBOARD_VENV", cache + "/brigade/peers/tensorboard") + "/bin/python"
    check = [python, "-c", "from tensorboard.backend.event_processing import event_accumulator"]
    if not os.access(python, os.X_OK) or subprocess.run(check, stderr=subprocess.DEVNULL).returncode != 0:
        print("[  SKIPPED ] tensorboard_test (no TensorBoard: it comes with tools/setup --monitors)")
        return

    folder = os.environ["TEST_TMPDIR"] + "/run"
    for lines in (["start 0", "evaluate", "steps 200"], ["start 150", "steps 100", "evaluate"]):
        peer = Peer(sys.argv[1], folder)
        peer.tell(*lines)
        assert peer.end() == "", "something is missing"
    read = subprocess.run([python, "-c", READER, folder + "/events"], capture_output=True, text=True)
    assert read.returncode == 0, read.stderr
    version, *tags = read.stdout.splitlines()[0].split()
    assert version == "2.0", version
    assert "Train/Samples/held_out_loss" in tags and "Train/Samples/lr" in tags, tags
    # Of steps 151 to 200 what the second training has written counts, once.
    shown = [(int(step), float(value)) for step, value in map(str.split, read.stdout.splitlines()[1:])]
    assert shown == [(8 * step, loss_of(step)) for step in range(1, 251)], shown
    assert "corrupt" not in read.stderr.lower() and "dataloss" not in read.stderr.lower(), read.stderr


main()
