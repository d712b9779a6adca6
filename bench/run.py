"""Measures mathfuse beside its peers and writes a JSON file with where that was done. Losing rows stay.

    bench/run.py [--device cpu|gpu|all] [--smoke] [--output FILE]

Rows: `us` maps each candidate to its median time in microseconds; `mathfuse` is ours, `baseline` (default: every other) whom it
is compared with, `goal` the ratio aimed at. Buffers hold random data.
"""

import argparse
import json
import pathlib
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import provenance  # noqa: E402


def ratio(row):
    """Our time over the fastest of the baseline's."""
    if row.get("kind") == "cost" or "us" not in row:
        return None
    against = row.get("baseline") or [name for name in row["us"] if name != "mathfuse"]
    return row["us"]["mathfuse"] / min(row["us"][name] for name in against)


def describe(row):
    if "skipped" in row:
        return f"{row['name']}: skipped, {row['skipped']}"
    lines = [f"{row['name']}"]
    lines += [f"    {us:12.2f} µs  {name}" for name, us in sorted(row["us"].items(), key=lambda item: item[1])]
    if row.get("ratio"):
        goal = f", goal {row['goal']}" if "goal" in row else ""
        lines.append(f"    {row['ratio']:.3f} of {row['against']}{goal}; error {row['error']:.1e}")
    return "\n".join(lines)


def measure(rows, found):
    """Collect what a generator gives; an error in the middle keeps what came before and is reported as a row."""
    try:
        for row in rows:
            if ratio(row) is not None:
                row["ratio"] = ratio(row)
            found.append(row)
            print(describe(row), flush=True)
        return True
    except Exception:
        traceback.print_exc()
        found.append({"name": "broke off", "skipped": traceback.format_exc(limit=1).splitlines()[-1]})
        return False


def has_gpu():
    try:
        import torch

        return torch.cuda.is_available()
    except ImportError:
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "gpu", "all"), default="all")
    parser.add_argument("--smoke", action="store_true", help="small sizes: does everything run?")
    parser.add_argument("--output", type=pathlib.Path, help="default: bench/results/DEVICE.json")
    given = parser.parse_args()
    devices = ["cpu", "gpu"] if given.device == "all" else [given.device]
    if "gpu" in devices and not has_gpu():
        if given.device == "gpu":
            sys.exit("no GPU that PyTorch can use")
        devices.remove("gpu")
    good = True
    for device in devices:
        import importlib

        started = time.perf_counter()
        found = []
        good &= measure(importlib.import_module(f"bench_{device}").rows(given.smoke), found)
        result = {"device": device, "provenance": provenance.collect(), "rows": found,
                  "seconds": round(time.perf_counter() - started, 1)}  # fmt: skip
        target = given.output or pathlib.Path(__file__).resolve().parent / f"results/{device}.json"
        if given.output and len(devices) > 1:
            target = target.with_stem(f"{target.stem}-{device}")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
        print(f"wrote {target}")
    sys.exit(not good)


if __name__ == "__main__":
    main()
