#!/usr/bin/env python3
"""browser_test.py PEER: the page in a browser without a screen, while a training runs. Says what is missing where
there is no browser."""

import os
import re
import shutil
import subprocess
import sys
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import Peer, loss_of


def browse(browser, url, *flags):
    """What is shown after some seconds, and what the browser complains of."""
    profile = os.environ["TEST_TMPDIR"] + "/profile"
    return subprocess.run(
        [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions",
         "--disable-background-networking", "--disable-component-update", f"--user-data-dir={profile}",
         "--enable-logging=stderr", "--virtual-time-budget=6000", "--window-size=1280,1500", *flags, url],
        capture_output=True, text=True, timeout=280, env={**os.environ, "HOME": os.environ["TEST_TMPDIR"]})


def main():
    browser = os.environ.get("BRIGADE_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        print("[  SKIPPED ] browser_test (no chromium: it comes with tools/setup --monitors)")
        return
    peer = Peer(sys.argv[1], os.environ["TEST_TMPDIR"] + "/run")
    peer.tell("start 0", "evaluate", "steps 300", "evaluate")

    # The training goes on as long as the page is open.
    closed = threading.Event()

    def train():
        while not closed.wait(0.2):
            peer.tell("steps 1")

    training = threading.Thread(target=train)
    training.start()
    try:
        shown = browse(browser, peer.url, "--dump-dom")
    finally:
        closed.set()
        training.join()
    assert shown.returncode == 0 and "</html>" in shown.stdout, shown.stderr[-3000:]
    # Without the words of script and style.
    page = re.sub(r"<(script|style).*?</\1>", "", shown.stdout, flags=re.DOTALL)
    complaints = [line for line in shown.stderr.splitlines() if "CONSOLE" in line]
    assert complaints == [], complaints

    # It has asked again since it was opened: the first answer had 300 steps, or a few more.
    step = int(re.search(r'data-step="(\d+)"', page).group(1))
    assert step > 300, step
    assert f"step {step} of 1000" in page, "progress"
    assert "GPT &lt;b&gt;of&lt;/b&gt; \"4\" layers &amp; more" in page, "the title is text"
    for text in ("Loss", "penalty per frame", "Throughput", "frames per second, and smoothed", "Gradient norm",
                 "Learning rate", "mfu", "optimizer state", "matrix products", "rank 1", "B3", "held out", "training", "weight gradients"):
        wanted = text != "weight gradients"  # of schedules that have such passes
        assert (text in page) == wanted, text
    assert "NaN" not in page and "undefined" not in page and "Infinity" not in page
    curves = re.findall(r'<path class="curve" d="([^"]*)"', page)
    # Norms are infinite now and then: their curve has gaps.
    assert len(curves) >= 6 and max(curve.count("M") for curve in curves) > 3, len(curves)
    assert all("M" in curve for curve in curves) and 'class="odd"' in page, "norms that are not finite are marked"
    peer.tell("steps 1")
    assert peer.end() == "", "something is missing"


main()
