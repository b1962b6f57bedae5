#!/usr/bin/env python3
"""events_test.py PEER: event files, CSV and JSON lines of a training, and of one that goes on, as a reader of their
formats sees them who has none of our code."""

import csv
import glob
import json
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import Events, Peer, crc32c, loss_of, masked

folder = os.environ["TEST_TMPDIR"] + "/run"
TAG = "Train/Samples/train_loss"

assert crc32c(b"123456789") == 0xE3069283 and masked(b"123456789") == 0xC78AB0E5

began = time.time()
peer = Peer(sys.argv[1], folder)
peer.tell("start 0", "evaluate", "steps 200", "evaluate")
assert peer.end() == "", "something is missing"
# As if it had been killed there: the next one goes on from step 150.
peer = Peer(sys.argv[1], folder)
peer.tell("start 150", "steps 100")
assert peer.end() == "", "something is missing"

first, second = (Events(path) for path in sorted(glob.glob(folder + "/events/events.out.tfevents.*")))
for events in (first, second):
    assert events.version == "brain.Event:2", events.version
    assert all(began - 1 < wall < time.time() + 1 for wall in events.wall_times), events.wall_times
assert first.start == 0 and second.start == 150 * 8 + 1, (first.start, second.start)
losses = [(step, value) for tag, step, value in first.scalars if tag == TAG]
assert losses == [(8 * step, loss_of(step)) for step in range(1, 201)], losses
losses = [(step, value) for tag, step, value in second.scalars if tag == TAG]
assert losses == [(8 * step, loss_of(step)) for step in range(151, 251)], losses
held_out = [(step, value) for tag, step, value in first.scalars if tag.endswith("held_out_loss")]
assert held_out == [(0, loss_of(0) + 0.5), (1600, loss_of(200) + 0.5)], held_out

with open(folder + "/csv/Train_Samples_train_loss.csv", newline="") as file:
    rows = list(csv.reader(file))
assert rows[0] == ["step", "train_loss"], rows[0]
assert [(int(step), float(value)) for step, value in rows[1:]] == [
    (8 * step, loss_of(step)) for step in range(1, 251)], rows
with open(folder + "/csv/Train_Samples_grad_norm.csv", newline="") as file:
    norms = [float(value) for _, value in list(csv.reader(file))[1:]]
assert norms[6] == float("inf") and norms[5] == 1 + 1 / 6, norms[:8]

with open(folder + "/lines.jsonl") as file:
    lines = [json.loads(line) for line in file]
steps = [line for line in lines if "loss" in line]
assert [line["step"] for line in steps] == list(range(1, 251))
# Seconds of the training before are counted on.
assert steps[149]["seconds"] == 37.5 and steps[150]["seconds"] == 37.5 + 0.25 * 151
assert [line["step"] for line in lines if "held_out_loss" in line] == [0]
