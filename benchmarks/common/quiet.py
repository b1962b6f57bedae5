"""How busy other processes keep the machine while we measure."""

import os
import resource
import time


def _cpu_seconds():
    """CPU time used so far by everybody, and by this process and its children that ended."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, _, _, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    everybody = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return everybody, sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measure_quietly(measure, max_others, tries):
    """Calls measure() until others used at most `max_others` cores meanwhile, `tries` times at most.

    Returns the result of the quietest call and the cores that others used during it.
    """
    best = None
    for attempt in range(tries):
        if attempt > 0:
            time.sleep(1)
        begin, (everybody, ours) = time.monotonic(), _cpu_seconds()
        result = measure()
        everybody, ours = (b - a for a, b in zip((everybody, ours), _cpu_seconds()))
        others = max(0.0, everybody - ours) / (time.monotonic() - begin)
        if best is None or others < best[1]:
            best = (result, others)
        if others <= max_others:
            break
    return best
