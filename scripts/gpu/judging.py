"""What the benchmark's figures must be, and how they are told in lines.

NCCL through Ringfold against the same call made raw through CuPy. On one GPU a sum over
one rank is a copy in the device's memory, and is labelled so.
"""

MIB = 1 << 20
BANDWIDTH, LATENCY_US = 0.97, 10.0
"""At least this part of the raw call's bandwidth from 1 MiB up, or at most so much more
time: below some 300 us of raw time the first would ask for more than the second."""


def judge_bench(entry, double):
    """Add figures to a part's entry, and its problem where one is too slow."""
    rows = [row for check in entry.get("checks", []) for row in check.get("rows", [])]
    sizes = dict.fromkeys(row["bytes"] for row in rows)
    by_size = {n: {r["algorithm"]: r for r in rows if r["bytes"] == n} for n in sizes}
    entry["figures"], slow = [], []
    for nbytes, found in by_size.items():
        entry["figures"].append(line(nbytes, found))
        if "raw_nccl" in found and "nccl" in found:
            raw, ours = (time_us(found[name]) for name in ("raw_nccl", "nccl"))
            enough = nbytes >= MIB and raw / ours >= BANDWIDTH
            if not enough and ours - raw > LATENCY_US:
                slow.append(
                    f"{nbytes} bytes: {ours:.1f} us, raw NCCL {raw:.1f} us (a copy in "
                    "memory, on one rank)"
                )
    if slow and not double:
        entry["status"] = "failed"
        entry["problem"] = "; ".join(filter(None, [entry["problem"], *slow]))


def time_us(row):
    """Return the fastest repetition, out of place: in place one rank moves nothing."""
    figures = row.get("out_of_place") or row
    return figures["time_us"]["min"]


def line(nbytes, found):
    """Return the figures of one size: microseconds, GB/s, and the part of a floor."""
    texts = []
    for name, row in found.items():
        us = time_us(row)
        text = f"{name} {us:.1f} us {nbytes / us / 1e3:.1f} GB/s"
        if row["over_floor"] and name not in ("copy", "host_copy"):
            text += f" ({row['over_floor']['min']:.2f} x memory floor)"
        if name == "staged" and "host_copy" in found:
            text += f" ({us / time_us(found['host_copy']):.2f} x copies over PCIe)"
        texts.append(text)
    return f"{nbytes:>10} B  " + ", ".join(texts)
